"""Does a policy look? It plays the same scenes with its own images and with others in their place.

python -m training.sight RUN_OR_CHECKPOINT --workers 2 --out sight/first
python -m training.sight mine:act --env CarRacing-v3
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.sight"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

import envs
from training.command.command_lines import command_line
from training.command.files import made_and_locked, write_atomically
from training.command.progress import watched
from training.command.signals import exit_status
from training.command.suggestions import did_you_mean
from training.episodes.pool import WorkerDiedError, opened
from training.evaluation.evaluation_file import sha256_of
from training.evaluation.players import (
    EVALUATION_SEED,
    Player,
    add_arguments,
    find_players,
    positive,
)
from training.interventions.images import INTERVENTIONS, image_keys
from training.interventions.page import render
from training.interventions.play import ALL, Given, Scene, Stage, Subject, Task
from training.interventions.report import Report, report
from training.runs.run_log import provenance
from training.settings import config
from training.settings.config import ArgumentParser, UserError

__all__ = ["Report", "main", "sight"]

EPISODES, SMALLEST_LOSS = 20, 0.2
RESULTS, PAGE = "sight.json", "sight.html"


def sight(
    policy: Any,
    make_env: Callable[[], gymnasium.Env],
    *,
    seeds: Sequence[int] = range(EVALUATION_SEED, EVALUATION_SEED + EPISODES),
    images: Collection[str] = (),
    interventions: Collection[str] = INTERVENTIONS,
    smallest_loss: float = SMALLEST_LOSS,
    workers: int = 1,
    name: str = "policy",
) -> Report:
    """Whether a policy looks.

    Args:
        policy: an object with `act(observation)` and, where it remembers, `reset()`; a function of
            an observation; or a class of such objects, which is called with the environment.
        make_env: makes the environment, which is closed again.
        seeds: of the scenes, all different; as many following the largest are those whose images
            are lent.
        images: parts of the observation that are replaced; default: all that are images.
        interventions: of `INTERVENTIONS`; swap and freeze decide.
        smallest_loss: share of what the policy has over the floor, below which a loss is none.
        workers: processes; with several, `policy` and `make_env` are pickled.
        name: of the policy, in the report.

    Raises UserError where there are no images, or a number is not finite.
    """
    return _sight(
        Given(policy, make_env), name, seeds, images, interventions, smallest_loss, workers
    )


def _sight(
    subject: Subject,
    name: str,
    seeds: Sequence[int],
    images: Collection[str],
    interventions: Collection[str],
    smallest_loss: float,
    workers: int,
    progress: bool = False,
) -> Report:
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds must be at least one, all different, got {list(seeds)}")
    unknown = [kind for kind in interventions if kind not in INTERVENTIONS]
    if unknown or not interventions:
        raise UserError(
            f"interventions must be some of {', '.join(INTERVENTIONS)}, got {', '.join(unknown)}"
        )
    with subject.make_env() as env:
        identity, task = envs.name_of(env), envs.task_of(env)
        keys = _chosen(env, identity, images)
    groups = {ALL: keys}
    if len(keys) > 1:
        groups |= {key: [key] for key in keys}
    tasks = [Task(seed, max(seeds) + 1 + i) for i, seed in enumerate(seeds)]
    make = partial(Stage, subject, groups, [k for k in INTERVENTIONS if k in interventions])
    scenes = _play(make, tasks, min(workers, len(tasks)), name, progress)
    headline = None if task is None else task.headline_outcome
    lower_is_better = [headline.name] if headline and headline.better == "down" else []
    return report(name, identity, scenes, smallest_loss, lower_is_better)


def _chosen(env: gymnasium.Env, identity: str, images: Collection[str]) -> list[str]:
    """The parts that are replaced. UserError where there are none."""
    there = image_keys(env.observation_space)
    if not there:
        raise UserError(
            f"{identity} has no images: no part of its observation is a Box of 2 to 4 dimensions"
        )
    for key in images:
        if key not in there:
            raise UserError(
                f"{key} is no image of {identity}, whose images are {', '.join(there)}"
                f"{did_you_mean(key, there)}"
            )
    return [key for key in there if key in images or not images]


def _play(
    make: Callable[[], Stage], tasks: Sequence[Task], workers: int, name: str, progress: bool
) -> list[Scene]:
    try:
        with opened(make, workers) as pool, closing(pool.in_order(tasks)) as results:
            return list(watched(results, name, len(tasks), "scene", progress))
    except (FloatingPointError, WorkerDiedError) as error:
        raise UserError(f"{name}: {error}") from None


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="training.sight", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN_OR_CHECKPOINT",
        help="run directory (its latest checkpoint), checkpoint file, a shipped policy's name, or "
        "MODULE:NAME: a Python function of an observation, or a class or object with act(), which "
        "needs --env",
    )
    add_arguments(parser, episodes=EPISODES)
    parser.add_argument(
        "--images", nargs="+", action="extend", default=[], metavar="KEY",
        help="images to replace (default: all of the observation)",
    )  # fmt: skip
    parser.add_argument(
        "--interventions", nargs="+", choices=INTERVENTIONS, default=INTERVENTIONS,
        help="what is shown in their place (default: all); swap and freeze decide",
    )  # fmt: skip
    parser.add_argument(
        "--smallest-loss", type=_share, default=SMALLEST_LOSS, metavar="SHARE",
        help="of what the policy has over the floor: a smaller loss is none (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--workers", type=positive, default=1, help="processes (default 1)")
    parser.add_argument("--device", default="cpu", help="PyTorch device of the policy")
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
def _claimed(out: str | None) -> Iterator[Path | None]:
    """The directory for results, made and locked; UserError where it holds some."""
    if out is None:
        yield None
        return
    with made_and_locked(Path(out)) as directory:
        for name in (RESULTS, PAGE):
            if (directory / name).exists():
                raise UserError(
                    f"--out {out} holds another report ({name}): give another directory"
                )
        yield directory


def _write(directory: Path, found: Report, player: Player, words: Sequence[str]) -> None:
    facts = {
        **found.plain(),
        "env_settings": player.env_settings,
        **({} if player.repair is None else {"repair": player.repair}),
        "checkpoint": None if player.checkpoint is None else str(player.checkpoint),
        "checkpoint_sha256": sha256_of(player),
        "provenance": provenance({"env": player.env_settings}),
    }
    page = render(found, command_line("training.sight", *words))
    text = json.dumps(facts, indent=1, allow_nan=False) + "\n"
    write_atomically(directory / PAGE, page.encode())
    write_atomically(directory / RESULTS, text.encode())
    print(f"wrote {directory / RESULTS} and {directory / PAGE}")


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser().parse_args(words)
    if len(arguments.policy) + (arguments.run is not None) != 1:
        raise UserError("give one RUN_OR_CHECKPOINT, or one --policy oracle|blind|random")
    files = [] if arguments.run is None else [arguments.run]
    (player,) = find_players(
        files, arguments.policy, arguments.env, arguments.set, arguments.device, arguments.repair,
        own=arguments.own, anyway=arguments.anyway,
    )  # fmt: skip
    config.check_finite(player.env_settings, f"the environment of {player.name}")
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    with _claimed(arguments.out) as directory:
        found = _sight(
            player, player.name, seeds, arguments.images, arguments.interventions,
            arguments.smallest_loss, arguments.workers, progress=sys.stderr.isatty(),
        )  # fmt: skip
        print(found)
        if directory is not None:
            _write(directory, found, player, words)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its exit status, as of `exit_status`."""
    return exit_status(lambda: run(argv))
