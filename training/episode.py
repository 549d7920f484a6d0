"""The episode loop by its public name; `training.collect.episode` has it."""

from training.collect.episode import Episode, Policy, PolicyError, finite_numbers, run_episode

__all__ = ["Episode", "Policy", "PolicyError", "finite_numbers", "run_episode"]
