"""The policy's colour cameras, and a background that is drawn once.

Nearly all the time of an image goes into the pixels of the table, which never moves. So PyBullet's
software renderer draws table and bowls when an episode begins, in a separate client. Each image
then shows arms and balls in front of them, pixel by pixel, by depth. They are drawn by
`rasteriser`, or by PyBullet where their shapes are not known or one reaches behind the camera.
Every pixel equals that of PyBullet's image of the whole scene."""

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import CAMERA_RANGE_M, BimanualSweepConfig, SweepCameraConfig
from envs.bimanual_sweep.meshes import Movers
from envs.bimanual_sweep.rasteriser import Rasteriser
from envs.bimanual_sweep.scene import Scene, add_bowl_visual, add_table_visual
from envs.bullet import BulletClient, HoldsPhysics

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
        camera = config.cameras_by_key["rgb"] if camera is None else camera
        self._config, self._size = config, (camera.width_px, camera.height_px)
        self._client = BulletClient()
        self._view = self._client.computeViewMatrix(camera.eye_m, camera.target_m, [0, 0, 1])
        self._projection = self._client.computeProjectionMatrixFOV(
            camera.fov_deg, camera.width_px / camera.height_px, *CAMERA_RANGE_M
        )
        self._rasteriser = Rasteriser(self._size, self._view, self._projection, _LIGHT)
        self._movers: Movers | None = None

    def begin(self, scene: Scene) -> None:
        """Draw the fixed bodies of an episode: the table and the bowls."""
        self._client.resetSimulation()
        add_table_visual(self._client, self._config)
        for bowl_m in scene.bowls_m:
            add_bowl_visual(self._client, self._config, bowl_m)
        background, self._depth = self._draw(self._client)
        self._background = np.ascontiguousarray(background)
        self._movers = scene.movers

    def image(self, client: BulletClient) -> NDArray[np.uint8]:
        """The scene (height, width, 3) with the moving bodies in their present state in
        `client`."""
        image = self._background.copy()
        movers = self._movers
        if movers is None or not self._rasteriser.draw(
            movers.meshes, *movers.poses(client), self._depth, image
        ):
            moving, depth = self._draw(client)
            nearer = np.flatnonzero(depth < self._depth)
            image.reshape(-1, 3)[nearer] = moving.reshape(-1, 3)[nearer]
        return image

    def close(self) -> None:
        """Disconnect; calling it again does nothing."""
        self._client.close()

    def _draw(self, client: BulletClient) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        return client.image(self._size, self._view, self._projection, _LIGHT)
