"""Train arms alike over several seeds, evaluate them on the same scenes, and write one page.

python -m training.study --config configs/studies/stepping_stones.yaml

Everything lands in one directory, unit by unit: a run, an evaluation, a video. What is there is
not made again, so the same command goes on after any interruption, and does nothing when all is
done. The page is written anew as units are done, and says what is missing.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.study"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from training.command.signals import exit_status, interrupted_status
from training.compare.config import StudyConfig, load_config, study_file
from training.compare.study import begin_with, check_record, command_of, make_study, write_record
from training.io import config as configuration
from training.io.config import ArgumentParser, UserError

__all__ = ["load_config", "main"]


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m training.study",
        description=(__doc__ or "").split("\n")[0],
        epilog=f"fields of the configuration:\n{configuration.describe(StudyConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", required=True, help="the study, YAML")
    parser.add_argument("--out", metavar="DIR", help="where all goes (default: studies/<config>)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the study, as in --set 'seeds=[0]' parallel=4",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="WORD", nargs="+", action="extend", default=[],
        help="make only parts that have one of these words, as they are printed and as the page "
        "lists them, or arms' names, and the runs that they need",
    )  # fmt: skip
    parser.add_argument(
        "--page", action="store_true", help="write the page from what is there, and nothing else"
    )
    parser.add_argument(
        "--record", metavar="DIR", help="write tables and the page of what is there, a few small "
        "files without checkpoints, and nothing else",
    )  # fmt: skip
    parser.add_argument(
        "--unpack", metavar="RECORD", help="begin --out with a record, where it is not begun yet"
    )
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    path = study_file(arguments.config)
    out = Path(arguments.out) if arguments.out else Path("studies") / path.stem
    record = None if arguments.record is None else Path(arguments.record)
    try:
        study = load_config(path, arguments.set)
        if arguments.unpack is not None:
            begin_with(Path(arguments.unpack), study, path, out)
        if record is not None:
            check_record(record, study, out)
        page_alone = arguments.page or record is not None
        status = make_study(study, path, out, arguments.set, page_alone, arguments.only)
        if record is not None:
            write_record(study, path, out, arguments.set, record)
        return status
    except KeyboardInterrupt as error:
        status = interrupted_status(error)
        command = command_of(path, arguments.set, out, arguments.only)
        print(f"\nstopped; what is finished is kept; go on with: {command}", flush=True)
        return status
    except BrokenPipeError:
        raise  # of standard output, no file of the study
    except OSError as error:
        raise UserError(f"{out}: a file of the study cannot be written: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of `python -m training.study` and `foveate-study`; returns the exit status."""
    return exit_status(lambda: run(argv))
