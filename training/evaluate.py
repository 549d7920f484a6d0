"""Measure policies over many seeds: reward, success, the task's own outcomes, FLOPs and latency.

python -m training.evaluate runs/a runs/b --policy oracle --policy blind --out evaluations/first
python -m training.evaluate --policy oracle --policy random --env BimanualSweep-v0 --workers 2
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.evaluate"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs import Outcome
from training.analysis.arguments import SCRIPTED, add_arguments
from training.collect.outcomes import outcomes_of
from training.command.files import EVALUATION, PARETO, reason
from training.command.signals import exit_status
from training.io.config import ArgumentParser, UserError
from training.io.fingerprint import differences
from training.reports.plots import plot_pareto

if TYPE_CHECKING:
    from training.analysis.agents import Agent

FOLDER = "evaluation"
"""Folder of a run directory that receives its evaluations; the second is `evaluation-2`."""


def _outcomes(agents: Sequence["Agent"]) -> list[Outcome]:
    """The outcomes of the policies' tasks that have a column, all but events."""
    found = [one for agent in agents for one in outcomes_of(agent.task) if one.kind != "event"]
    return list({outcome.name: outcome for outcome in found}.values())


def _heading(outcomes: Sequence[Outcome]) -> str:
    columns = [f"{one.label} {one.unit}".rstrip() for one in outcomes]
    return (
        f"{'policy':<28} {'success':>8} {'95% interval':>15} {'once':>7} {'reward':>16} "
        + "".join(f"{column:>15} " for column in columns)
        + f"{'FLOPs/step':>13} {'ms/step':>8} {'parameters':>10}"
    )


def _row(entry: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    success, interval, once = "-", "-", "-"
    if entry["success_rate"] is not None:
        success, (low, high) = f"{entry['success_rate']:.1%}", entry["success_interval_95"]
        interval = f"{low:.1%} - {high:.1%}"
        once = f"{entry.get('success_once_rate', entry['success_rate']):.1%}"
    flops = "-" if entry["flops_per_step"] is None else f"{entry['flops_per_step']:,}"
    means = [_mean(entry, one.mean_name, one.name, one.decimals) for one in outcomes]
    return (
        f"{entry['name']:<28} {success:>8} {interval:>15} {once:>7} "
        f"{_mean(entry, 'reward_mean', 'reward', 3):>16} "
        + "".join(f"{mean:>15} " for mean in means)
        + f"{flops:>13} {entry['latency_ms_per_step']:>8.3f} {entry['parameters']:>10,}"
    )


def _mean(entry: dict[str, Any], mean_name: str, name: str, decimals: int) -> str:
    """Mean and standard error of a figure, the mean alone of one episode, or "-"."""
    if mean_name not in entry:
        return "-"
    mean, error = f"{entry[mean_name]:.{decimals}f}", entry[f"{name}_sem"]
    return mean if error is None else f"{mean} +- {error:.{decimals}f}"


def _folder(runs: Sequence[str], agents: Sequence["Agent"], seeds: Sequence[int]) -> Path | None:
    """Default of --out: a new folder in the first run directory that is named, itself or by a
    checkpoint; None if there is no writable one."""
    from training.analysis.evaluator import is_free

    first = next(filter(None, map(_run_directory, runs)), None)
    if first is None:
        return None
    if not os.access(first, os.W_OK):
        print(f"note: {first} cannot be written, so nothing is: give --out DIR", file=sys.stderr)
        return None
    names = (f"{FOLDER}-{number}" if number > 1 else FOLDER for number in itertools.count(1))
    return next(f for f in (first / name for name in names) if is_free(f, agents, seeds))


def _run_directory(given: str) -> Path | None:
    from training.io import checkpoint

    path = Path(given)
    if (path / checkpoint.CHECKPOINTS).is_dir():
        return path
    return path.parents[1] if path.parent.name == checkpoint.CHECKPOINTS else None


def _note_differences(agents: Sequence["Agent"]) -> None:
    """Print a note if policies do not have the same task."""
    settings = [agent.env_settings for agent in agents]
    different = sorted({key for one in settings for key, *_ in differences(settings[0], one)})
    if different and len({agent.env_id for agent in agents}) == 1:
        print(
            f"note: the policies' environments differ in {', '.join(different)}, "
            "which comes with each policy; --set gives all of them the same value",
            file=sys.stderr,
        )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="training.evaluate", description=(__doc__ or "").split("\n")[0])
    text = "run directory (its latest checkpoint), checkpoint file, or a shipped policy's name"
    parser.add_argument("runs", nargs="*", metavar="RUN_OR_CHECKPOINT", help=text)
    add_arguments(parser, episodes=100, workers=True)
    text = (
        f"write {EVALUATION} and {PARETO} here (default: {FOLDER}, {FOLDER}-2, ... in the first "
        "run directory named; without one nothing is written)"
    )
    parser.add_argument("--out", metavar="DIR", help=text)
    text = (
        "also evaluate what does not observe: random actions, the best constant action, and each "
        "policy blind, shown the images (without images, all observations) of another episode; "
        "default: unless --policy is given"
    )
    parser.add_argument("--floors", action=argparse.BooleanOptionalAction, help=text)
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    import torch  # and what loads it: --help is quick without

    from training.analysis.agents import agents_of
    from training.analysis.evaluator import claim
    from training.analysis.floors import floors_of

    torch.set_num_threads(1)
    if not arguments.runs and not arguments.policy:
        raise UserError(f"give at least one RUN_OR_CHECKPOINT, or --policy {'|'.join(SCRIPTED)}")
    agents = agents_of(arguments, arguments.runs, recorded=True)
    _note_differences(agents)
    if arguments.floors or (arguments.floors is None and not arguments.policy):
        agents += floors_of(agents, arguments.episodes)
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    out = _folder(arguments.runs, agents, seeds) if arguments.out is None else Path(arguments.out)
    with claim(out, agents, seeds) as (directory, kept):
        _evaluate_into(directory, kept, agents, seeds, arguments.workers)
    return 0


def _evaluate_into(
    directory: Path | None,
    kept: list[dict[str, Any]],
    agents: Sequence["Agent"],
    seeds: Sequence[int],
    workers: int,
) -> None:
    """Print each policy's row as soon as it is measured, and write all rows so far; `kept` are
    those of an earlier process."""
    from training.analysis.evaluator import evaluate, write_entries
    from training.analysis.floors import compared

    outcomes = _outcomes(agents)
    print(_heading(outcomes))
    entries: list[dict[str, Any]] = []
    rest = agents[len(kept) :]
    measured = evaluate(rest, seeds, workers, progress=sys.stderr.isatty()) if rest else ()
    for entry in itertools.chain(kept, measured):
        entries.append(entry)
        print(_row(entry, outcomes), flush=True)
        if directory and len(entries) > len(kept):
            try:
                write_entries(directory, entries)
            except OSError as error:
                why = reason(error)
                raise UserError(f"{directory / EVALUATION} cannot be written: {why}") from None
    for sentence in compared(agents, entries):
        print(sentence)
    if directory:
        plot_pareto(entries, directory / PARETO)
        print(f"wrote {directory / EVALUATION} and {directory / PARETO}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status of `exit_status`."""
    return exit_status(lambda: run(argv))
