"""True and observed poses of the cameras in an episode.

A camera is never mounted exactly as in the drawing. Its pitch and its position may be redrawn
in each episode, and a policy may observe them with an error.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from envs.camera_config import CameraConfig
from envs.stepping_stones.config import SteppingStonesConfig

POSE_SIZE = 6
"""Numbers of an observed pose: optical centre (x, y, z) in the base frame, metres; pitch below the
forward direction, yaw and roll as `CameraConfig` has them, radians."""


@dataclass(frozen=True)
class Poses:
    """The cameras of one episode.

    Attributes:
        cameras: the true ones, by name. error_deg: error added to the observed pitch of the front
        camera, degrees.
    """

    cameras: dict[str, CameraConfig]
    error_deg: float = 0.0

    def observed(self) -> NDArray[np.float32]:
        """(6 cameras,) observed poses, in the order of the cameras, see `POSE_SIZE`."""
        wrong = {name: self.error_deg * (name == "front") for name in self.cameras}
        return np.concatenate(
            [_pose(camera, wrong[name]) for name, camera in self.cameras.items()]
        ).astype(np.float32)


def draw_poses(config: SteppingStonesConfig, rng: np.random.Generator) -> Poses:
    """The cameras of an episode; the draws of one setting do not depend on other settings."""
    cameras = config.chosen_cameras
    pitch, error, *moved = rng.random(5)
    if "front" not in cameras:
        return Poses(cameras)
    front = cameras["front"]
    if config.front_camera_pitch_deg is not None:
        front = replace(front, pitch_deg=_between(config.front_camera_pitch_deg, pitch))
    if any(config.front_camera_moved_m):
        shift = np.array(config.front_camera_moved_m) * (2 * np.array(moved) - 1)
        front = replace(front, position_m=_triple(np.array(front.position_m) + shift))
    error_deg = _between(config.camera_pose_error_deg, error)
    return Poses({**cameras, "front": front}, error_deg)


def _pose(camera: CameraConfig, error_deg: float) -> NDArray[np.float64]:
    angles = np.radians([camera.pitch_deg + error_deg, camera.yaw_deg, camera.roll_deg])
    return np.concatenate([camera.position_m, angles])


def _between(limits: tuple[float, float], share: float) -> float:
    low, high = limits
    return low + (high - low) * share


def _triple(values: Iterable[float]) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z
