"""Arguments of `training.demos`, and the recording job they define."""

import argparse
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymnasium import spaces

from training.analysis.agents import positive, settings_given
from training.collect import environments
from training.collect.environments import make_env
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.demonstrations.format import ArraySpec, Recording, observation_spec
from training.demonstrations.recorder import SEGMENT_STEPS, Job
from training.demonstrations.writer import decisive_packages
from training.io.config import ArgumentParser, UserError

_DESCRIPTION = (
    "Record demonstrations: episodes of an environment's scripted expert, as files to learn from."
)


def _number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], Any]:
    """A number within [low, high], for argparse."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"must be of type {kind.__name__}, from {low} to {high}, got {text!r}"
            )
        return value

    return read


def parser() -> ArgumentParser:
    """The argument parser of the command `training.demos`."""
    parser = ArgumentParser(
        prog="training.demos",
        description=_DESCRIPTION,
        epilog=environments.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--env", metavar="ID", help="Gymnasium id; it must have expert_action()")
    parser.add_argument(
        "--episodes",
        type=positive,
        default=1000,
        help="total number of episodes (default %(default)s)",
    )
    parser.add_argument("--out", metavar="DIR", help="directory to record into or to continue")
    parser.add_argument("--verify", metavar="DIR", help="verify every byte of a directory instead")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="setting of the environment, as in --set episode_s=5",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=positive, default=len(os.sched_getaffinity(0)),
        help="processes (default: one for each core, here %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0,
        help=f"episode i uses seed S + i; those from {VALIDATION_SEEDS_FROM} up are for "
        "evaluation (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--after-success-steps", type=_number(int, -1, 10**6), default=10, metavar="K",
        help="steps to record after the first success, or after the environment's expert_done "
        "(nothing is left to do) first holds; -1: to the episode's end (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--noise", type=_number(float, 0, 10), default=0.0, metavar="SCALE",
        help="standard deviation of noise on the executed actions, in a random half of the "
        f"episode's {SEGMENT_STEPS}-step segments, as a share of half the action's range; the "
        "recorded action is the expert's own (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--valid-share", type=_number(float, 0, 0.9), default=0.05, metavar="SHARE",
        help="share of the episodes held out in mask/valid (default %(default)s)",
    )  # fmt: skip
    return parser


def plan(arguments: argparse.Namespace) -> Job:
    """The recording job; raises UserError if the environment cannot be recorded."""
    if arguments.env is None or arguments.out is None:
        raise UserError("give --env ID and --out DIR to record, or --verify DIR to check")
    last = arguments.seed + arguments.episodes - 1
    if not 0 <= arguments.seed <= last < VALIDATION_SEEDS_FROM:
        raise UserError(
            f"--seed {arguments.seed} with --episodes {arguments.episodes} uses the seeds "
            f"{arguments.seed} to {last}, where only 0 to {VALIDATION_SEEDS_FROM - 1} may be used"
        )
    settings = environments.resolved(arguments.env, settings_given(arguments.set))
    with make_env(arguments.env, settings) as env:
        if not env.has_wrapper_attr("expert_action"):
            raise UserError(f"--env {arguments.env} has no expert_action() to record")
        space = env.action_space
        if not isinstance(space, spaces.Box):
            raise UserError(f"--env {arguments.env} has actions {space}, not a Box of numbers")
        if arguments.noise and not space.is_bounded():
            raise UserError(
                f"--noise {arguments.noise} is a share of the action's range, but the actions of "
                f"{arguments.env} have no bounds"
            )
        for key, value in settings.items():
            if not _is_json(value):
                raise UserError(
                    f"--set {key}: a recording's settings are finite numbers, text, and lists of "
                    f"them, got {value!r}"
                )
        recording = Recording(
            env_id=arguments.env,
            env=settings,
            seed=arguments.seed,
            after_done_steps=arguments.after_success_steps,
            noise=arguments.noise,
            observation=observation_spec(env.observation_space),
            action=ArraySpec.of(space),
            packages=decisive_packages(),
        )
    return Job(
        Path(arguments.out), settings, Recording.from_json(recording.to_json(), Path(arguments.out))
    )


def _is_json(value: Any) -> bool:
    """Whether a setting can be written as JSON, which has no infinity and no dates."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
