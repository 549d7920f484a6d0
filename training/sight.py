"""Test whether a policy uses its images: the same scenes with its own and with replaced images.

python -m training.sight RUN_OR_CHECKPOINT --workers 2 --out sight/first
python -m training.sight mine:act --env CarRacing-v3
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.sight"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.analysis.arguments import INTERVENTIONS, add_arguments
from training.command.errors import command_line
from training.command.files import made_and_locked, write_atomically, write_json
from training.command.signals import exit_status
from training.interventions.report import EPISODES, SMALLEST_LOSS, Report, render
from training.io.config import ArgumentParser, UserError

if TYPE_CHECKING:
    from training.analysis.agents import Agent
    from training.interventions.trial import sight

__all__ = ["Report", "main", "sight"]


def __getattr__(name: str) -> Any:
    """Import `sight`, which loads PyTorch, on first use."""
    if name != "sight":
        raise AttributeError(f"module 'training.sight' has no attribute {name!r}")
    from training.interventions.trial import sight

    return sight


RESULTS, PAGE = "sight.json", "sight.html"


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="training.sight", description=(__doc__ or "").split("\n")[0])
    text = (
        "run directory (its latest checkpoint), checkpoint file, a shipped policy's name, or "
        "MODULE:NAME: a Python function of an observation, or a class or object with act(), which "
        "needs --env"
    )
    parser.add_argument("run", nargs="?", metavar="RUN_OR_CHECKPOINT", help=text)
    add_arguments(parser, episodes=EPISODES, workers=True)
    text = "images to replace (default: all of the observation)"
    listed: dict[str, Any] = {"nargs": "+", "metavar": "KEY", "action": "extend", "default": []}
    parser.add_argument("--images", **listed, help=text)
    text = "the images that replace them (default: all); swap and freeze decide"
    kinds: dict[str, Any] = {"choices": INTERVENTIONS, "default": INTERVENTIONS}
    parser.add_argument("--interventions", nargs="+", **kinds, help=text)
    text = "share of the margin over the floor: a smaller loss is none (default %(default)s)"
    share: dict[str, Any] = {"type": _share, "default": SMALLEST_LOSS, "metavar": "SHARE"}
    parser.add_argument("--smallest-loss", **share, help=text)
    parser.add_argument("--out", metavar="DIR", help=f"write {RESULTS} and {PAGE} here")
    return parser


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number over 0 and up to 1, got {text!r}")
    return value


@contextmanager
def _claimed(out: str) -> Iterator[Path]:
    """Create and lock the directory for results. Raises UserError if it holds results."""
    with made_and_locked(Path(out)) as directory:
        for name in (RESULTS, PAGE):
            if (directory / name).exists():
                raise UserError(
                    f"--out {out} holds another report ({name}): give another directory"
                )
        yield directory


def _write(directory: Path, found: Report, agent: "Agent", words: Sequence[str]) -> None:
    from training.analysis.evaluator import origin

    facts = {
        **found.plain(),
        "env_settings": agent.env_settings,
        **({} if agent.repair is None else {"repair": agent.repair}),
        **origin(agent),
    }
    page = render(found, command_line("training.sight", *words))
    write_atomically(directory / PAGE, page.encode())
    write_json(directory / RESULTS, facts, allow_nan=False)
    print(f"wrote {directory / RESULTS} and {directory / PAGE}")


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser().parse_args(words)
    # Late, as these load PyTorch: --help is quick without.
    from training.analysis.agents import find_agent
    from training.interventions.trial import sight_of

    agent = find_agent(arguments, recorded=True)
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    with nullcontext() if arguments.out is None else _claimed(arguments.out) as directory:
        found = sight_of(
            agent, agent.name, seeds, arguments.images, arguments.interventions,
            arguments.smallest_loss, arguments.workers, progress=sys.stderr.isatty(),
        )  # fmt: skip
        print(found)
        if directory is not None:
            _write(directory, found, agent, words)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status of `exit_status`."""
    return exit_status(lambda: run(argv))
