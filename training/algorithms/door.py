"""The command line of a trainer; `--help` answers before PyTorch is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from training.algorithms.job_config import describe_job, make_parser
from training.algorithms.registry import named
from training.command.signals import exit_status

__all__ = ["main"]


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """The command line of a trainer, by its name; returns the exit status."""
    return exit_status(lambda: _main(name, argv))


def _main(name: str, argv: Sequence[str] | None) -> int:
    trainers = named(name)
    first = trainers[0]
    described = [
        (f"{one.where}:\n" if one is not first else "") + describe_job(one.config)
        for one in trainers
    ]
    parser = make_parser(first.command, first.summary, "\n\n".join(described), first.preset)
    args = parser.parse_args(argv)

    from training.algorithms.lifecycle import run_command

    return run_command(first, args)
