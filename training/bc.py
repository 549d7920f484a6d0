"""Train a policy by cloning a scripted expert: `python -m training.bc` (docs/guide/training.md).

A policy is cloned while the expert labels its rollouts (`training.algorithms.dagger`), an implicit
Vision-Performer from recorded demonstrations (`training.algorithms.implicit_bc`);
`policy.name` and `policy.form` decide.
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.bc"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

from pathlib import Path

from training.algorithms import command, registry
from training.algorithms.bc_config import BCConfig
from training.algorithms.implicit_bc_config import ImplicitBCConfig
from training.io.overrides import Overrides


def load_config(path: str | Path, overrides: Overrides = ()) -> BCConfig | ImplicitBCConfig:
    """The configuration of either kind of cloning; UserError when something is wrong."""
    return registry.load_any_config(path, overrides, "bc")


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.bc` and `foveate-bc`; returns the exit status."""
    return command.main("bc", argv)
