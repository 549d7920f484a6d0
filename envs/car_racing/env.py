"""CarRacingRepeat-v0: Gymnasium's CarRacing-v3 with action repeat and two actions.

Observation: Box (96, 96, 3) uint8, the image of CarRacing-v3; its last 12 rows are indicators.
Action, Box(-1, 1, (2,)), to which it is clipped, for `action_repeat` frames of 20 ms:
    0  steering, right positive, up to `largest_steer`
    1  drive, to which `idle_drive` is added: gas where the sum is positive, up to `largest_gas`;
       brake where it is negative, up to `largest_brake`
The reward is the frames' sum: 1000 / tiles of track for each new tile, and -0.1 a frame.

AttentionAgent (Tang, Nguyen and Ha 2020, "Neuroevolution of self-interpretable agents") acts on
every frame instead. Needs the extra `box2d`.
"""

import math
import os
import warnings
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.car_racing.config import CarRacingConfig
from envs.settings import check_render_mode, read_action, read_options, read_seed, read_settings
from foveate_extras import require

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

Observation = NDArray[np.uint8]

_FPS = 50
_SIDE = 96
_COLOUR_STREAM = 1
_MOST_COLOUR_CHANGE = 0.2 * 255
_BAR_PX = 7  # AttentionAgent's 75 of 1000
_BAR_ROWS = 83  # above the indicators
_BLOB_ROW, _BLOB_COLUMN, _BLOB_RADIUS_PX = 30, 76, 6
_ROAD, _FIELD, _GRASS = (102, 102, 102), (102, 204, 102), (102, 230, 102)


class CarRacingEnv(gymnasium.Env[Observation, NDArray[np.float32]]):
    """A racing car seen from above; see the module's text for the spaces.

    `info` holds `tiles`, the share of the track's tiles that were visited, and `success`, whether
    the lap was finished.

    Args:
        render_mode: None, "rgb_array" or "human".
        settings: the fields of `CarRacingConfig`.

    Raises:
        ValueError: one sentence, for an unknown setting or one out of its range.
        foveate_extras.MissingExtraError: without the extra `box2d`.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": _FPS}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        check_render_mode(render_mode)
        self.config = read_settings(CarRacingConfig, settings)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": _FPS / self.config.action_repeat}
        self.observation_space = spaces.Box(0, 255, (_SIDE, _SIDE, 3), np.uint8)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        require("CarRacingRepeat-v0", "box2d")
        with warnings.catch_warnings():  # Box2D warns while it loads, and an error there crashes it
            warnings.simplefilter("ignore")
            from envs.car_racing.drawing import FastCarRacing
        self._game = FastCarRacing(render_mode=render_mode)
        self._frames = self._without = 0
        self._begun = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on a new track, which `seed` fixes; there are no `options`."""
        read_options(options)
        seed = read_seed(seed)
        super().reset(seed=seed)
        self._colour(seed)
        self._game.drawing = True
        image, _ = self._game.reset(seed=seed)
        self._frames = self._without = 0
        self._begun = True
        return self._distracted(image), self._info()

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Drive for `action_repeat` frames, or until the episode ends."""
        if not self._begun:
            raise RuntimeError("reset must be called before step")
        steer, drive = np.clip(read_action(action, 2), -1.0, 1.0)
        drive = np.clip(drive + self.config.idle_drive, -1.0, 1.0)
        gas, brake = max(drive, 0.0), max(-drive, 0.0)
        shares = self.config.largest_steer, self.config.largest_gas, self.config.largest_brake
        controls = np.array([steer, gas, brake]) * shares
        total, ended, truncated = 0.0, False, False
        for frame in range(self.config.action_repeat):
            last = frame == self.config.action_repeat - 1
            self._frames += 1
            truncated = self._frames >= self.config.episode_frames
            self._game.drawing = last or truncated
            image, reward, ended, _, _ = self._game.step(controls)
            total += float(reward)
            self._without = 0 if reward > 0 else self._without + 1
            ended = ended or self._without >= (self.config.patience_frames or math.inf)
            if ended or truncated:
                break
        if not self._game.drawing:
            self._game.drawing = True
            image = self._game.image()
        return self._distracted(image), total, ended, truncated and not ended, self._info()

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override,unused-ignore]
        """The game, (400, 600, 3); in a live window, None. Before the first `reset`: None."""
        if not self._begun or self.render_mode is None:
            return None
        image: NDArray[np.uint8] | None = self._game.render()
        return image if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Close the game; calling it again does nothing."""
        self._game.close()
        self._game.screen = None

    def _colour(self, seed: int | None) -> None:
        """Colours of track and grass: the game's, or changed ones, each channel on its own."""
        road, grass = np.zeros(3), np.zeros(3)
        if self.config.distraction == "colour":
            rng = self.np_random if seed is None else np.random.default_rng((seed, _COLOUR_STREAM))
            road, grass = rng.uniform(-_MOST_COLOUR_CHANGE, _MOST_COLOUR_CHANGE, (2, 3))
        self._game.road_color = np.clip(np.array(_ROAD) + road, 0, 255)
        self._game.bg_color = np.clip(np.array(_FIELD) + grass, 0, 255)
        self._game.grass_color = np.clip(np.array(_GRASS) + grass, 0, 255)

    def _distracted(self, image: Any) -> Observation:
        seen = np.array(image, np.uint8)
        if self.config.distraction == "bars":
            seen[:_BAR_ROWS, :_BAR_PX] = 0
            seen[:_BAR_ROWS, -_BAR_PX:] = 0
        if self.config.distraction == "blob":
            row, column = np.mgrid[:_SIDE, :_SIDE]
            squared = (row - _BLOB_ROW) ** 2 + (column - _BLOB_COLUMN) ** 2
            seen[squared <= _BLOB_RADIUS_PX**2] = (255, 0, 0)
        return seen

    def _info(self) -> dict[str, Any]:
        tiles = self._game.tile_visited_count / len(self._game.track)
        return {"tiles": tiles, "success": bool(tiles >= 1 or self._game.new_lap)}
