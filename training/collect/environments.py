"""Environments by id: their construction, settings, defaults and help.

An environment may have a description, see `envs.task`; others work too, with their settings
unchecked. For "module:Id" the module is imported first if the id comes from the user: from the
command line, their configuration, or Python.
"""

import importlib
import math
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

import envs
from training.collect import env_settings, tuples
from training.collect.checked import Checked, reason
from training.collect.env_settings import ForeignId
from training.command.errors import UserError
from training.io import config

DEFAULT = envs.STEPPING_STONES
"""Environment of scripted policies where `--env` is not given."""


def find_task(env_id: str) -> envs.Task | None:
    """The description of an environment, its module imported; None without any.

    Raises UserError if the module cannot be imported.
    """
    module = env_id.partition(":")[0] if ":" in env_id else ""
    if module and module not in sys.modules and not isinstance(env_id, ForeignId):
        try:
            importlib.import_module(module)
        except Exception as error:  # importing a module can raise anything
            raise UserError(
                f"cannot make the environment env_id = {env_id!r}: {reason(error)}"
            ) from None
    return envs.find_task(env_id)


def same(env_id: str, other: str) -> bool:
    """Whether two ids name the same environment, ignoring modules."""
    return env_id.rpartition(":")[2] == other.rpartition(":")[2]


def make_env(env_id: str, settings: dict[str, Any], **extra: Any) -> gymnasium.Env:
    """`gymnasium.make` with this project's environments registered, in the wrappers of
    `training.collect.env_settings`, everything that comes from it checked.

    Raises UserError if it fails, or if an untrusted file would import a module.
    """
    module = env_id.partition(":")[0]
    if isinstance(env_id, ForeignId) and module not in sys.modules:
        raise UserError(
            f"cannot make the environment env_id = {str(env_id)!r} of a checkpoint: it would "
            f"import {module}, which only --env or your configuration may request"
        )
    own, around = env_settings.split(settings)
    try:
        if around:
            from training.collect import wrappers  # late, as it loads PyTorch

            wrappers.register(around)
        if ":" in env_id:
            importlib.import_module(module)
        env = _made(env_id, own, extra)
        if around or isinstance(env.action_space, spaces.Dict | spaces.Tuple):
            from training.collect import wrappers

            env = wrappers.wrapped(env, around, env_id)
        return Checked(env)
    except UserError:
        raise
    except Exception as error:  # a constructor can raise anything
        raise UserError(
            f"cannot make the environment env_id = {str(env_id)!r}: {reason(error)}{_hint(error)}"
        ) from None


def _made(env_id: str, settings: dict[str, Any], extra: dict[str, Any]) -> gymnasium.Env:
    """The environment; where a list was refused that should have been a tuple, with tuples."""
    try:
        fitted = _fitted(env_id, settings)
        return gymnasium.make(env_id, disable_env_checker=True, **fitted, **extra)
    except TypeError as error:
        others = tuples.all_tuples(settings)
        if "tuple" not in str(error) or others == settings:
            raise
        return gymnasium.make(env_id, disable_env_checker=True, **others, **extra)


def _hint(error: Exception) -> str:
    unknown = gymnasium.error.NameNotFound | gymnasium.error.NamespaceNotFound
    if not isinstance(error, unknown):
        return ""
    return "; a package that registers it is imported by env_id = PACKAGE:ID or env_register"


def _fitted(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with a tuple in place of a list where the environment takes tuples."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    if spec is None or not any(isinstance(value, list | dict) for value in settings.values()):
        return settings
    entry = spec.entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    return tuples.with_tuples(creator, settings, spec.kwargs)


def step_s(env: gymnasium.Env, unknown: float = math.nan) -> float:
    """Simulated seconds per step, from the environment's `render_fps`, or `unknown`."""
    fps = (env.metadata or {}).get("render_fps")
    return 1 / fps if isinstance(fps, int | float) and 0 < fps < math.inf else unknown


def render_modes(env: gymnasium.Env) -> tuple[str, ...]:
    """The render modes of an environment."""
    return tuple((env.metadata or {}).get("render_modes") or ())


def settings_class(env_id: str) -> type[Any] | None:
    """The class of an environment's settings; None if it has no description."""
    task = find_task(env_id)
    return None if task is None else task.settings


def resolved(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with all defaults; an environment without a description keeps them as given.

    Raises UserError for an unknown setting or one out of its range.
    """
    known, (own, around) = settings_class(env_id), env_settings.split(settings)
    if known is not None:
        own = config.dump(config.validate(known, own, env_id))
    return env_settings.normal({**own, **around})


def check_effect(env_id: str, changes: Any, before: Any, after: dict[str, Any]) -> None:
    """Raise UserError for a changed setting that has no effect, by `without_effect` of the
    settings' class.

    Args:
        env_id: id of the environment.
        changes: settings that a user gave, as read.
        before: settings without them, as read.
        after: all settings with them.
    """
    known = settings_class(env_id)
    if known is None or not changes:
        return
    own, _ = env_settings.split(after)
    found, earlier = config.validate(known, own, env_id), completed(env_id, before or {})
    for name, other in getattr(found, "without_effect", {}).items():
        given = _at(changes, name)
        if given is not None and _at(after, name) != _at(earlier, name):
            raise UserError(
                f"{name} = {given} has no effect where {other} = {_at(after, other)}: "
                f"change {other}, or leave {name} out"
            )


def _at(settings: Any, name: str) -> Any:
    """The setting with a dotted name; None if it is not there."""
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings


def completed(env_id: str, settings: Any) -> Any:
    """The settings from a file, with defaults for those added to the environment since; invalid
    settings are returned unchanged.
    """
    try:
        return resolved(env_id, settings) if isinstance(settings, dict) else settings
    except UserError:
        return settings


def embodiment(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run that belong to its policy; of an undescribed environment all."""
    task = find_task(env_id)
    if task is None or task.settings is None:
        return dict(settings)
    kept = {*task.embodiment, *env_settings.SETTINGS}
    return {key: value for key, value in settings.items() if key in kept}


def other_robot(
    env: gymnasium.Env, env_id: str, trained: dict[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Settings of the robot and its cameras that differ between an open environment and a policy's
    training: both values, by name; empty where they are unknown."""
    task, spec = find_task(env_id), env.spec
    if task is None or task.settings is None or spec is None or not same(env_id, spec.id):
        return {}
    known = config.keys(task.settings)
    given = {key: value for key, value in spec.kwargs.items() if key in known}
    there, here = (embodiment(env_id, completed(env_id, one)) for one in (trained, given))
    return {
        key: (there[key], here[key])
        for key in task.embodiment
        if key in there and key in here and there[key] != here[key]
    }


def describe() -> str:
    """Every setting of every environment for --help: key, default, type, unit."""
    around = "\n".join(f"  {key}: {what}" for key, what in env_settings.SETTINGS.items())
    return f"settings of any environment for --set:\n{around}\n\n" + "\n\n".join(
        f"settings of {task.env_id} for --set, with defaults and ranges:\n"
        f"{config.describe(task.settings)}"
        for task in envs.tasks()
        if task.settings is not None
    )
