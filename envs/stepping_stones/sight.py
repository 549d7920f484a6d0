"""The observed depth images of the robot, and the geometry of its cameras.

Where all cameras have one image size, the observation's `depth` holds their images together, else
each has a separate entry, `depth_front` and so on. `camera_pose` holds the poses of the cameras.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.cameras import CameraConfig, DepthCameras, ray_directions
from envs.geometry import Footholds, Geometry
from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.distraction import Blackouts, Distraction
from envs.stepping_stones.felt_ground import Appearances, appearance_key, appearance_space
from envs.stepping_stones.kinematics import TOE_RADIUS_M
from envs.stepping_stones.poses import POSE_SIZE, Poses, draw_poses
from envs.stepping_stones.sensors import Sensors
from envs.stepping_stones.terrain import Boxes

Floats = NDArray[np.float64]
Images = NDArray[np.float32]

_SCALING_M = (0.5, 0.3)
"""Depth that is zero to a policy, and how much more is one: stones lie before it, the floor
beyond."""
_STANCE_M = ((0.30, -0.115), (0.30, 0.115), (-0.135, -0.115), (-0.135, 0.115))
_STANCE_HEIGHT_M = 0.463
_ACTION = 36  # place of the previous action in proprioception
_POSE, _POSE_LIMIT = "camera_pose", 100.0  # metres and radians; no robot has a camera so far away


class Sight:
    """The cameras that a configuration names.

    Args:
        config: the environment's settings.
    """

    def __init__(self, config: SteppingStonesConfig) -> None:
        self._config, self._keys = config, _keys(config)
        self._place(Poses(config.chosen_cameras))
        self._lies: dict[str, Distraction] = {}

    def _place(self, poses: Poses) -> None:
        self._poses = poses
        self._cameras = {
            key: DepthCameras([poses.cameras[name] for name in names], self._config.camera_far_m)
            for key, names in self._keys.items()
        }
        found = {key: cameras.shape for key, cameras in self._cameras.items()}
        self._shapes = {key: s if key == "depth" else s[1:] for key, s in found.items()}
        self._geometry = _geometry(self._config, poses.cameras)

    @property
    def spaces(self) -> dict[str, spaces.Box]:
        """The space of each entry of the observation: depths in metres, poses as `POSE_SIZE`
        says."""
        far_m, shapes = self._config.camera_far_m, self._shapes
        found: dict[str, spaces.Box] = {
            key: spaces.Box(0.0, far_m, shape, np.float32) for key, shape in shapes.items()
        }
        if self._config.felt_ground.is_on:
            found |= {
                appearance_key(key): appearance_space(self._config.felt_ground, shape)
                for key, shape in shapes.items()
            }
        if self._config.camera_pose_told:
            size = POSE_SIZE * len(self._poses.cameras)
            found[_POSE] = spaces.Box(-_POSE_LIMIT, _POSE_LIMIT, (size,), np.float32)
        return found

    @property
    def geometry(self) -> Geometry:
        """Geometry of the current episode."""
        return self._geometry

    def reach_m(self, height_m: float) -> tuple[float, float]:
        """How far behind and ahead of a level base, `height_m` above the floor, they see."""
        behind, ahead = zip(
            *(cameras.reach_m(height_m) for cameras in self._cameras.values()), strict=True
        )
        return max(behind), max(ahead)

    def begin(
        self,
        rng: np.random.Generator,
        drawing_rng: np.random.Generator,
        appearances: Appearances | None = None,
    ) -> None:
        """Begin an episode: `rng` draws false returns, `drawing_rng` poses and blackouts;
        `appearances` are those of its tiles."""
        self._appearances = appearances
        config, several = self._config, len(self._cameras) > 1
        rngs = rng.spawn(len(self._cameras)) if several else [rng]
        self._lies = {
            key: Distraction(
                config.depth_false_returns,
                config.depth_dropped_blocks,
                config.camera_far_m,
                own,
            )
            for key, own in zip(self._cameras, rngs, strict=True)
        }
        pose_rng, dark_rng = drawing_rng.spawn(2)
        images = max(1, round(config.depth_blackout_s / config.decision_s))
        self._blackouts = Blackouts(config.depth_blackouts, images, dark_rng)
        drawn = draw_poses(config, pose_rng)
        if drawn != self._poses:
            self._place(drawn)

    def observe(
        self,
        position_m: Floats,
        rotation: Floats,
        boxes: Boxes,
        floor_m: float,
        sensors: Sensors,
    ) -> dict[str, Images]:
        """The images of boxes, opposite corners (boxes, 3) in the world, over a floor, with noise
        and false returns, metres; and the observed camera poses.

        Args:
            position_m: (3,) of the base in the world.
            rotation: (3, 3) base to world.
            boxes: lower and upper corners, and how far the boxes are turned.
            floor_m: height of the floor.
            sensors: adds the noise.
        """
        found: dict[str, NDArray[Any]] = {}
        dark = self._blackouts.next()
        for key, cameras in self._cameras.items():
            low_m, high_m, yaw_rad = boxes
            true_m = cameras.render(position_m, rotation, low_m, high_m, floor_m, yaw_rad)
            shown_m = self._lies[key].depth(sensors.depth(true_m))
            if dark:
                shown_m = np.full_like(shown_m, self._config.camera_far_m)
            clipped_m = shown_m.clip(0.0, self._config.camera_far_m)
            found[key] = clipped_m.reshape(self._shapes[key])
            if self._appearances is not None:
                shape = self._shapes[key]
                seen = self._appearances.observe(
                    position_m, rotation, self._geometry, key, true_m.reshape(shape)
                )
                found[appearance_key(key)] = seen
        if self._config.camera_pose_told:
            found[_POSE] = self._poses.observed()
        return found


def _keys(config: SteppingStonesConfig) -> dict[str, tuple[str, ...]]:
    """Entries of the observation, and the names of the cameras in each."""
    chosen = config.chosen_cameras
    sizes = {(camera.height_px, camera.width_px) for camera in chosen.values()}
    if len(sizes) == 1:
        return {"depth": tuple(chosen)}
    return {f"depth_{name}": (name,) for name in chosen}


def _geometry(config: SteppingStonesConfig, chosen: Mapping[str, CameraConfig]) -> Geometry:
    """The cameras in the base frame, and the meaning of the robot's actions.

    Args:
        config: the environment's settings.
        chosen: the observed cameras at their present poses.
    """
    keys, twist = _keys(config), _ACTION + config.action_size
    rays = {key: np.stack([ray_directions(chosen[n]) for n in keys[key]]) for key in keys}
    places = {key: np.array([chosen[n].position_m for n in keys[key]]) for key in keys}
    alone = [key for key in keys if key != "depth"]
    footholds = Footholds(
        legs=4,
        actions=config.action_size,
        forward=(0, 1, 2, 3),
        speed=8,
        reach_m=config.foothold_forward_m,
        toe_radius_m=TOE_RADIUS_M,
        stance_m=_STANCE_M,
        stance_height_m=_STANCE_HEIGHT_M,
        proprio="proprio",
        attitude=slice(0, 3),
        velocity=slice(6, 9),
        height=9,
        nominal=slice(22, 30),
        toes=slice(10, 22),
        contacts=slice(32, 36),
        lateral=(4, 5, 6, 7),
        yaw_rate=9 if config.turns else None,
        odometry=slice(twist, twist + 2) if config.commands_twist else None,
        heading=slice(twist + 2, twist + 4) if config.commands_twist else None,
        commanded_speed=twist + 4 if config.commands_twist else None,
    )
    return Geometry(
        rays=rays | {key: rays[key][0] for key in alone},
        positions_m=places | {key: places[key][0] for key in alone},
        cameras=keys,
        image_scaling=dict.fromkeys(keys, _SCALING_M),
        moving=tuple(key for key in keys if config.draws_poses and "front" in keys[key]),
        observed_poses=_POSE if config.camera_pose_told else None,
        footholds=footholds if config.action_legs == "all" else None,
        appearances={key: appearance_key(key) for key in keys if config.felt_ground.is_on},
    )
