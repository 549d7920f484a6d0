"""From a trainer's command line to its configuration, run directory and checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from training import checkpoint, run_log
from training import config as configuration
from training.config import UserError

__all__ = ["add_arguments", "start_run"]

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser, preset: str) -> None:
    """The arguments that `start_run` reads."""
    parser.add_argument("--config", metavar="FILE", help=f"YAML (default: {preset})")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: runs/<env>-<time>)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the configuration, dotted where nested",
    )  # fmt: skip


def start_run(
    args: argparse.Namespace, preset: str, load: Callable[[Any, list[str]], T],
    free_on_resume: tuple[str, ...],
) -> tuple[T, Path, checkpoint.Checkpoint | None]:  # fmt: skip
    """What the command line asks for: configuration, run directory, checkpoint to go on from.

    Args:
        args: of `add_arguments`.
        preset: file among the package's configs that is read when none is named.
        load: reads a configuration from a path and overrides.
        free_on_resume: keys that a resumed run may change.
    """
    if args.resume is None:
        packaged = resources.files("configs") / preset
        config = load(args.config or Path(str(packaged)), args.set)
        plain = configuration.dump(config)
        run = Path(args.out) if args.out else run_log.new_directory(plain["env_id"])
        run_log.create(run, plain)
        return config, run, None
    run = Path(args.resume)
    if args.out is not None and Path(args.out) != run:
        raise UserError(f"--resume {run} writes there, so --out {args.out} cannot be given too")
    saved = run / run_log.CONFIG
    if not saved.is_file():
        raise UserError(f"{run} holds no run to resume: there is no {saved}")
    config = load(args.config or saved, args.set)
    before, after = configuration.dump(load(saved, [])), configuration.dump(config)
    changed = [key for key in before if before[key] != after[key] and key not in free_on_resume]
    if changed:
        raise UserError(
            f"{changed[0]} = {after[changed[0]]!r} differs from {before[changed[0]]!r} in {saved}; "
            f"a resumed run may change {', '.join(free_on_resume)} alone"
        )
    paths = checkpoint.in_run(run)
    return config, run, checkpoint.load(paths[-1]) if paths else None
