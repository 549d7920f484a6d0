"""RecordedSpaces-v0: observation and action spaces of a robot for which there is no simulator.

A policy can be built, cloned from demonstrations (`training.bc`) and exported for these spaces.
Observations are drawn from the observation space at random, whatever the actions are; the entry
`spaces_only` of `metadata` says so, and `training.collect.episode.run_episode` plays no episode.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.recorded_spaces.config import PartConfig, RecordedSpacesConfig
from envs.settings import read_seed, read_settings

_STEPS = 100


class RecordedSpacesEnv(gymnasium.Env[Any, Any]):
    """See the module; `settings` are the fields of `RecordedSpacesConfig`."""

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        config = self.config = read_settings(RecordedSpacesConfig, settings)
        if not config.observation or config.action is None:
            raise ValueError(
                "RecordedSpaces-v0 needs an observation and an action, which training.bc fills in "
                "where demonstrations are given"
            )
        self.metadata = {"render_modes": [], "spaces_only": True}
        if config.rate_hz is not None:
            self.metadata["render_fps"] = config.rate_hz
        self.render_mode = None
        self.observation_space = spaces.Dict(
            {name: _box(config.observation[name]) for name in sorted(config.observation)}
        )
        self.action_space = _box(config.action)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=read_seed(seed))
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.observation_space.sample(), 0.0, False, self._steps >= _STEPS, {}


def _box(part: PartConfig) -> spaces.Box:
    dtype: Any = np.dtype(part.dtype).type
    low, high = (
        np.full(part.shape, other if bounds is None else bounds[0], dtype)
        if bounds is None or len(bounds) == 1
        else np.array(bounds).reshape(part.shape).astype(dtype)
        for bounds, other in ((part.low, -np.inf), (part.high, np.inf))
    )
    return spaces.Box(low, high, dtype=dtype)
