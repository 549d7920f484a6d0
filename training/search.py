"""Search for the settings of a run: Optuna chooses, each trial is a run (docs/guide/search.md).

python -m training.search --config configs/cartpole.yaml --out searches/cartpole --trials 20 \\
  --search searcher.sigma=log:0.01:1 'popsize=8|16|32'

The same command resumes after any interruption; with more --trials it runs the additional ones.
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.search"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import foveate_extras
from training.algorithms.registry import load_any_config, trainer_of
from training.analysis.arguments import positive
from training.command.errors import command_line
from training.command.files import made_and_locked
from training.command.signals import exit_status, interrupted_status
from training.io.config import ArgumentParser


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m training.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    many: Any = {"nargs": "+", "action": "extend", "default": []}
    add("--config", metavar="FILE", required=True, help="YAML of a run, any trainer's")
    add("--out", metavar="DIR", required=True, help="directory of the search")
    add("--trials", type=positive, default=20, help="number of trials (default %(default)s)")
    add(
        "--search",
        metavar="KEY=VALUES",
        required=True,
        **many,
        help="settings to choose, dotted where nested: LOW:HIGH, log:LOW:HIGH (whole numbers where "
        "both are), or A|B|C",
    )
    add(
        "--set",
        metavar="KEY=VALUE",
        **many,
        help="set other fields of the configuration, in all trials",
    )
    add(
        "--metric",
        metavar="COLUMN",
        help="column of metrics.csv (default: center_reward, or success)",
    )
    add(
        "--over",
        type=positive,
        default=5,
        help="last iterations, whose mean is a trial's value (default %(default)s)",
    )
    add(
        "--direction",
        choices=("maximise", "minimise"),
        default="maximise",
        help="which values are better (default %(default)s)",
    )
    add("--seed", type=int, default=0, help="seed of the choices (default %(default)s)")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    foveate_extras.require("training.search", "optuna")
    import torch  # and what loads it: --help is quick without

    from training.compare.search import TABLE, Search, metric_of, read_space, table

    torch.set_num_threads(1)
    space = read_space(arguments.search)
    config = load_any_config(arguments.config, arguments.set)
    search = Search(
        Path(arguments.out),
        Path(arguments.config),
        arguments.set,
        space,
        metric_of(config, arguments.metric),
        arguments.over,
        arguments.direction == "maximise",
        arguments.seed,
    )
    with made_and_locked(search.out):
        search.check()
        try:
            trials = search.run(arguments.trials)
        except KeyboardInterrupt as error:
            print("\nstopped; finished trials are kept, and the same command resumes", flush=True)
            return interrupted_status(error)
    print(f"\n{table(search, trials)}\n")
    best = trials[0].run
    again = command_line(trainer_of(config).command, "--config", best / "config.yaml")
    print(f"all of them: {search.out / TABLE}; the best again, with another seed:")
    print(f"  {again} --set seed=1")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of `python -m training.search` and `foveate-search`; returns the exit status."""
    return exit_status(lambda: run(argv))
