"""The bi-manual sweeping task: two arms with spatulas, balls and bowls."""

from typing import TYPE_CHECKING, Any

from envs.bimanual_sweep.config import BimanualSweepConfig

if TYPE_CHECKING:
    from envs.bimanual_sweep.env import BimanualSweepEnv

__all__ = ["BimanualSweepConfig", "BimanualSweepEnv"]


def __getattr__(name: str) -> Any:
    """Import the environment on first access: its description does not need PyBullet."""
    if name == "BimanualSweepEnv":
        from envs.bimanual_sweep.env import BimanualSweepEnv

        return BimanualSweepEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
