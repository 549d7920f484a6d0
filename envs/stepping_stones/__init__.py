"""The stepping-stones task: a quadruped with two depth cameras on stones with gaps."""

from typing import TYPE_CHECKING, Any

from envs.stepping_stones.config import SteppingStonesConfig

if TYPE_CHECKING:
    from envs.stepping_stones.env import SteppingStonesEnv

__all__ = ["SteppingStonesConfig", "SteppingStonesEnv"]


def __getattr__(name: str) -> Any:
    """Import the environment on first access: its description does not need PyBullet."""
    if name == "SteppingStonesEnv":
        from envs.stepping_stones.env import SteppingStonesEnv

        return SteppingStonesEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
