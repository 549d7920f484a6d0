"""Time of a gradient step of cloning against how many decisions are differentiated at once.

    python -m benchmarks.cloning_time [--batch 128] [--rounds 5]

A batch's gradient is summed over parts. Small parts keep the data of the backward pass in the
cache; very small ones pay for more calls. Sizes are timed in turn, round after round, on random
observations; medians in milliseconds."""

import time
from functools import partial

import torch

from experiments import figure
from experiments.figure import Arguments
from experiments.timing import in_turn, medians
from training.algorithms import bc_config, dagger
from training.algorithms.labelled_rollouts import Demonstrations
from training.collect.environments import make_env
from training.runner import build_policy

PARTS = (8, 16, 32, 128)
VARIANTS = {
    "FAVOR+ m = 256": ["feature_map=positive", "num_features=256"],
    "angular m = n = 8": ["feature_map=angular_hybrid", "num_features=8"],
    "exact softmax": ["feature_map=softmax"],
    "no attention": ["policy.selection=all"],
}
PRESET = "configs/stepping_stones_clone.yaml"
SIZES = ["policy.patch=[2,2]", "policy.hidden=[64,32]", "updates=1"]


def random_data(job: bc_config.BCConfig, generator: torch.Generator) -> Demonstrations:
    """A batch of random observations and actions."""
    with make_env(job.env_id, job.env) as env:
        observation, _ = env.reset(seed=0)
    size = job.batch_size
    shapes = {key: (size, *value.shape) for key, value in observation.items()}
    return Demonstrations(
        observations={
            "depth": torch.rand(shapes["depth"], generator=generator).half(),
            "proprio": torch.randn(shapes["proprio"], generator=generator),
        },
        actions=2 * torch.rand((size, 9), generator=generator) - 1,
        held_out=torch.zeros(size, dtype=torch.bool),
    )


def measure(words: list[str], batch: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of a step, by the size of the parts."""
    job = bc_config.load_config(PRESET, [*SIZES, f"batch_size={batch}", *words])
    generator = torch.Generator().manual_seed(0)
    data = random_data(job, generator)
    policy = build_policy(job.env_id, job.env, job.policy)
    optimiser = torch.optim.Adam(policy.parameters(), job.learning_rate)
    steps = {
        str(part): partial(dagger.fit, policy, optimiser, data, job, 1, generator, part)
        for part in PARTS
    }
    return medians(in_turn(steps, rounds, time.perf_counter))


def run(arguments: Arguments) -> None:
    """Print the times of each policy."""
    print(f"{'ms a step, parts of':<22}" + "".join(f"{part:>8}" for part in PARTS))
    for name, words in VARIANTS.items():
        found = measure(words, arguments.batch, arguments.rounds)
        print(f"{name:<22}" + "".join(f"{ms:>8.1f}" for ms in found.values()), flush=True)


main = figure.file_command(
    run,
    figure.option("--batch", type=int, default=128, help="decisions a step (default 128)"),
    figure.option("--rounds", type=int, default=5, help="steps of each size (default 5)"),
)
