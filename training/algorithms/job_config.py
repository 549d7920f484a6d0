"""The keys that the configurations of all trainers share, and how a configuration is loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass

import envs
import policies
from training.collect import environments
from training.command.files import CONFIG, METRICS
from training.io import config as configuration
from training.io import trackers
from training.io.config import UserError
from training.io.overrides import Overrides

__all__ = [
    "SHORTHANDS",
    "STRICT",
    "JobConfig",
    "describe_job",
    "is_of_run",
    "load_job",
    "missing_keys",
    "resolved",
]

T = TypeVar("T")

STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
"""Of all configurations."""


@dataclass(frozen=True, config=STRICT)
class JobConfig:
    """The base configuration of a training run; each trainer has a subclass."""

    trainer: str = ""
    """Which trainer the file is for."""
    iterations: int = Field(default=100, ge=1, le=10**9)
    """Rows of metrics.csv, and checkpoints."""
    workers: int = Field(default=2, ge=1, le=4096)
    """Episodes run at the same time, each in a process; 1 needs no process but this."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of all that is random but the initial policy, which has `policy.init_seed`."""
    episode_s: float | None = None
    """Length of an episode, seconds: shorthand of `env.episode_s`."""
    feature_map: str | None = None
    """Attention's feature map: shorthand of `policy.feature_map`."""
    num_features: int | None = None
    """Random vectors m: shorthand of `policy.num_features`."""
    num_lambda_features: int | None = None
    """Random vectors n of a lambda coefficient: shorthand of `policy.num_lambda_features`."""
    env_id: str = envs.STEPPING_STONES
    """Gymnasium id of the environment ("module:Id-v0" imports the module first)."""
    env: dict[str, Any] = field(default_factory=dict)
    """Settings of the environment, keywords of `gymnasium.make`."""
    policy: policies.PolicySettings = policies.PolicyConfig()
    """The policy."""
    checkpoints_kept: int = Field(default=5, ge=1, le=10**9)
    """Latest checkpoints that are kept, besides the one before training."""
    tracker: str = "none"
    """What records the run's numbers beside TensorBoard: none, trackio, wandb, mlflow (each an
    extra), or a custom tracker, "module:Class" (docs/guide/trackers.md). Nothing leaves this
    machine."""

    @field_validator("tracker")
    @classmethod
    def _tracker_known(cls, name: str) -> str:
        return trackers.check_name(name)


SHORTHANDS = {
    "episode_s": "env.episode_s",
    "feature_map": "policy.feature_map",
    "num_features": "policy.num_features",
    "num_lambda_features": "policy.num_lambda_features",
}
"""Top-level keys, and the nested keys that they abbreviate."""

_BEFORE: dict[str, Any] = {"fit_after": None}
"""Keys that earlier versions lack, and the values that mean what those versions did."""


_OF_ENV = ("env", "curriculum", "episode_s")
"""Keys that belong to one environment, and are ignored for another one."""
_OF_POLICY = ("policy", "feature_map", "num_features", "num_lambda_features", "critic")
"""Keys that belong to one kind of policy."""


def load_job(cls: type[T], path: str | Path, overrides: Overrides) -> T:
    """A trainer's configuration, every default filled in; raises UserError if something is wrong.

    If `overrides` name another environment than the file, the file's environment settings and
    curriculum are ignored, in a shipped file the policy too; if they name another kind of policy,
    the file's policy settings are. "module:Class" in the policy's settings is imported, except
    from the file of a run.
    """
    data, changes = configuration.read_yaml(path), configuration.read_overrides(overrides)
    asked, own = changes.get("env_id"), data.get("env_id", getattr(cls, "env_id", ""))
    if isinstance(asked, str) and not environments.same(asked, str(own)):
        others = (*_OF_ENV, "policy") if _is_shipped(Path(path)) else _OF_ENV
        data = {key: value for key, value in data.items() if key not in others}
    of_run = is_of_run(path)  # an untrusted file
    if asked is not None or not of_run:
        environments.find_task(str(own if asked is None else asked))
    if _another_kind(data, changes):
        data = {key: value for key, value in data.items() if key not in _OF_POLICY}
    trusted = [changes] if of_run else [data, changes]
    _admit(trusted, configuration.source(path, overrides))

    source = configuration.source(path, overrides)
    names = partial(_names, cls)
    given = configuration.combine(cls, data, changes, path, overrides, SHORTHANDS, names)
    whole = _with_defaults(cls, configuration.dump(given), source)
    return configuration.validate(cls, whole, source)


def _another_kind(data: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Whether overrides select another kind of policy than the file."""
    before, after = (
        part["policy"] if isinstance(part.get("policy"), dict) else {} for part in (data, changes)
    )
    name = before.get("name", "implicit_attention")
    forms = {before.get("form"), after.get("form")} - {None}
    return after.get("name", name) != name or len(forms) > 1


def _admit(layers: Sequence[dict[str, Any]], source: str) -> None:
    """Import the custom policies and trackers named in the layers, using the last value of each
    key; raises UserError if one cannot be imported.
    """
    given: dict[str, Any] = {}
    tracker: Any = None
    for layer in layers:
        policy, tracker = layer.get("policy"), layer.get("tracker", tracker)
        given |= policy if isinstance(policy, dict) else {}
        if layer.get("feature_map") is not None:
            given["feature_map"] = layer["feature_map"]
    try:
        if isinstance(tracker, str):
            trackers.admit(tracker)
        if any(isinstance(value, str) and ":" in value for value in given.values()):
            from policies.common.own import admit  # imported late because it loads PyTorch

            admit(given)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None


def _is_shipped(path: Path) -> bool:
    """Whether a configuration comes with the package."""
    return path.resolve().is_relative_to(Path(str(resources.files("configs"))).resolve())


def is_of_run(path: str | Path) -> bool:
    """Whether a configuration is that of a run directory."""
    path = Path(path)
    return path.name == CONFIG and (path.parent / METRICS).exists()


def resolved(cls: type[Any], data: dict[str, Any], source: str) -> dict[str, Any]:
    """Plain data of a configuration that an earlier version may have written, every default of this
    one filled in; UserError names the `source` when something is wrong."""
    data = {**missing_keys(cls, data), **data}
    given = configuration.dump(configuration.validate(cls, data, source))
    whole = _with_defaults(cls, given, source)
    return configuration.dump(configuration.validate(cls, whole, source))


def _names(cls: type[Any], data: dict[str, Any]) -> list[str]:
    settings = _settings(str(data.get("env_id", getattr(cls, "env_id", ""))))
    return configuration.keys(cls) + (
        [] if settings is None else configuration.keys(settings, "env.")
    )


def _settings(env_id: str) -> type[Any] | None:
    """Class of an environment's settings, if it is known without importing anything."""
    task = envs.find_task(env_id)
    return None if task is None else task.settings


def _with_defaults(cls: type[Any], data: dict[str, Any], source: str) -> dict[str, Any]:
    settings = _settings(data["env_id"])
    if settings is not None:
        names = _names(cls, data)
        env = configuration.validate(settings, data["env"], source, "env.", names)
        data["env"] = configuration.dump(env)
    configuration.fill_shorthands(data, SHORTHANDS, source)
    return data


def missing_keys(cls: type[JobConfig], known: Collection[str]) -> dict[str, Any]:
    """Values for the keys of `cls` that are missing in a configuration of an earlier version."""
    fields = cls.__dataclass_fields__
    return {k: value for k, value in _BEFORE.items() if k in fields and k not in known}


def describe_job(cls: type[Any]) -> str:
    """Every field for --help, and those of its default environment: key, default, type, unit."""
    env = configuration.describe(_settings(cls.env_id), "env.")
    return f"{configuration.describe(cls)}\n{env}"
