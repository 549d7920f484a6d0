"""Settings of environments as the commands read them: defaults, help, and what belongs to a robot.

What is known of an environment is its description, see `envs.task`; others work too, with their
settings as given.
"""

from __future__ import annotations

from typing import Any

import envs
from training import config
from training.errors import UserError

__all__ = ["DEFAULT", "completed", "describe", "embodiment", "resolved", "settings_class"]

DEFAULT = envs.STEPPING_STONES
"""What scripted policies play in where no environment is named."""


def settings_class(env_id: str) -> type[Any] | None:
    """Class of an environment's settings; None where the environment alone knows them."""
    task = envs.find_task(env_id)
    return None if task is None else task.settings


def resolved(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with every default filled in; of an unknown environment as they are given.

    Raises UserError for an unknown setting or one out of its range.
    """
    known = settings_class(env_id)
    return settings if known is None else config.dump(config.validate(known, settings, env_id))


def completed(env_id: str, settings: Any) -> Any:
    """Settings that a file holds, with the defaults of what was added to the environment since;
    what is no settings of it, as it is."""
    try:
        return resolved(env_id, settings) if isinstance(settings, dict) else settings
    except UserError:
        return settings


def embodiment(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The part of a run's settings that comes with its policy; all of an unknown environment's."""
    task = envs.find_task(env_id)
    if task is None or task.settings is None:
        return dict(settings)
    return {key: value for key, value in settings.items() if key in task.embodiment}


def describe() -> str:
    """Every setting of every environment for --help: key, default, type, unit."""
    return "\n\n".join(
        f"settings of {task.env_id} for --set, with defaults and ranges:\n"
        f"{config.describe(task.settings)}"
        for task in envs.tasks()
        if task.settings is not None
    )
