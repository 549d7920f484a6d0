"""Run one of the papers' learning experiments.

python -m experiments images

All goes into one directory, a part at a time: what is there is not made again, so the same command
goes on after any interruption, and does nothing when all is done.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("experiments.__main__"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: models are small

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments.config import ExperimentConfig, load_config, with_arms
from experiments.experiment import check_directory, command_of, run_experiment, write_record
from experiments.orders import tell_orders
from training.analysis.agents import check_device
from training.command.signals import exit_status
from training.command.suggestions import did_you_mean
from training.io import config as configuration
from training.io.config import ArgumentParser, UserError

__all__ = ["main"]

CONFIGS = Path(__file__).parent / "configs"


def _names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m experiments",
        description=(__doc__ or "").split("\n")[0],
        epilog=f"fields of an experiment:\n{configuration.describe(ExperimentConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "experiment", metavar="NAME", help=f"{', '.join(_names())}, or a file of your own"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="where all goes (default: results/NAME, with --quick NAME_quick)",
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the experiment, as in --set 'seeds=[0]' parallel=2",
    )  # fmt: skip
    parser.add_argument(
        "--arms", metavar="ARM", nargs="+", action="extend", default=[],
        help="these arms alone, the baseline and those that they begin with",
    )  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="folder with the data; without: fetched once")
    parser.add_argument("--quick", action="store_true", help="seconds: shows that all works")
    parser.add_argument("--page", action="store_true", help="write the page from what is there")
    parser.add_argument(
        "--orders",
        metavar="FILE",
        help="print what the papers order, by the numbers of a table.csv",
    )
    parser.add_argument(
        "--record", metavar="DIR", help="write the table and the page of what is there alone"
    )
    return parser


def _file(name: str) -> Path:
    """Of an experiment. UserError where there is none."""
    shipped = CONFIGS / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    raise UserError(
        f"experiment must be one of {', '.join(_names())}, or a YAML file, got {name!r}"
        f"{did_you_mean(name, _names())}"
    )


def run(argv: Sequence[str] | None = None) -> int:
    """The command."""
    words = _parser().parse_args(argv)
    path = _file(words.experiment)
    experiment = whole = load_config(path, words.set)
    if words.arms:
        experiment = with_arms(experiment, words.arms)
    if words.orders is not None:
        tell_orders(experiment, Path(words.orders), [arm.name for arm in whole.arms])
        return 0
    default = Path("results") / (f"{path.stem}_quick" if words.quick else path.stem)
    out = Path(words.out) if words.out else default
    torch.set_num_threads(1)
    check_device(experiment.device)
    check_directory(out, experiment)
    command = command_of(words.experiment, words.set, words.quick, words.arms)
    if words.record is not None:
        return write_record(experiment, path, out, command, words.quick, Path(words.record))
    return run_experiment(experiment, path, out, command, words.quick, words.data, words.page)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return exit_status(lambda: run(argv))
