"""What people see: colours, a floor and a camera that follows the robot."""

import numpy as np
from numpy.typing import NDArray

from envs.bullet import BulletClient, HoldsPhysics
from envs.stepping_stones.terrain import FLOOR_M, Stones

__all__ = ["Scenery"]

_WIDTH, _HEIGHT = 640, 480
_STONE, _FLOOR = (0.62, 0.60, 0.56, 1.0), (0.20, 0.24, 0.30, 1.0)
_CLUTTER = (0.45, 0.30, 0.22, 1.0)

Floats = NDArray[np.float64]


class Scenery(HoldsPhysics):
    """Visual bodies without collisions, and the pictures of them.

    Args:
        client: the physics client that holds the robot.
    """

    def __init__(self, client: BulletClient) -> None:
        self._client = client
        self._bodies: list[int] = []
        if client.getConnectionInfo()["connectionMethod"] == client.GUI:
            client.configureDebugVisualizer(client.COV_ENABLE_GUI, 0)

    def dress(self, stones: Stones, bodies: list[int], clutter: tuple[Floats, Floats]) -> None:
        """Colour the stones, whose bodies these are, lay a floor and show the clutter on it."""
        client = self._client
        for body in bodies:
            client.changeVisualShape(body, -1, rgbaColor=_STONE)
        for body in self._bodies:
            client.removeBody(body)
        near, far = stones.edges_m[0, 0] - 1, stones.edges_m[-1, 1] + 1
        low, high = np.array([near, -2.0, FLOOR_M - 0.02]), np.array([far, 2.0, FLOOR_M])
        self._bodies = [self._box(low, high, _FLOOR)]
        self._bodies += [self._box(low, high, _CLUTTER) for low, high in zip(*clutter, strict=True)]

    def _box(self, low_m: Floats, high_m: Floats, colour: tuple[float, ...]) -> int:
        client, half_m = self._client, (high_m - low_m) / 2
        shape = client.createVisualShape(client.GEOM_BOX, halfExtents=half_m, rgbaColor=colour)
        body: int = client.createMultiBody(
            baseVisualShapeIndex=shape, basePosition=(low_m + high_m) / 2
        )
        return body

    def picture(self, target_m: Floats) -> NDArray[np.uint8]:
        """The scene from beside and above, (480, 640, 3)."""
        client = self._client
        view = client.computeViewMatrixFromYawPitchRoll(
            cameraTargetPosition=[target_m[0] + 0.1, 0, 0.15],
            distance=1.7,
            yaw=-40,
            pitch=-30,
            roll=0,
            upAxisIndex=2,
        )
        lens = client.computeProjectionMatrixFOV(50, _WIDTH / _HEIGHT, 0.1, 10)
        return client.picture((_WIDTH, _HEIGHT), view, lens, [-1, -2, 4])[0].copy()

    def follow(self, target_m: Floats) -> None:
        """Point the live window at the robot."""
        self._client.resetDebugVisualizerCamera(1.7, -40, -30, [target_m[0] + 0.1, 0, 0.15])
