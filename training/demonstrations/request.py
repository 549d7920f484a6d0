"""The recording that the command line of `training.demos` requests."""

import argparse
import json
from pathlib import Path
from typing import Any

from gymnasium import spaces

from training.analysis.agents import settings_given
from training.collect import environments
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.command.errors import UserError
from training.demonstrations.format import (
    ArraySpec,
    Recording,
    decisive_packages,
    observation_spec,
)
from training.demonstrations.recorder import Job


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
