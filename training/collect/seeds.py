"""Episode seeds of training, and those reserved for evaluation."""

import numpy as np

EVALUATION_SEEDS_FROM = 100_000
"""Episode seeds from here on are for evaluation; training never uses them."""

VALIDATION_SEEDS_FROM = 90_000
"""Scenes from here on are for the closed-loop evaluations while a clone trains, and for choosing
between clones; demonstrations never use them."""


def derived_seeds(run_seed: int, iteration: int, group: int, count: int) -> list[int]:
    """Seeds below those reserved for evaluation, determined by these numbers alone."""
    sequence = np.random.SeedSequence(run_seed, spawn_key=(iteration, group))
    return [int(word) % EVALUATION_SEEDS_FROM for word in sequence.generate_state(count, np.uint64)]
