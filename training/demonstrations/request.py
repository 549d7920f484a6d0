"""The command line of `training.demos`, and the recording that it requests."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from gymnasium import spaces

from training.analysis.agents import positive, settings_given
from training.collect import environments
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.command.errors import UserError
from training.demonstrations.format import (
    ArraySpec,
    Recording,
    decisive_packages,
    observation_spec,
)
from training.demonstrations.recorder import SEGMENT_STEPS, Job
from training.io.config import ArgumentParser, number


def parser() -> ArgumentParser:
    """The argument parser of the command."""
    parser = ArgumentParser(
        prog="training.demos",
        description="Record demonstrations: episodes of an environment's scripted expert, as files "
        "to learn from.",
        epilog=environments.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--env", metavar="ID", help="Gymnasium id; it must have expert_action()")
    episodes = "total number of episodes (default %(default)s)"
    add("--episodes", type=positive, default=1000, help=episodes)
    add("--out", metavar="DIR", help="directory to record into or to continue")
    add("--verify", metavar="DIR", help="verify every byte of a directory instead")
    setting = "setting of the environment, as in --set episode_s=5"
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=setting)
    processes = "processes (default: one for each core, here %(default)s)"
    add("--workers", type=positive, default=len(os.sched_getaffinity(0)), help=processes)
    add(
        "--seed", type=int, default=0,
        help=f"episode i uses seed S + i; those from {VALIDATION_SEEDS_FROM} up are for "
        "evaluation (default %(default)s)",
    )  # fmt: skip
    add(
        "--after-success-steps", type=number(int, -1, 10**6), default=10, metavar="K",
        help="steps to record after the first success, or after the environment's expert_done "
        "(nothing is left to do) first holds; -1: to the episode's end (default %(default)s)",
    )  # fmt: skip
    add(
        "--noise", type=number(float, 0, 10), default=0.0, metavar="SCALE",
        help="standard deviation of noise on the executed actions, in a random half of the "
        f"episode's {SEGMENT_STEPS}-step segments, as a share of half the action's range; the "
        "recorded action is the expert's own (default %(default)s)",
    )  # fmt: skip
    add(
        "--valid-share", type=number(float, 0, 0.9), default=0.05, metavar="SHARE",
        help="share of the episodes held out in mask/valid (default %(default)s)",
    )  # fmt: skip
    return parser


def plan(arguments: argparse.Namespace) -> Job:
    """The recording job; raises UserError if the environment cannot be recorded."""
    env_id, seed, noise = arguments.env, arguments.seed, arguments.noise
    if env_id is None or arguments.out is None:
        raise UserError("give --env ID and --out DIR to record, or --verify DIR to check")
    last = seed + arguments.episodes - 1
    if not 0 <= seed <= last < VALIDATION_SEEDS_FROM:
        raise UserError(
            f"--seed {seed} with --episodes {arguments.episodes} uses the seeds "
            f"{seed} to {last}, where only 0 to {VALIDATION_SEEDS_FROM - 1} may be used"
        )
    settings = environments.resolved(env_id, settings_given(arguments.set))
    with environments.make_env(env_id, settings) as env:
        if not env.has_wrapper_attr("expert_action"):
            raise UserError(f"--env {env_id} has no expert_action() to record")
        space = env.action_space
        if not isinstance(space, spaces.Box):
            raise UserError(f"--env {env_id} has actions {space}, not a Box of numbers")
        if noise and not space.is_bounded():
            raise UserError(
                f"--noise {noise} is a share of the action's range, but the actions of "
                f"{env_id} have no bounds"
            )
        for key, value in settings.items():
            if not _is_json(value):
                raise UserError(
                    f"--set {key}: a recording's settings are finite numbers, text, and lists of "
                    f"them, got {value!r}"
                )
        recording = Recording(
            env_id=env_id,
            env=settings,
            seed=seed,
            after_done_steps=arguments.after_success_steps,
            noise=noise,
            observation=observation_spec(env.observation_space),
            action=ArraySpec.of(space),
            packages=decisive_packages(),
        )
    out = Path(arguments.out)
    return Job(out, settings, Recording.from_json(recording.to_json(), out))


def _is_json(value: Any) -> bool:
    """Whether a setting can be written as JSON, which has no infinity and no dates."""
    try:
        return bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return False
