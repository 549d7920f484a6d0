"""The geometry of the cameras: where in the world each pixel of an image looks."""

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import BimanualSweepConfig, SweepCameraConfig
from envs.geometry import Geometry

Floats = NDArray[np.float64]


def ray_directions(camera: SweepCameraConfig) -> Floats:
    """Directions of a camera's pixel rays in the world, (height, width, 3), of unit length along
    the optical axis; rows from the top."""
    ahead = np.subtract(camera.target_m, camera.eye_m)
    ahead = ahead / np.linalg.norm(ahead)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right = right / np.linalg.norm(right)
    above = np.cross(right, ahead)
    height, width = camera.height_px, camera.width_px
    half_height = np.tan(np.radians(camera.fov_deg) / 2)
    rows = (1 - 2 * (np.arange(height) + 0.5) / height) * half_height
    columns = (2 * (np.arange(width) + 0.5) / width - 1) * half_height * width / height
    rays: Floats = ahead + rows[:, None, None] * above + columns[:, None] * right
    return rays


def geometry(config: BimanualSweepConfig) -> Geometry:
    """The cameras in the world: x away from the first camera's side, z up from the table's top."""
    cameras_by_key = config.cameras_by_key
    return Geometry(
        rays={key: ray_directions(camera) for key, camera in cameras_by_key.items()},
        positions_m={key: np.array(camera.eye_m) for key, camera in cameras_by_key.items()},
        cameras={key: (key.removeprefix("rgb_"),) for key in cameras_by_key},
    )
