"""Train a policy by evolution strategies: `python -m training.es` (docs/guide/training.md)."""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.es"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

from pathlib import Path

from training.algorithms import command, registry
from training.algorithms.es_config import ESConfig
from training.io.overrides import Overrides


def load_config(path: str | Path, overrides: Overrides = ()) -> ESConfig:
    """The configuration with every default filled in; UserError when something is wrong."""
    return registry.load_any_config(path, overrides, "es")


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.es` and `foveate-es`; returns the exit status."""
    return command.main("es", argv)
