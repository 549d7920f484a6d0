"""The policies whose cost `training.flops` measures: runs, checkpoints, configurations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from torch import nn

import policies
from training.algorithms.registry import load_any_config
from training.algorithms.trainer import SHORTHANDS
from training.analysis.agents import EVALUATION_SEED, trained_in
from training.collect.environments import make_env
from training.io import checkpoint
from training.io.config import UserError, read_overrides


@dataclass(frozen=True)
class Target:
    """A policy to measure; `build` returns it for an open environment."""

    name: str
    env_id: str
    env_settings: dict[str, Any]
    build: Callable[[gymnasium.Env], nn.Module]


def targets_of(
    given: str, env_id: str | None, overrides: list[str], variants: Mapping[str, list[str]]
) -> list[Target]:
    """The policies for a command-line argument: one, or one per variant."""
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        if not variants:
            variants = {" ".join([path.name, *overrides]): overrides}
        found = [_configured(label, path, settings) for label, settings in variants.items()]
        for target in found:
            if env_id not in (None, target.env_id):
                raise UserError(f"--env {env_id}: {given} is for {target.env_id}")
        return found
    for option, used in (("--set", overrides), ("--vary", variants)):
        if used:
            raise UserError(f"{option} changes YAML configurations; {given} is a trained policy")
    file = checkpoint.resolve(given)
    trained = checkpoint.load(file).config
    return [
        Target(
            path.name or given,
            trained_in(given, trained.get("env_id", ""), env_id),
            trained.get("env", {}),
            lambda env: checkpoint.load_policy(file, env)[0],
        )
    ]


def _configured(name: str, path: Path, overrides: list[str]) -> Target:
    config = load_any_config(path, overrides)

    def build(env: gymnasium.Env) -> nn.Module:
        with checkpoint.fitting(f"{name}: its policy does not fit here"):
            return policies.build_for(config.policy, env, trusted=False)

    return Target(name, config.env_id, config.env, build)


def variants(given: str | None, overrides: list[str]) -> dict[str, list[str]]:
    """The overrides of each variant by label: --vary KEY=VALUE,... and those of --set.

    A feature map may be NAME:m:n, whose m and n replace those of --set.
    """
    if given is None:
        return {}
    key, _, text = given.partition("=")
    try:
        values, reason = read_overrides([f"values=[{text}]"])["values"], ""
    except UserError as error:
        values, reason = [], f" ({str(error).removeprefix('--set values')})"
    if not key or not values:
        raise UserError(f"--vary takes KEY=VALUE,VALUE,..., got {given!r}{reason}")
    by_label: dict[str, list[str]] = {}
    for value in values:
        label = value if isinstance(value, str) else json.dumps(value)
        if label in by_label:
            raise UserError(f"--vary {key}: {label} is given twice")
        own = _overrides(key, label)
        settings = [override.partition("=")[0] for override in own]
        kept = [o for o in overrides if not _sets(o, settings[1:])]
        twice = next((o for o in overrides if _sets(o, settings[:1])), None)
        if twice is not None:
            raise UserError(
                f"--vary {key} and --set {twice} are the same setting; give one of them"
            )
        by_label[label] = kept + own
    return by_label


def _sets(override: str, keys: list[str]) -> bool:
    """Whether a `key=value` is of one of these keys, shorthand or not."""
    given = override.partition("=")[0].strip()
    return SHORTHANDS.get(given, given) in [SHORTHANDS.get(key, key) for key in keys]


def _overrides(key: str, label: str) -> list[str]:
    section, dot, field = key.rpartition(".")
    if field != "feature_map":
        return [f"{key}={label}"]
    parts = label.split(":")
    if len(parts) > 3:
        raise UserError(f"--vary {key}: a feature map is NAME, NAME:m or NAME:m:n, got {label!r}")
    fields = (field, "num_features", "num_lambda_features")
    return [f"{section}{dot}{name}={part}" for name, part in zip(fields, parts, strict=False)]


def prepare(target: Target, device: str) -> tuple[Any, Any]:
    """The policy, and an observation of its environment."""
    env = make_env(target.env_id, target.env_settings)
    try:
        policy: Any = target.build(env).to(device)
        observation, _ = env.reset(seed=EVALUATION_SEED)
        policy.reset()
    finally:
        env.close()
    return policy, observation
