"""The table, the bowls and the balls in PyBullet, with the two arms: build, read, advance.

The scene is rebuilt for every episode, so it does not depend on earlier episodes.
"""

import math
import tempfile
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.arm import Arm, ArmModel
from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.meshes import Movers
from envs.bullet import BulletClient, HoldsPhysics

Floats = NDArray[np.float64]
Points = tuple[tuple[float, ...], ...]

PHYSICS_S = 1 / 240
"""Length of a physics step, seconds."""
_SOLVER_ITERATIONS = 20
_TABLE_FRICTION = 0.5
_WALLS = 15  # with the floor 16: PyBullet drops the parts of a compound beyond that
_TABLE_M = 0.1  # thick
_LOOSE_HEIGHT_M = 0.05
_STATIC, _TOOLS, _ARMS, _BALLS = 1, 2, 4, 8  # collision groups


class Scene(HoldsPhysics):
    """Bodies of one episode.

    Args:
        client: a physics client that nothing else uses; it is emptied first.
        config: the task's settings.
        models: of the left and the right arm.
        bowls_m: (2, 2) centres (x, y) of the bowls.
        balls_m: (balls, 2) where the balls start.
        images: whether the camera takes images of what moves.
        visible: whether table and bowls show in this client, for its own window.
    """

    def __init__(
        self,
        client: BulletClient,
        config: BimanualSweepConfig,
        models: list[ArmModel],
        bowls_m: Floats,
        balls_m: Floats,
        *,
        images: bool = True,
        visible: bool = False,
    ) -> None:
        self._client, self._config, self.bowls_m = client, config, bowls_m
        client.resetSimulation()
        client.setGravity(0, 0, -9.81)
        client.setPhysicsEngineParameter(
            fixedTimeStep=PHYSICS_S,
            numSolverIterations=_SOLVER_ITERATIONS,
            deterministicOverlappingPairs=1,
            enableFileCaching=0,  # or it keeps the arms' URDFs of every episode
        )
        self._hidden = client.createVisualShape(client.GEOM_BOX, halfExtents=[1e-4] * 3)
        table = self._static(
            client.createCollisionShape(client.GEOM_BOX, halfExtents=_table_half_m(config)),
            [0, 0, -_TABLE_M / 2],
        )
        bowl_shape = _bowl_collision(client, config)
        bowls = [self._static(bowl_shape, [*bowl.tolist(), 0.0]) for bowl in bowls_m]
        if visible:
            add_table_visual(client, config)
            for bowl in bowls_m:
                add_bowl_visual(client, config, bowl)
        with tempfile.TemporaryDirectory() as folder:
            self.arms = [Arm(client, model, Path(folder), visible=images) for model in models]
        self.balls = self._make_balls(balls_m)
        moving = [*(arm.body for arm in self.arms), *self.balls]
        self.movers = Movers.of(client, moving) if images else None
        for body in (table, *bowls):
            client.setCollisionFilterGroupMask(body, -1, _STATIC, _TOOLS | _BALLS)
        for ball in self.balls:
            client.setCollisionFilterGroupMask(ball, -1, _BALLS, _STATIC | _TOOLS | _BALLS)
        for arm in self.arms:
            for link in range(-1, arm.num_links):
                tool = link == arm.tool
                meets = _STATIC | _TOOLS | _ARMS | _BALLS if tool else _TOOLS | _ARMS
                client.setCollisionFilterGroupMask(arm.body, link, _TOOLS if tool else _ARMS, meets)

    def ball_positions_m(self) -> Floats:
        """(balls, 3) centres of the balls."""
        position = self._client.getBasePositionAndOrientation
        return np.array([position(ball)[0] for ball in self.balls])

    def in_bowls(self, balls_m: Floats) -> NDArray[np.bool_]:
        """(balls,) which of (balls, 3) centres lie in a bowl: inside its leaning wall."""
        config = self._config
        base, rim = config.bowl_base_radius_m, config.bowl_rim_radius_m
        share = np.clip(balls_m[:, 2] / config.bowl_height_m, 0, 1)
        held: NDArray[np.bool_] = self._at_bowls(balls_m, base + (rim - base) * share)
        return held

    def on_table(self, balls_m: Floats) -> NDArray[np.bool_]:
        """(balls,) which of (balls, 3) centres lie on the table and not under a bowl's rim."""
        height = balls_m[:, 2]
        low = (height > 0) & (height < _LOOSE_HEIGHT_M)
        loose: NDArray[np.bool_] = low & ~self._at_bowls(balls_m, self._config.bowl_rim_radius_m)
        return loose

    def advance(self, starts_rad: list[Floats], ends_rad: list[Floats], steps: int) -> None:
        """Move both arms' joints evenly from `starts_rad` to `ends_rad` in some physics steps."""
        speeds = [
            (end - start) / (steps * PHYSICS_S)
            for start, end in zip(starts_rad, ends_rad, strict=True)
        ]
        for step in range(1, steps + 1):
            for arm, start, end, speed in zip(self.arms, starts_rad, ends_rad, speeds, strict=True):
                arm.drive(start + (end - start) * (step / steps), speed)
            self._client.stepSimulation()

    def arms_touch(self) -> bool:
        """Whether one arm, tool included, presses against the other."""
        left, right = self.arms
        near = self._client.getContactPoints(bodyA=left.body, bodyB=right.body)
        return any(point[8] <= 0 for point in near)  # [8]: the distance between the two

    def _at_bowls(self, balls_m: Floats, radius_m: Floats | float) -> NDArray[np.bool_]:
        """Which centres are nearer than a radius to a bowl's axis, and no higher than its balls."""
        away = np.linalg.norm(balls_m[:, None, :2] - self.bowls_m, axis=-1).min(axis=1)
        height, config = balls_m[:, 2], self._config
        inside = (height > 0) & (height < config.bowl_height_m + config.ball_radius_m)
        near: NDArray[np.bool_] = (away < radius_m) & inside
        return near

    def _static(self, shape: int, position_m: list[float]) -> int:
        body: int = self._client.createMultiBody(0, shape, self._hidden, position_m)
        self._set_friction(body, _TABLE_FRICTION)
        return body

    def _make_balls(self, balls_m: Floats) -> list[int]:
        client, config = self._client, self._config
        radius = config.ball_radius_m
        shape = client.createCollisionShape(client.GEOM_SPHERE, radius=radius)
        look = client.createVisualShape(
            client.GEOM_SPHERE, radius=radius, rgbaColor=[0.9, 0.08, 0.08, 1]
        )
        balls = []
        for x, y in balls_m.tolist():
            ball = client.createMultiBody(config.ball_mass_kg, shape, look, [x, y, radius])
            self._set_friction(ball, config.ball_friction)
            client.changeDynamics(ball, -1, linearDamping=0.04, angularDamping=0.04)
            balls.append(ball)
        return balls

    def _set_friction(self, body: int, sliding: float) -> None:
        rolling = self._config.ball_rolling_friction_m
        self._client.changeDynamics(
            body,
            -1,
            lateralFriction=sliding,
            rollingFriction=rolling,
            spinningFriction=rolling,
            restitution=0,
        )


def _bowl_collision(client: BulletClient, config: BimanualSweepConfig) -> int:
    """A floor and a ring of leaning boxes as one collision shape."""
    base, rim, height = config.bowl_base_radius_m, config.bowl_rim_radius_m, config.bowl_height_m
    slant, lean = math.hypot(rim - base, height), math.atan2(rim - base, height)
    plate, floor = config.bowl_plate_m, 2 * config.bowl_plate_m
    half = [plate / 2, 1.02 * rim * math.tan(math.pi / _WALLS), slant / 2]
    distance = (base + rim) / 2 + plate / 2
    positions, turns = [[0.0, 0.0, floor / 2]], [[0.0, 0.0, 0.0, 1.0]]
    for wall in range(_WALLS):
        angle = 2 * math.pi * (wall + 0.5) / _WALLS
        positions.append([distance * math.cos(angle), distance * math.sin(angle), height / 2])
        around = client.getQuaternionFromEuler([0, 0, angle])
        leaning = client.getQuaternionFromEuler([0, lean, 0])
        turns.append(client.multiplyTransforms([0, 0, 0], around, [0, 0, 0], leaning)[1])
    shape: int = client.createCollisionShapeArray(
        shapeTypes=[client.GEOM_CYLINDER] + [client.GEOM_BOX] * _WALLS,
        radii=[base] + [0.0] * _WALLS,
        lengths=[floor] + [0.0] * _WALLS,
        halfExtents=[[0.0] * 3] + [half] * _WALLS,
        collisionFramePositions=positions,
        collisionFrameOrientations=turns,
    )
    return shape


def _table_half_m(config: BimanualSweepConfig) -> list[float]:
    return [config.table_m[0] / 2, config.table_m[1] / 2, _TABLE_M / 2]


def add_table_visual(client: BulletClient, config: BimanualSweepConfig) -> None:
    """The table as the camera sees it."""
    look = client.createVisualShape(
        client.GEOM_BOX, halfExtents=_table_half_m(config), rgbaColor=[0.82, 0.78, 0.72, 1]
    )
    client.createMultiBody(0, -1, look, [0, 0, -_TABLE_M / 2])


def add_bowl_visual(client: BulletClient, config: BimanualSweepConfig, bowl_m: Floats) -> None:
    """A bowl as the camera sees it: a surface of revolution, inside and outside."""
    base, rim, height = config.bowl_base_radius_m, config.bowl_rim_radius_m, config.bowl_height_m
    plate, floor = config.bowl_plate_m, 2 * config.bowl_plate_m
    vertices, indices, normals = _revolve(
        ((0.001, floor), (base, floor), (rim, height), (rim + plate, height), (base + plate, 0.0)),
        32,
    )
    look = client.createVisualShape(
        client.GEOM_MESH,
        vertices=vertices,
        indices=indices,
        normals=normals,
        rgbaColor=[0.1, 0.7, 0.2, 1],
    )
    client.createMultiBody(0, -1, look, [*bowl_m.tolist(), 0.0])


@lru_cache(maxsize=8)
def _revolve(
    profile: tuple[tuple[float, float], ...], sectors: int
) -> tuple[Points, tuple[int, ...], Points]:
    """Flat triangles of a (radius, height) profile turned about z: vertices, indices, normals.

    The same profile returns the same objects: PyBullet never releases its references to vertices
    and normals, so new ones would leak 230 kB per bowl."""
    angles = np.arange(sectors + 1) * (2 * math.pi / sectors)
    rings = [
        np.stack([r * np.cos(angles), r * np.sin(angles), np.full_like(angles, z)], axis=1)
        for r, z in profile
    ]
    vertices: list[tuple[float, ...]] = []
    normals: list[tuple[float, ...]] = []
    for inner, outer in pairwise(rings):
        for k in range(sectors):
            a, b, c, d = inner[k], inner[k + 1], outer[k + 1], outer[k]
            for triangle in ((a, c, b), (a, d, c)):
                normal = np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0])
                normal = normal / max(float(np.linalg.norm(normal)), 1e-12)
                vertices += [tuple(corner.tolist()) for corner in triangle]
                normals += [tuple(normal.tolist())] * 3
    return tuple(vertices), tuple(range(len(vertices))), tuple(normals)
