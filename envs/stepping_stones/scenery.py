"""Rendering for people: colours, a floor and a camera that follows the robot."""

import numpy as np
from numpy.typing import NDArray

from envs.bullet import BulletClient, HoldsPhysics
from envs.stepping_stones.felt_ground import FeltStones
from envs.stepping_stones.terrain import FLOOR_M, Boxes, Stones
from envs.stepping_stones.turned_stones import TurnedStones

_WIDTH, _HEIGHT = 640, 480
_STONE, _FLOOR = (0.62, 0.60, 0.56, 1.0), (0.20, 0.24, 0.30, 1.0)
_FLOOR_MARGIN_M = (1.0, 1.75)  # beyond the stones along x and y
_YAW_DEG = -40  # from which side the robot is looked at
_CLUTTER, _UNSEEN = (0.45, 0.30, 0.22, 1.0), (0.0, 0.0, 0.0, 0.0)

Floats = NDArray[np.float64]


class Scenery(HoldsPhysics):
    """Visual bodies without collisions, and images of them.

    Args:
        client: the physics client that holds the robot.
    """

    def __init__(self, client: BulletClient) -> None:
        self._client = client
        self._bodies: list[int] = []
        if client.getConnectionInfo()["connectionMethod"] == client.GUI:
            client.configureDebugVisualizer(client.COV_ENABLE_GUI, 0)

    def dress(self, bodies: list[int], boxes: Boxes, row: Stones | TurnedStones) -> None:
        """Colour the stones, lay a floor under them and show the clutter on it; of felt ground,
        show the tiles as they look in place of the bodies.

        Args:
            bodies: of the stones.
            boxes: corners and turns of the stones, then of the clutter.
            row: the stones.
        """
        client, stones = self._client, range(len(row.low_m))
        tiles = isinstance(row, FeltStones)
        for body in bodies:
            client.changeVisualShape(body, -1, rgbaColor=_UNSEEN if tiles else _STONE)
        for body in self._bodies:
            client.removeBody(body)
        low, high, yaw = boxes
        turns = np.zeros(len(low)) if yaw is None else yaw
        first, last = low[: len(stones)].min(0), high[: len(stones)].max(0)
        margin_x, margin_y = _FLOOR_MARGIN_M
        self._bodies = [
            self._box(
                np.array([first[0] - margin_x, first[1] - margin_y, FLOOR_M - 0.02]),
                np.array([last[0] + margin_x, last[1] + margin_y, FLOOR_M]),
                _FLOOR,
            )
        ]
        self._bodies += [
            self._box(low[i], high[i], _CLUTTER, turns[i]) for i in range(len(stones), len(low))
        ]
        if isinstance(row, FeltStones):
            for corners, colour in zip(row.shown_m(), row.colours(), strict=True):
                self._bodies.append(self._box(*corners, (*colour, 1.0)))

    def _box(
        self, low_m: Floats, high_m: Floats, colour: tuple[float, ...], yaw_rad: float = 0.0
    ) -> int:
        client, half_m = self._client, (high_m - low_m) / 2
        shape = client.createVisualShape(client.GEOM_BOX, halfExtents=half_m, rgbaColor=colour)
        body: int = client.createMultiBody(
            baseVisualShapeIndex=shape,
            basePosition=(low_m + high_m) / 2,
            baseOrientation=client.getQuaternionFromEuler([0, 0, yaw_rad]),
        )
        return body

    def image(self, target_m: Floats, heading_rad: float) -> NDArray[np.uint8]:
        """The scene about a point (2,) from beside and above, (480, 640, 3)."""
        client = self._client
        view = client.computeViewMatrixFromYawPitchRoll(
            cameraTargetPosition=[*target_m, 0.15],
            distance=1.7,
            yaw=_YAW_DEG + np.degrees(heading_rad),
            pitch=-30,
            roll=0,
            upAxisIndex=2,
        )
        lens = client.computeProjectionMatrixFOV(50, _WIDTH / _HEIGHT, 0.1, 10)
        return client.image((_WIDTH, _HEIGHT), view, lens, [-1, -2, 4])[0].copy()

    def follow(self, target_m: Floats, heading_rad: float) -> None:
        """Point the live window at a point (2,)."""
        yaw = _YAW_DEG + np.degrees(heading_rad)
        self._client.resetDebugVisualizerCamera(1.7, yaw, -30, [*target_m, 0.15])
