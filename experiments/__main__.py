"""Run one of the papers' learning experiments.

python -m experiments images

Each model is trained once and writes its result to one directory: the same command resumes after
any interruption, and does nothing when all models are done.
"""

if __name__ == "__main__":  # first, because the following imports take seconds
    from training.command.signals import open_command

    raise SystemExit(open_command("experiments.__main__"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before importing torch, because models are small

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments.config import ExperimentConfig, load_config, with_variants
from experiments.experiment import Experiment
from experiments.results import print_claims
from training.command.errors import did_you_mean
from training.command.signals import exit_status
from training.io import config as configuration
from training.io.config import ArgumentParser, UserError

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
    parser.add_argument("experiment", metavar="NAME", help=f"{', '.join(_names())}, or a YAML file")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="directory of the experiment (default: results/NAME, with --quick NAME_quick)",
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the experiment, as in --set 'seeds=[0]' parallel=2",
    )  # fmt: skip
    parser.add_argument(
        "--variants", "--arms", metavar="VARIANT", nargs="+", action="extend", default=[],
        help="compare only these variants, the baseline and those from which they start",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="WORD", nargs="+", action="extend", default=[],
        help="run only jobs whose label, as it is printed, has one of these words, and those that "
        "they need",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="DIR", help="folder with the data (default: downloaded once)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds")
    parser.add_argument(
        "--page", action="store_true", help="write the page from the existing results"
    )
    parser.add_argument(
        "--claims", "--orders", metavar="FILE",
        help="print the papers' ranking claims next to the numbers of a table.csv",
    )  # fmt: skip
    parser.add_argument(
        "--record", metavar="DIR", help="only write the table and the page of the existing results"
    )
    return parser


def _file(name: str) -> Path:
    """The configuration of an experiment. Raises UserError if there is none."""
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
    settings = whole = load_config(path, words.set)
    if words.variants:
        settings = with_variants(settings, words.variants)
    if words.claims is not None:
        print_claims(settings, Path(words.claims), [variant.name for variant in whole.arms])
        return 0
    default = Path("results") / (f"{path.stem}_quick" if words.quick else path.stem)
    given = [words.experiment, *(["--quick"] if words.quick else [])]
    given += ["--set", *words.set] if words.set else []
    given += ["--variants", *words.variants] if words.variants else []
    out = Path(words.out) if words.out else default
    torch.set_num_threads(1)
    experiment = Experiment(settings, path, out, given, words.quick, words.data)
    if words.record is not None:
        experiment.write_record(Path(words.record))
        return 0
    return experiment.run(words.only, words.page)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return exit_status(lambda: run(argv))
