"""Train and evaluate variants in the same way over several seeds, and write a report.

python -m training.study --config configs/studies/stepping_stones.yaml

Each job of a study (a training run, an evaluation, a video) writes its result to one directory.
Finished jobs are not run again: the same command resumes after any interruption, and does nothing
when all jobs are done. The report is updated while jobs finish, and lists those that are missing.
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.study"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.command.signals import exit_status
from training.compare.config import StudyConfig, load_config, study_file
from training.io import config as configuration
from training.io.config import ArgumentParser


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m training.study",
        description=(__doc__ or "").split("\n")[0],
        epilog=f"fields of the configuration:\n{configuration.describe(StudyConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    many: Any = {"nargs": "+", "action": "extend", "default": []}
    add("--config", metavar="FILE", required=True, help="the study, YAML")
    add("--out", metavar="DIR", help="directory of the study (default: studies/<config>)")
    add(
        "--set",
        metavar="KEY=VALUE",
        **many,
        help="set fields of the study, as in --set 'seeds=[0]' parallel=4",
    )
    add(
        "--only",
        "--variants",
        "--arms",
        metavar="WORD",
        **many,
        help="run only jobs whose label, as it is printed and as the page lists it, has one of "
        "these words, or variants' names; and the training runs that they need",
    )
    add(
        "--page",
        action="store_true",
        help="write the page from the existing results, and nothing else",
    )
    add(
        "--record",
        metavar="DIR",
        help="write tables and the page of the existing results, a few small files without "
        "checkpoints, and nothing else",
    )
    add("--unpack", metavar="RECORD", help="start --out with a record, unless it exists")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    import torch  # and what loads it: --help is quick without

    from training.compare.study import Study

    torch.set_num_threads(1)
    path = study_file(arguments.config)
    out = Path(arguments.out) if arguments.out else Path("studies") / path.stem
    record = None if arguments.record is None else Path(arguments.record)
    study = Study(load_config(path, arguments.set), path, out, arguments.set)
    with study.file_errors():
        if arguments.unpack is not None:
            study.unpack(Path(arguments.unpack))
        if record is not None:
            study.check_record(record)
            status = study.run(page_alone=True)
            study.write_record(record)
            return status
    return study.run(arguments.only, arguments.page)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of `python -m training.study` and `foveate-study`; returns the exit status."""
    return exit_status(lambda: run(argv))
