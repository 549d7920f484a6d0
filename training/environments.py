"""The environments whose settings the commands know: defaults, help, and what belongs to a robot.

A new environment is a line in `ENVIRONMENTS`; others work too, with their settings as given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import envs
from envs.bimanual_sweep import BimanualSweepConfig
from envs.stepping_stones import SteppingStonesConfig
from training import config

__all__ = ["ENVIRONMENTS", "Environment", "describe", "embodiment", "resolved"]


@dataclass(frozen=True)
class Environment:
    """What is known of an environment beside its Gymnasium id."""

    settings: type[Any]
    """Class of its settings, the keywords of `gymnasium.make`."""
    embodiment: tuple[str, ...]
    """Settings that say what a policy sees and what its actions mean: these alone come with it. The
    others are the task, the same for every policy: scene, noise, length and reward, which training
    may have made easier."""


ENVIRONMENTS = {
    envs.STEPPING_STONES: Environment(
        SteppingStonesConfig,
        (
            "front_camera",
            "belly_camera",
            "camera_far_m",
            "foothold_forward_m",
            "foothold_lateral_m",
            "lateral_speed_m_s",
        ),
    ),
    envs.BIMANUAL_SWEEP: Environment(
        BimanualSweepConfig,
        (
            "image_px",
            "images",
            "camera_eye_m",
            "camera_target_m",
            "camera_fov_deg",
            "step_m",
            "step_rad",
            "arm_distance_m",
            "handle_m",
            "blade_width_m",
            "blade_clearance_m",
            "blade_length_m",
            "blade_plate_m",
            "blade_slope_rad",
            "wall_height_m",
            "wall_ahead_m",
        ),
    ),
}
"""By Gymnasium id. Of the sweep, balls, bowls, jitter, length and a frozen arm are the task."""


def resolved(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with every default filled in; of an unknown environment as they are given.

    Raises UserError for an unknown setting or one out of its range.
    """
    if env_id not in ENVIRONMENTS:
        return settings
    return config.dump(config.validate(ENVIRONMENTS[env_id].settings, settings, env_id))


def embodiment(env_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The part of a run's settings that comes with its policy; all of an unknown environment's."""
    known = ENVIRONMENTS.get(env_id)
    return {k: v for k, v in settings.items() if known is None or k in known.embodiment}


def describe() -> str:
    """Every setting of every environment for --help: key, default, type, unit."""
    return "\n\n".join(
        f"settings of {env_id} for --set, with defaults and ranges:\n"
        f"{config.describe(known.settings)}"
        for env_id, known in ENVIRONMENTS.items()
    )
