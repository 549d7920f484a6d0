"""SteppingStones-v0: a quadruped that must see where to step.

Observation, a dictionary of float32 arrays:
    camera_pose (6 cameras,), with `camera_pose_told`: optical centre, metres; pitch, yaw and roll,
        radians.
    depth (cameras, height, width): planar depth of the cameras, metres; of the default ones, front
        and belly, (2, 24, 32). Where their sizes differ, depth_front (height, width) and so on.
    appearance (cameras, height, width, d), on felt ground: numbers that the tile in each pixel
        shows; appearance_front (height, width, d) and so on.
    proprio (45,), as the robot's sensors and estimator give it, in the level frame:
        0-2    roll, pitch, yaw, radians
        3-5    angular velocity, radians a second
        6-8    velocity, metres a second
        9      height above the standing toes' centres, metres
        10-21  toe centres FR, FL, RR, RL (x, y, z), metres
        22-29  nominal footholds (x, y) from the base if each leg lifted off now, metres
        30-31  sine and cosine of the gait's phase (leg FR)
        32-35  foot contacts, 0 or 1
        36-44  the previous action; where the path turns also 45, its yaw rate
    and after it, where the path turns or leads back, five numbers:
        0-1    odometry, the velocity summed: x and y in the world, metres
        2-3    sine and cosine of yaw
        4      commanded speed ahead, metres a second
Action, Box(-1, 1, (9,)), to which it is clipped, decided every 50 ms, or with `decide=lift_off` at
each lift-off:
    0-3  forward foothold offsets FR, FL, RR, RL; 1 is `foothold_forward_m`
    4-7  lateral foothold offsets; 1 is `foothold_lateral_m`
    8    lateral body speed, left positive; 1 is `lateral_speed_m_s`
    9    where the path turns, yaw rate, left positive; 1 is `yaw_rate_rad_s`
With `action_legs=lifting`, Box(-1, 1, (3,)):
    0-1  forward foothold offsets of the front and the hind leg that lift off
    2    lateral body speed
A leg takes the offset that holds when it lifts off (legs FL and RR at 0.05 s, FR and RL at 0.30 s,
then every 0.5 s); lift-offs coincide with decisions. With `decide=lift_off` the first observation
is that of the first lift-off, and a decision holds for 0.25 s.
"""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.bullet import BulletClient, HoldsPhysics
from envs.compiled import compiled
from envs.display import has_display
from envs.geometry import Geometry, Mirror
from envs.settings import check_render_mode, read_action, read_options, read_seed, read_settings
from envs.signals import Signal
from envs.stepping_stones.config import ALL_LEGS, DECISION_S, SteppingStonesConfig
from envs.stepping_stones.course import Course, draw_course
from envs.stepping_stones.distraction import draw_clutter
from envs.stepping_stones.felt_ground import Appearances, FeltStones
from envs.stepping_stones.locomotion import CONTROL_S, FootholdCommand
from envs.stepping_stones.robot import PHYSICS_S, Laikago, RobotState
from envs.stepping_stones.scenery import Scenery
from envs.stepping_stones.sensors import Sensors
from envs.stepping_stones.sight import Sight
from envs.stepping_stones.signals import leg_name, mirror, reward_terms, signals
from envs.stepping_stones.terrain import FLOOR_M, Boxes

Observation = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]

_TICKS = round(DECISION_S / CONTROL_S)
_PHYSICS_STEPS = round(CONTROL_S / PHYSICS_S)
_FRAME_TICKS = round(0.025 / CONTROL_S)
_PROPRIO = 36  # without what depends on the settings
_PROPRIO_LIMIT = 50.0  # only a tumbling robot's estimates come near it
_TWIST_SIZE, _TWIST_LIMIT = 5, 1000.0  # of odometry, which drifts
_LOWEST_BASE_M, _STEEPEST_ROLL_RAD, _STEEPEST_PITCH_RAD = 0.25, 0.6, 1.0
_MARGIN_CLIP_M = 0.05
_TERRAIN_STREAM = 1
_TERRAINS_A_WORLD = 100  # PyBullet keeps the shapes of removed bodies: 55 kB a terrain ...
_BOXES_A_TERRAIN = 20  # ... or so many boxes of clutter, where people see them
_TALLEST_BASE_M, _REACH_SLACK = 0.55, 1.2  # margin for the cameras of a rocking robot


class SteppingStonesEnv(HoldsPhysics, gymnasium.Env[Observation, NDArray[np.float32]]):
    """A Laikago trots over stones with gaps; see the module's text for the spaces.

    The reward of a decision is the progress along the path in the commanded direction, metres, at
    most `reward_speed_m_s` times 50 ms, plus `margin_reward` times the mean margin of the footholds
    that lifting legs take (from -1, 5 cm or more inside a gap, to 1, 5 cm or more inside a stone)
    times the share of `reward_speed_m_s` reached, plus `centre_reward` for each 5 cm nearer to the
    middle of the path, less `effort_cost` times the mean square of the offsets of lifting legs.
    `info["reward_terms"]` holds these terms, those of legs apart, and `reward_terms` says which
    numbers of the action each of them judges. A fall terminates the episode, and with `walk_back`
    so does coming back. `info` holds `distance_m` (along the path; with `walk_back` out and back),
    `fell` and `success`: no fall until the end and at least `success_distance_m`, or with
    `walk_back` back.

    The environment ends an episode by these conditions or after `episode_s`. Where a wrapper ends
    episodes earlier, as `gymnasium.make(..., max_episode_steps=30)` does, `success` stays False:
    `episode_s=1.5` ends them there and lets them succeed. Then `reset` is due, though steps still
    move the robot, which stays fallen if it fell.

    `reset(seed=...)` fixes terrain, noise and distraction; `options` may hold `terrain_seed`, which
    fixes the stones alone, and `gap_m`, which replaces the configured range for this episode. With
    decide = lift_off a step calls `on_frame`, if a caller has set it, `frames_a_step` times, every
    25 ms, so that a video can be drawn within it (fewer times where the robot falls). An
    environment can be neither copied nor pickled (TypeError); it is freed by `close`, or with the
    last reference to it.

    Args:
        render_mode: None, "rgb_array" or "human".
        settings: the fields of `SteppingStonesConfig`.

    Raises:
        ValueError: one sentence, for an unknown setting or one out of its range.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array", "human"] if has_display() else ["rgb_array"],
        "render_fps": round(1 / DECISION_S),
    }

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        check_render_mode(render_mode)
        self.config = read_settings(SteppingStonesConfig, settings)
        self.render_mode = render_mode
        self._sight = Sight(self.config)
        extra = _TWIST_SIZE if self.config.commands_twist else 0
        most = np.full(_PROPRIO + self.config.action_size + extra, _PROPRIO_LIMIT)
        most[_PROPRIO + self.config.action_size :] = _TWIST_LIMIT
        self._proprio_limits = most
        limit = most.astype(np.float32)
        proprio = spaces.Box(-limit, limit, dtype=np.float32)
        self.observation_space: spaces.Dict = spaces.Dict(  # type: ignore[assignment]
            {**self._sight.spaces, "proprio": proprio}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (self.config.action_size,), np.float32)
        self._terms = reward_terms(self.config)
        self._efforts = [name for name in self._terms if name.startswith("effort")]
        self._end_s = self.config.length_s - 1e-9
        self._intervals = round(self.config.decision_s / DECISION_S)
        self.metadata = {**self.metadata, "render_fps": round(1 / self.config.decision_s)}
        self.frames_a_step = self._intervals * _TICKS // _FRAME_TICKS if self._intervals > 1 else 1
        self.on_frame: Callable[[], None] | None = None
        self._course: Course | None = None
        self._client = BulletClient(gui=render_mode == "human")
        try:
            self._begin_world()
        except BaseException:
            self._client.close()  # the caller has no environment to close
            raise

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on new stones; see the class for `options`."""
        given = read_options(options, ("terrain_seed", "gap_m"))
        terrain_seed = read_seed(given.pop("terrain_seed", None), "terrain_seed")
        gap_m = read_settings(SteppingStonesConfig, given).gap_m if given else self.config.gap_m
        seed = read_seed(seed)
        super().reset(seed=seed)
        terrain_seed = seed if terrain_seed is None else terrain_seed
        terrain_rng = self.np_random
        if terrain_seed is not None:  # a stream of its own: noise must not echo the stones
            terrain_rng = np.random.default_rng((terrain_seed, _TERRAIN_STREAM))
        self._course = draw_course(self.config, gap_m, terrain_rng)
        self._stones = self._course.stones
        clutter_rng, lying_rng = self.np_random.spawn(2)  # which draws nothing from np_random
        clutter = draw_clutter(self.config.clutter_per_m, self._stones, clutter_rng)
        self._low_m, self._high_m, self._yaw_rad = self._course.boxes(clutter)
        self._sight.begin(lying_rng, clutter_rng, self._appearances())
        behind_m, ahead_m = self._sight.reach_m(_TALLEST_BASE_M - FLOOR_M)
        self._reach_m = max(1.5, _REACH_SLACK * behind_m), max(1.8, _REACH_SLACK * ahead_m)
        self._sensors = Sensors(self.config.sensor_noise, self.np_random)
        if self._terrains >= _TERRAINS_A_WORLD:
            self._begin_world()
        self._terrains += 1 + (len(clutter[0]) // _BOXES_A_TERRAIN if self._scenery else 0)
        self._state = self._robot.place(self._stones, self._sensors.posture_error_rad())
        if self._scenery:
            self._scenery.dress(self._robot.stones, self._all_boxes, self._stones)
        self._locomotion = self._course.begin(self._sensors.measure(self._state))
        self._course.advance(self._state.position_m)
        self._walked, self._fell = 0, False
        self._previous_action = np.zeros(self.config.action_size)
        if self._intervals > 1:
            wide = self._for_all_legs(self._previous_action)
            self._walk(self._course.command(wide))  # to the first lift-off
            self._course.advance(self._state.position_m)
        return self._observe(), self._info(fell=False)

    def _appearances(self) -> Appearances | None:
        """What the cameras see of the tiles of felt ground; None of other ground."""
        if not isinstance(self._stones, FeltStones):
            return None
        return Appearances(self.config.felt_ground, self._stones, self.np_random.spawn(1)[0])

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Walk until the next decision."""
        if self._course is None:
            raise RuntimeError("reset must be called before step")
        chosen = read_action(action, self.config.action_size).clip(-1.0, 1.0)
        self._previous_action = chosen
        wide = self._for_all_legs(chosen)
        terms = dict.fromkeys(self._terms, 0.0)
        full_m, reward = self.config.reward_speed_m_s * DECISION_S, 0.0
        aside_m = abs(self._course.aside_m(self._state.position_m))
        for _ in range(self._intervals):
            command = self._course.command(wide)
            lifting = self._locomotion.about_to_lift()
            margins = self._margins(command, lifting) if lifting else np.zeros(1)
            fell = self._walk(command, self.on_frame if self.frames_a_step > 1 else None)
            progress = min(self._course.advance(self._state.position_m), full_m)
            # Scaled by speed: marching on the spot, where no foothold is unsafe, must earn nothing.
            share = max(progress / full_m, 0.0)
            earned = progress
            if lifting:
                earned += self.config.margin_reward * (sum(margins.tolist()) / len(margins)) * share
                self._judge_legs(terms, lifting, wide, self.config.margin_reward * share * margins)
            reward += earned
            terms["progress"] += progress
            done = self._course.is_over or self._walked * DECISION_S >= self._end_s
            if fell or done:
                break
        nearer_m = aside_m - abs(self._course.aside_m(self._state.position_m))
        terms["centre"] = self.config.centre_reward * nearer_m / _MARGIN_CLIP_M
        reward += terms["centre"] + sum(terms[name] for name in self._efforts)
        ended = fell or self._course.is_over
        info = {**self._info(fell, done), "reward_terms": terms}
        return self._observe(), float(reward), ended, done and not ended, info

    def _walk(self, command: FootholdCommand, on_frame: Callable[[], None] | None = None) -> bool:
        """Walk for 50 ms; returns whether the robot has fallen."""
        fell = False
        for tick in range(1, _TICKS + 1):
            try:
                torques = self._locomotion.torques(command)
            except ValueError:  # the stance problem degenerates only when the robot tumbles
                fell = True
                break
            self._robot.advance(torques, _PHYSICS_STEPS)
            self._state = self._robot.read()
            self._locomotion.sense(self._sensors.measure(self._state))
            fell = self._has_fallen(self._state)
            if fell:
                break
            if on_frame is not None and tick % _FRAME_TICKS == 0:
                on_frame()
        self._walked += 1
        self._fell = self._fell or fell  # a robot that moves after a fall has still fallen
        return self._fell

    def _for_all_legs(self, action: Floats) -> Floats:
        """An action's numbers for all legs."""
        if self.config.action_legs == "all":
            return action
        wide, lifting = np.zeros(ALL_LEGS), self._locomotion.about_to_lift()
        wide[lifting] = action[: len(lifting)]  # none, in steps after a fall
        wide[ALL_LEGS - 1] = action[2]
        return wide

    def _margins(self, command: FootholdCommand, lifting: list[int]) -> Floats:
        """Margins of the footholds of lifting legs, from -1 to 1."""
        assert self._course is not None
        inside_m = self._course.margin_m(command, self._state)[lifting]
        return (inside_m / _MARGIN_CLIP_M).clip(-1, 1)

    def _judge_legs(
        self, terms: dict[str, float], lifting: list[int], action: Floats, margins: Floats
    ) -> None:
        """Add the terms of lifting legs, whose mean is part of the reward."""
        for leg, margin in zip(lifting, margins.tolist(), strict=False):
            name = leg_name(self.config, leg)
            terms[f"margin_{name}"] += margin / len(lifting)
            squares = float(action[leg] ** 2 + action[leg + 4] ** 2)
            terms[f"effort_{name}"] -= self.config.effort_cost * squares / len(lifting)

    @property
    def reward_terms(self) -> dict[str, tuple[int, ...]]:
        """The terms of the reward, and the numbers of the action that each of them judges."""
        return self._terms

    @property
    def mirror(self) -> Mirror | None:
        """Left and right exchanged in observations and actions; None where the path turns or leads
        back, or a camera looks to a side."""
        return mirror(self.config, dict(self.geometry.cameras))

    @property
    def geometry(self) -> Geometry:
        """Poses and rays of the cameras in the base frame, those of the present episode where poses
        are drawn, and the meaning of actions."""
        return self._sight.geometry

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Names, units and frames of the numbers of observation and action."""
        return signals(self.config, dict(self.geometry.cameras))

    def expert_action(self) -> NDArray[np.float32]:
        """The scripted expert's action now; it knows the stones."""
        if self._course is None:
            raise RuntimeError("reset must be called before expert_action")
        action = self._course.expert_action(self._state)
        if self.config.action_legs == "lifting":
            action = action[[*self._locomotion.about_to_lift(), ALL_LEGS - 1]]
        return action

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override,unused-ignore]
        """The robot seen from beside, (480, 640, 3); in a live window, follow it instead.

        Before the first `reset` there is nothing to see: None.
        """
        if self._scenery is None or self._course is None:
            return None
        view = self._course.view(self._state.position_m)
        if self.render_mode == "human":
            self._scenery.follow(*view)
            return None
        return self._scenery.image(*view)

    def close(self) -> None:
        """Disconnect from the physics; calling it again does nothing."""
        self._client.close()

    def _begin_world(self) -> None:
        """Empty the physics world of all but the robot."""
        self._client.resetSimulation()
        self._robot = Laikago(self._client, visible=self.render_mode is not None)
        self._scenery = Scenery(self._client) if self.render_mode else None
        self._terrains = 0

    @property
    def _all_boxes(self) -> Boxes:
        return self._low_m, self._high_m, self._yaw_rad

    @staticmethod
    def _has_fallen(state: RobotState) -> bool:
        roll, pitch = state.sensed[:2].tolist()
        return bool(
            state.position_m[2] < _LOWEST_BASE_M
            or abs(roll) > _STEEPEST_ROLL_RAD
            or abs(pitch) > _STEEPEST_PITCH_RAD
        )

    def _observe(self) -> Observation:
        assert self._course is not None
        state, locomotion = self._state, self._locomotion
        phase = 2 * math.pi * locomotion.gait.phase(locomotion.time_s)[0]
        proprio = _proprioception(
            locomotion.estimate.values,
            locomotion.nominal_footholds_m(),
            (math.sin(phase), math.cos(phase)),
            state.contacts,
            self._previous_action,
            self._course.observed(),
            self._proprio_limits,
        )
        boxes = self._course.near(self._all_boxes, state.position_m, self._reach_m)
        seen = self._sight.observe(state.position_m, state.rotation, boxes, FLOOR_M, self._sensors)
        return {**seen, "proprio": proprio}

    def _info(self, fell: bool, done: bool = False) -> dict[str, Any]:
        assert self._course is not None
        success = done and not fell and self._course.has_succeeded()
        return {"distance_m": self._course.distance_m(), "fell": fell, "success": success}


@compiled
def _proprioception(
    estimate: Floats,
    nominal_m: Floats,
    phase: tuple[float, float],
    contacts: tuple[bool, ...],
    action: Floats,
    observed: Floats,
    limits: Floats,
) -> NDArray[np.float32]:
    """`proprio` of the module's text, clipped to limits, from the values of an `Estimate`."""
    made = np.empty(len(limits))
    made[:22] = estimate[:22]  # attitude to toes
    made[22:30] = nominal_m.ravel()
    made[30], made[31] = phase
    for leg in range(4):
        made[32 + leg] = contacts[leg]
    made[_PROPRIO : _PROPRIO + len(action)] = action
    made[_PROPRIO + len(action) :] = observed
    return np.minimum(np.maximum(made, -limits), limits).astype(np.float32)
