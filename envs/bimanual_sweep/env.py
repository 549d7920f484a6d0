"""BimanualSweep-v0: two arms with spatulas sweep red balls into green bowls.

The task of Hybrid Random Features (Choromanski et al. 2022), section 4.4 and appendix K.2, after
Implicit Behavioral Cloning (Florence et al. 2021); their environment was never released.

Observation, a dictionary:
    rgb (500, 500, 3) uint8: the camera's image, rows from the top; `rgb_NAME` (height, width, 3)
        that of each of `extra_cameras`.
    pose (12,) float32: x, y, z (metres) and roll, pitch, yaw (radians) of the left tool, then the
    right (actual, not targets). A tool's frame lies at the middle of its blade's edge.
Action, Box (12,), decided every 0.1 s: changes of the same coordinates of the tools' targets, up to
    `step_m` and `step_rad`, to which they are clipped.
"""

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.bimanual_sweep.arm import SIDES, ArmModel
from envs.bimanual_sweep.camera import SweepCamera
from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.expert import SweepExpert
from envs.bimanual_sweep.scene import PHYSICS_S, Scene
from envs.bimanual_sweep.sight import geometry
from envs.bimanual_sweep.signals import signals
from envs.bimanual_sweep.targets import ToolTargets, check_starts
from envs.bullet import BulletClient, HoldsPhysics
from envs.display import has_display
from envs.geometry import Geometry
from envs.settings import check_render_mode, read_action, read_options, read_seed, read_settings
from envs.signals import Signal

Floats = NDArray[np.float64]
Observation = dict[str, NDArray[Any]]

DECISION_S = 0.1
"""Time between the policy's decisions, seconds."""
_PHYSICS_STEPS = round(DECISION_S / PHYSICS_S)
_POSE_LIMIT = 10.0


class BimanualSweepEnv(HoldsPhysics, gymnasium.Env[Observation, NDArray[np.float32]]):
    """Two arms, a table, balls and two bowls; see the module's text for the spaces.

    The reward of a decision is the fraction of the balls that lie in a bowl. An episode ends by
    truncation alone; then `reset` is due, though steps still move the arms. `info` holds
    `in_bowls` (that fraction), `success` (whether all are in a bowl now), `tracking_error_m`
    (largest distance of a tool from its target), `refused` (number of targets of this episode that
    were out of reach or too far ahead of their tool) and `arms_touch`.

    `reset(seed=...)` fixes balls, bowls and start poses. An environment can be neither copied nor
    pickled (TypeError); it is freed by `close`, or with the last reference to it.

    Args:
        render_mode: None, "rgb_array" or "human".
        settings: the fields of `BimanualSweepConfig`.

    Raises:
        ValueError: one sentence, for an unknown setting, one out of its range, or arms that cannot
            reach where their tools may start.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array", "human"] if has_display() else ["rgb_array"],
        "render_fps": round(1 / DECISION_S),
    }

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        check_render_mode(render_mode)
        config = self.config = read_settings(BimanualSweepConfig, settings)
        self.render_mode = render_mode
        shapes = {
            key: (one.height_px, one.width_px, 3) for key, one in config.cameras_by_key.items()
        }
        self.observation_space: spaces.Dict = spaces.Dict(  # type: ignore[assignment]
            {
                **{key: spaces.Box(0, 255, shape, np.uint8) for key, shape in shapes.items()},
                "pose": spaces.Box(-_POSE_LIMIT, _POSE_LIMIT, (12,), np.float32),
            }
        )
        self._largest = np.tile([config.step_m] * 3 + [config.step_rad] * 3, 2).astype(np.float32)
        self.action_space = spaces.Box(-self._largest, self._largest, dtype=np.float32)
        self._models = [ArmModel(config, side) for side in SIDES]
        check_starts(config, self._models)
        self._client = BulletClient(gui=render_mode == "human")
        try:
            self._camera = SweepCamera(config)
            self._extra = {
                f"rgb_{name}": SweepCamera(config, camera)
                for name, camera in config.extra_cameras.items()
            }
        except BaseException:
            self._client.close()  # nobody else can: there is no environment to close
            raise
        self._black = {key: np.zeros(shape, np.uint8) for key, shape in shapes.items()}
        self._scene: Scene | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode with new balls, bowls and poses; there are no `options`."""
        read_options(options)
        super().reset(seed=read_seed(seed))
        config, rng = self.config, self.np_random
        bowls_m = np.array([[-config.bowl_x_m, 0.0], [config.bowl_x_m, 0.0]])
        bowls_m += rng.uniform(-1, 1, (2, 2)) * config.bowl_jitter_m
        balls_m = _scatter(config, rng)
        jitter_m = rng.uniform(-1, 1, (2, 3)) * config.start_jitter_m
        self._scene = Scene(
            self._client,
            config,
            self._models,
            bowls_m,
            balls_m,
            images=self.config.images or self.render_mode is not None,
            visible=self.render_mode == "human",
        )
        self._targets = ToolTargets(config, self._models, jitter_m)
        for arm, joints in zip(self._scene.arms, self._targets.joints_rad, strict=True):
            arm.place(joints)
        if self.config.images or self.render_mode == "rgb_array":
            for camera in (self._camera, *self._extra.values()):
                camera.begin(self._scene)
        self._expert = SweepExpert(config, bowls_m)
        self._decisions = 0
        self._balls_m = self._scene.ball_positions_m()
        return self._observe(), self._info()

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Move for 0.1 s."""
        if self._scene is None:
            raise RuntimeError("reset must be called before step")
        change = read_action(action, 12)
        limit = self._largest.astype(np.float64)
        before = self._targets.joints_rad
        self._targets.move(np.clip(change, -limit, limit).reshape(2, 6), self._poses[:, :3])
        self._scene.advance(before, self._targets.joints_rad, _PHYSICS_STEPS)
        self._balls_m = self._scene.ball_positions_m()
        self._decisions += 1
        observation, info = self._observe(), self._info()
        done = self._decisions * DECISION_S >= self.config.episode_s - 1e-9
        return observation, info["in_bowls"], False, done, info

    @property
    def geometry(self) -> Geometry:
        """Positions and orientations of the cameras in the world."""
        return geometry(self.config)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Meaning of the numbers of observations and actions."""
        return signals()

    def expert_action(self) -> NDArray[np.float32]:
        """The scripted expert's action now; it knows where the balls are."""
        seen = self._expert_sees()
        change = self._expert.action(*seen)
        return np.clip(change.ravel().astype(np.float32), -self._largest, self._largest)

    @property
    def expert_done(self) -> bool:
        """Whether the expert has nothing left to do: no ball that it could still reach."""
        seen = self._expert_sees()
        return self._expert.done(*seen)

    def _expert_sees(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Targets, balls outside the bowls, and which of those lie on the table."""
        if self._scene is None:
            raise RuntimeError("reset must be called before expert_action")
        outside = ~self._scene.in_bowls(self._balls_m)
        on_table = self._scene.on_table(self._balls_m)
        return self._targets.poses, self._balls_m[outside], on_table[outside]

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override,unused-ignore]
        """The camera's image (height, width, 3); a live window shows itself."""
        if self.render_mode != "rgb_array" or self._scene is None:
            return None
        return self._camera.image(self._client)

    def close(self) -> None:
        """Disconnect from the physics; calling it again does nothing."""
        self._client.close()
        for camera in (self._camera, *self._extra.values()):
            camera.close()

    def _observe(self) -> Observation:
        assert self._scene is not None
        # Poses first: reading them settles the links that the image then shows.
        self._poses = np.array([np.concatenate(arm.tool_pose()) for arm in self._scene.arms])
        if self.config.images:
            cameras = {"rgb": self._camera, **self._extra}
            seen = {key: camera.image(self._client) for key, camera in cameras.items()}
        else:
            seen = {key: black.copy() for key, black in self._black.items()}
        return {**seen, "pose": self._poses.ravel().astype(np.float32)}

    def _info(self) -> dict[str, Any]:
        assert self._scene is not None
        fraction = float(self._scene.in_bowls(self._balls_m).mean())
        error = np.linalg.norm((self._poses - self._targets.poses)[:, :3], axis=1).max()
        return {
            "in_bowls": fraction,
            "success": fraction == 1.0,
            "tracking_error_m": float(error),
            "refused": self._targets.refused,
            "arms_touch": self._scene.arms_touch(),
        }


def _scatter(config: BimanualSweepConfig, rng: np.random.Generator) -> Floats:
    """(balls, 2) places that do not overlap, by rejection."""
    half = np.array(config.spawn_m)
    places: list[Floats] = []
    while len(places) < config.balls:
        place = rng.uniform(-half, half)
        apart = 2 * config.ball_radius_m + 0.001
        if all(np.linalg.norm(place - other) > apart for other in places):
            places.append(place)
    return np.array(places)
