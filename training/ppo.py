"""Train a policy by PPO: `python -m training.ppo` (docs/guide/reinforcement.md).

The policy is one of this project, its updates are Stable-Baselines3's (extra `rl`; Schulman et al.
2017), and episodes run as those of `training.es`, to their end, on any number of processes.
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.ppo"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

from pathlib import Path

from training.algorithms import command, registry
from training.algorithms.ppo_config import PPOConfig
from training.io.overrides import Overrides


def load_config(path: str | Path, overrides: Overrides = ()) -> PPOConfig:
    """The configuration with every default filled in; UserError when something is wrong."""
    return registry.load_any_config(path, overrides, "ppo")


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.ppo` and `foveate-ppo`; returns the exit status."""
    return command.main("ppo", argv)
