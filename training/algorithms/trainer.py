"""A trainer: the keys that all configurations share, and its description for commands and studies.

Nothing here loads PyTorch, so that --help does not wait for it.
"""

import copy
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass

import envs
import policies
from training.collect import env_settings, environments
from training.collect.callables import import_object
from training.command.files import CONFIG, METRICS
from training.io import config as configuration
from training.io import trackers
from training.io.config import UserError
from training.io.overrides import Overrides, source

T = TypeVar("T")

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Pydantic settings of all configurations."""


@dataclass(frozen=True, config=STRICT)
class JobConfig:
    """The base configuration of a training run; each trainer has a subclass."""

    trainer: str = ""
    """Which trainer the file is for."""
    iterations: int = Field(default=100, ge=1, le=10**9)
    """Number of iterations, each with a row of metrics.csv and a checkpoint."""
    workers: int = Field(default=2, ge=1, le=4096)
    """Episodes run at the same time, each in a process; 1 uses this process."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of everything random except the initial policy, whose seed is `policy.init_seed`."""
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
    """Tracker that records the run's metrics beside TensorBoard: none, trackio, wandb, mlflow (each
    an extra), or a custom tracker, "module:Class" (docs/guide/trackers.md). Nothing leaves this
    machine."""

    @field_validator("tracker")
    @classmethod
    def _tracker_known(cls, name: str) -> str:
        return trackers.check_name(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """A trainer; several of the same name differ in the policies that they accept."""

    name: str
    """The value of `trainer` in a YAML file; "module:NAME" for a custom trainer."""
    config: type[JobConfig]
    """Class of its configurations, whose `trainer` is its name by default."""
    algorithm: str | Callable[[], type[Any]]
    """Its subclass of `training.runner.Algorithm`, as "module:Class" or by a function that imports
    it, so that --help does not wait for PyTorch."""
    summary: str = ""
    """Description in --help."""
    preset: str = ""
    """File among the package's configs that its command reads when none is given."""
    where: str = ""
    """Which policies it accepts, if other trainers of its name accept others."""
    free_on_resume: tuple[str, ...] = ("iterations", "workers")
    """Keys that a resumed run may change, besides `tracker`."""
    check: Callable[[Any, str], object] | None = None
    """Raises UserError, which names a source, for a configuration that no type forbids."""
    in_processes: bool = False
    """Whether several processes of torchrun may train together."""
    clones_recordings: bool = False
    """Whether it learns from recorded demonstrations alone; its algorithm then has the class method
    `identity(config)`."""
    following: Callable[[Any, Path], list[tuple[str, str]]] | None = None
    """Commands to run next, and their purpose; None: show the curves, train longer."""

    @property
    def command(self) -> str:
        """Module of its command."""
        module = self.name.partition(":")[0]
        return module if ":" in self.name else f"training.{module}"

    @property
    def free(self) -> tuple[str, ...]:
        """All keys that a resumed run may change."""
        return (*self.free_on_resume, "tracker")

    def has(self, key: str) -> bool:
        """Whether its configurations have a key."""
        return key in {part.name for part in fields(self.config)}

    def load(self, path: str | Path, overrides: Overrides = ()) -> Any:
        """Load the configuration with all defaults; raises UserError if it is invalid."""
        config = load_job(self.config, path, overrides)
        if self.check is not None:
            self.check(config, source(path, overrides))
        return config

    @property
    def _class(self) -> Any:
        """The algorithm's class, imported."""
        return (
            import_object(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm()
        )

    def columns(self, env_id: str) -> tuple[str, ...]:
        """Columns of metrics.csv."""
        return tuple(self._class.columns(env_id))

    def prepare(self, config: Any, start: Any = None) -> Any:
        """The algorithm at the beginning of a run, or at the checkpoint `start`; raises UserError
        if it cannot train so.
        """
        return self._class(config, start)

    def train(self, job: Any, run: Path) -> None:
        """Train the algorithm returned by `prepare` in a run directory."""
        import torch

        from training.runner import run_loop

        torch.set_num_threads(getattr(job.config, "threads", 1))
        run_loop(job, run)

    def identity(self, config: Any) -> str:
        """A fingerprint of the demonstrations that a run would clone."""
        return str(self._class.identity(config))


SHORTHANDS = {
    "episode_s": "env.episode_s",
    "feature_map": "policy.feature_map",
    "num_features": "policy.num_features",
    "num_lambda_features": "policy.num_lambda_features",
}
"""Top-level keys, and the nested keys that they abbreviate."""

_BEFORE: dict[str, Any] = {"fit_after": None}
"""Keys that earlier versions lack, and the values that mean what those versions did."""
_OF_ENV = ("env", *env_settings.SETTINGS, "curriculum", "episode_s")
"""Keys that belong to one environment, and are ignored for another one."""
_OF_PRESET = ("policy", "searcher")
"""Further keys of a shipped file that are ignored for another environment; the searcher unless a
part of it is given."""
_OF_POLICY = ("policy", "feature_map", "num_features", "num_lambda_features", "critic")
"""Keys that belong to one kind of policy."""
_OF_TASK = ("trainer", "env_id", *_OF_ENV, "workers", "seed")
"""Keys of a shipped file for another kind of policy that hold for a cnn too, whose training needs
other numbers than that of a few hundred parameters."""


def load_job(cls: type[T], path: str | Path, overrides: Overrides) -> T:
    """A trainer's configuration, every default filled in; raises UserError if something is wrong.

    If `overrides` name another environment than the file, the file's environment settings and
    curriculum are ignored, in a shipped file the policy and the searcher too, unless it registers a
    suite that has both; if they name another kind of policy, the file's policy settings are, and if
    that is cnn all of a shipped file but the environment. "module:Class" in the policy's settings
    is imported, except from the file of a run.
    """
    data, changes = configuration.read_yaml(path), configuration.read_overrides(overrides)
    asked, own = changes.get("env_id"), data.get("env_id", getattr(cls, "env_id", ""))
    suite = env_settings.REGISTER in data and _suite(str(asked)) == _suite(str(own))
    if isinstance(asked, str) and not environments.same(asked, str(own)) and not suite:
        others = {*_OF_ENV, *(_OF_PRESET if _is_shipped(Path(path)) else ())}
        others -= {"searcher"} & changes.keys()
        data = {key: value for key, value in data.items() if key not in others}
    of_run = is_of_run(path)  # an untrusted file
    if asked is not None or not of_run:
        environments.find_task(str(own if asked is None else asked))
    if _another_kind(data, changes):
        convolves = _is_shipped(Path(path)) and changes["policy"].get("name") == "cnn"
        data = {
            key: value for key, value in data.items()
            if key not in _OF_POLICY and (key in _OF_TASK or not convolves)
        }  # fmt: skip
    where = source(path, overrides)
    _move(data, str(path))
    _move(changes, "--set")
    _admit([changes] if of_run else [data, changes], where)
    names = partial(_names, cls)
    before = copy.deepcopy(data.get("env"))
    given = configuration.combine(cls, data, changes, path, overrides, SHORTHANDS, names)
    found = _completed(cls, given, where)
    if not isinstance(overrides, Mapping):  # a study's stage may set what some variants leave out
        plain: Any = found
        environments.check_effect(plain.env_id, changes.get("env"), before, plain.env)
    return found


def resolved(cls: type[Any], data: dict[str, Any], source: str) -> dict[str, Any]:
    """Plain data of a configuration that an earlier version may have written, every default of this
    one filled in; UserError names the `source` when something is wrong."""
    given = configuration.validate(cls, {**missing_keys(cls, data), **data}, source)
    return configuration.dump(_completed(cls, given, source))


def _completed(cls: type[T], config: T, source: str) -> T:
    """The configuration with every default of its environment and its shorthands filled in."""
    data = configuration.dump(config)
    settings, (own, around) = _settings(data["env_id"]), env_settings.split(data["env"])
    if settings is not None:
        names = _names(cls, data)
        own = configuration.dump(configuration.validate(settings, own, source, "env.", names))
    try:
        data["env"] = env_settings.normal({**own, **around})
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    configuration.fill_shorthands(data, SHORTHANDS, source)
    return configuration.validate(cls, data, source)


def _move(data: dict[str, Any], where: str) -> None:
    """Put the top-level keys of `env_settings` into `env`, in place."""
    keys = {key: f"env.{key}" for key in env_settings.SETTINGS if data.get(key) is not None}
    configuration.fill_shorthands(data, keys, where)
    for key in env_settings.SETTINGS:
        data.pop(key, None)


def _suite(env_id: str) -> str:
    """The namespace of an environment's id, or its first word: ALE of ALE/Pong-v5, MiniGrid of
    MiniGrid-DoorKey-5x5-v0."""
    return re.split("[/-]", env_id.rpartition(":")[2])[0]


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
            from policies.common.plugins import admit  # imported late because it loads PyTorch

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


def _names(cls: type[Any], data: dict[str, Any]) -> list[str]:
    settings = _settings(str(data.get("env_id", getattr(cls, "env_id", ""))))
    names = [*configuration.keys(cls), *env_settings.SETTINGS]
    return names if settings is None else names + configuration.keys(settings, "env.")


def _settings(env_id: str) -> type[Any] | None:
    """Class of an environment's settings, if it is known without importing anything."""
    task = envs.find_task(env_id)
    return None if task is None else task.settings


def missing_keys(cls: type[JobConfig], known: Collection[str]) -> dict[str, Any]:
    """Values for the keys of `cls` that are missing in a configuration of an earlier version."""
    ours = {part.name for part in fields(cls)}
    return {key: value for key, value in _BEFORE.items() if key in ours and key not in known}


def describe_job(cls: type[Any]) -> str:
    """Every field for --help, and those of its default environment: key, default, type, unit."""
    env = configuration.describe(_settings(cls.env_id), "env.")
    around = "\n".join(f"  {key}: {what}" for key, what in env_settings.SETTINGS.items())
    return f"{configuration.describe(cls)}\n{around}\n{env}"
