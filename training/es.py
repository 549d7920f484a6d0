"""Train a policy by evolution strategies: `python -m training.es` (docs/training.md)."""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.es"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

from training.command.signals import exit_status
from training.trainers.es_config import FREE_ON_RESUME, ESConfig, load_config
from training.trainers.job_config import describe_job, make_parser

__all__ = ["ESConfig", "load_config", "main"]

PRESET = "stepping_stones.yaml"


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.es` and `foveate-es`; returns the exit status."""
    return exit_status(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    description = "Train a policy by evolution strategies."
    parser = make_parser("training.es", description, describe_job(ESConfig), PRESET)
    args = parser.parse_args(argv)

    # Late, as --help needs none of what takes seconds to load.
    from training.trainers.es_learner import prepare, train
    from training.trainers.lifecycle import train_and_tell

    return train_and_tell("training.es", args, PRESET, load_config, FREE_ON_RESUME, prepare, train)
