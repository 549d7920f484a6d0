"""The policy's colour cameras: PyBullet's software renderer, with a background that is drawn once.

Nearly all the time of a picture goes into the pixels of the table, which never moves. So table and
bowls are drawn when an episode begins, in a client of their own, and each picture then puts arms
and balls in front of them, pixel by pixel, by depth: no pixel differs from drawing everything.
"""

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import CAMERA_RANGE_M, BimanualSweepConfig, SweepCameraConfig
from envs.bimanual_sweep.scene import add_bowl_visual, add_table_visual
from envs.bullet import BulletClient, HoldsPhysics

__all__ = ["SweepCamera"]

_LIGHT = [0.5, -0.3, 1.5]


class SweepCamera(HoldsPhysics):
    """Renders the scene of one environment.

    Args:
        config: the task's settings.
        camera: one of its cameras; None: the first.
    """

    def __init__(
        self, config: BimanualSweepConfig, camera: SweepCameraConfig | None = None
    ) -> None:
        camera = config.pictures["rgb"] if camera is None else camera
        self._config, self._size = config, (camera.width_px, camera.height_px)
        self._client = BulletClient()
        self._view = self._client.computeViewMatrix(camera.eye_m, camera.target_m, [0, 0, 1])
        self._projection = self._client.computeProjectionMatrixFOV(
            camera.fov_deg, camera.width_px / camera.height_px, *CAMERA_RANGE_M
        )

    def begin(self, bowls_m: NDArray[np.float64]) -> None:
        """Draw what stands still in an episode: the table, and bowls at (2, 2) centres."""
        self._client.resetSimulation()
        add_table_visual(self._client, self._config)
        for bowl_m in bowls_m:
            add_bowl_visual(self._client, self._config, bowl_m)
        background, self._depth = self._draw(self._client)
        self._background = np.ascontiguousarray(background)

    def picture(self, client: BulletClient) -> NDArray[np.uint8]:
        """The scene (height, width, 3) with what moves as it is in `client` now."""
        moving, depth = self._draw(client)
        nearer = np.flatnonzero(depth < self._depth)
        picture = self._background.copy()
        picture.reshape(-1, 3)[nearer] = moving.reshape(-1, 3)[nearer]
        return picture

    def close(self) -> None:
        """Disconnect; calling it again does nothing."""
        self._client.close()

    def _draw(self, client: BulletClient) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        return client.picture(self._size, self._view, self._projection, _LIGHT)
