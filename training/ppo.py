"""Train a policy by proximal policy optimisation: `python -m training.ppo` (docs/reinforcement.md).

The policy is one of this project, its updates are Stable-Baselines3's (extra `rl`; Schulman et al.
2017), and episodes run as those of `training.es`, to their end, on any number of processes.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.ppo"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

from training.command.signals import exit_status
from training.trainers.job_config import describe_job, make_parser
from training.trainers.ppo_config import FREE_ON_RESUME, PPOConfig, load_config

__all__ = ["PPOConfig", "load_config", "main"]

PRESET = "stepping_stones_ppo.yaml"


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.ppo` and `foveate-ppo`; returns the exit status."""
    return exit_status(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    description = "Train a policy by proximal policy optimisation."
    parser = make_parser("training.ppo", description, describe_job(PPOConfig), PRESET)
    args = parser.parse_args(argv)

    # Late, as --help needs none of what takes seconds to load.
    from training.trainers.lifecycle import train_and_tell
    from training.trainers.ppo_learner import prepare, train

    return train_and_tell("training.ppo", args, PRESET, load_config, FREE_ON_RESUME, prepare, train)
