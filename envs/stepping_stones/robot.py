"""The Laikago and its stones in PyBullet: build, place, read, actuate."""

from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import pybullet_data
from numpy.typing import NDArray

from envs.bullet import BulletClient, HoldsPhysics, pybullet
from envs.compiled import compiled
from envs.stepping_stones.kinematics import LEGS, TOE_RADIUS_M, forward
from envs.stepping_stones.terrain import Stones
from envs.stepping_stones.turned_stones import TurnedStones

Floats = NDArray[np.float64]

PHYSICS_S = 0.0025
"""Length of a physics step, seconds."""
TORQUE_LIMIT_N_M = 30.0
POSTURE_RAD = np.tile([0.0, 0.07, -0.59], (4, 1))
"""Joint angles of the robot standing."""
_URDF = Path(pybullet_data.getDataPath()) / "laikago" / "laikago_toes_zup_lores.urdf"
_JOINTS = (
    "{}_hip_motor_2_chassis_joint",
    "{}_upper_leg_2_hip_motor_joint",
    "{}_lower_leg_2_upper_leg_joint",
)
_SOLVER_ITERATIONS = 10
_put_sensed: Callable[..., None] = Struct("30d").pack_into  # faster than an array of a tuple


class RobotState(NamedTuple):
    """True state of the robot in the world.

    Attributes:
        position_m: (3,) base position.
        rotation_by_rows: (9,) base-to-world rotation.
        velocity_m_s, rates_rad_s: (3,) linear and angular velocity, world frame.
        sensed: (30,) what sensors measure: roll, pitch and yaw, angular velocity in the base frame,
            then angles and speeds of the joints, legs FR, FL, RR, RL; abduction, hip, knee.
        contacts: which of the four toes touch the ground.
    """

    position_m: Floats
    rotation_by_rows: Sequence[float]
    velocity_m_s: Sequence[float]
    rates_rad_s: Sequence[float]
    sensed: Floats
    contacts: tuple[bool, ...]

    @property
    def euler_rad(self) -> Floats:
        """(3,) roll, pitch, yaw."""
        return self.sensed[:3]

    @property
    def rotation(self) -> Floats:
        """(3, 3) base-to-world rotation."""
        return np.array(self.rotation_by_rows).reshape(3, 3)

    @property
    def joints_rad(self) -> Floats:
        """(4, 3) joint angles."""
        return self.sensed[6:18].reshape(4, 3)


class Laikago(HoldsPhysics):
    """A torque-controlled Laikago in a separate physics client.

    Only the toes collide: the robot then steps twice as fast, and a leg in a gap shows as a fall.

    Args:
        client: the physics client; the robot is its only user.
        visible: whether images show it, for which 170 MB of meshes and texture are loaded.
    """

    def __init__(self, client: BulletClient, *, visible: bool = True) -> None:
        self._client = client
        client.setGravity(0, 0, -9.8)
        client.setPhysicsEngineParameter(
            fixedTimeStep=PHYSICS_S,
            numSolverIterations=_SOLVER_ITERATIONS,
            enableConeFriction=0,
            deterministicOverlappingPairs=1,
        )
        shown = 0 if visible else client.URDF_IGNORE_VISUAL_SHAPES
        self._body = client.loadURDF(str(_URDF), [0, 0, 0.48], flags=shown)
        names = {
            client.getJointInfo(self._body, j)[1].decode(): j
            for j in range(client.getNumJoints(self._body))
        }
        self._motors = [names[joint.format(leg)] for leg in LEGS for joint in _JOINTS]
        self._toes = [names[f"jtoe{leg}"] for leg in LEGS]
        for joint in names.values():
            client.setJointMotorControl2(self._body, joint, client.VELOCITY_CONTROL, force=0)
        for link in range(-1, len(names)):
            client.changeDynamics(self._body, link, linearDamping=0, angularDamping=0)
            if link in self._toes:
                client.changeDynamics(self._body, link, lateralFriction=1.0)
            else:
                client.setCollisionFilterGroupMask(self._body, link, 0, 0)
        self.stones: list[int] = []

    def place(self, stones: Stones | TurnedStones, posture_error_rad: Floats) -> RobotState:
        """Lay out the stones and stand the robot on the first, at rest."""
        client = self._client
        for stone in self.stones:
            client.removeBody(stone)
        self.stones = [
            client.createMultiBody(
                baseCollisionShapeIndex=client.createCollisionShape(
                    client.GEOM_BOX, halfExtents=stone.half_m
                ),
                basePosition=stone.centre_m,
                baseOrientation=client.getQuaternionFromEuler([0, 0, stone.yaw_rad]),
            )
            for stone in stones.bodies()
        ]
        posture = POSTURE_RAD + posture_error_rad
        lowest_m = float(forward(posture).toes_m[:, 2].min())
        client.resetBasePositionAndOrientation(
            self._body, [0, 0, TOE_RADIUS_M - lowest_m], [0, 0, 0, 1]
        )
        client.resetBaseVelocity(self._body, [0, 0, 0], [0, 0, 0])
        for joint, angle in zip(self._motors, posture.ravel(), strict=True):
            client.resetJointState(self._body, joint, angle, 0)
        return self.read()

    def read(self) -> RobotState:
        """The true state now."""
        # A keyword costs a tenth of a call. The number of a closed client, -1, is an error.
        client, body = self._client.id, self._body
        position, orientation = pybullet.getBasePositionAndOrientation(body, client)
        velocity, rates = pybullet.getBaseVelocity(body, client)
        joints = pybullet.getJointStates(body, self._motors, client)
        a, b, c, d = self._toes
        touching = {point[3] for point in pybullet.getContactPoints(body, -1, -2, -2, client)}
        euler = pybullet.getEulerFromQuaternion(orientation)
        rotation = pybullet.getMatrixFromQuaternion(orientation)
        xx, xy, xz, yx, yy, yz, zx, zy, zz = rotation
        x, y, z = rates
        own = xx * x + yx * y + zx * z, xy * x + yy * y + zy * z, xz * x + yz * y + zz * z
        sensed = np.empty(30)
        _put_sensed(sensed, 0, *euler, *own, *[j[0] for j in joints], *[j[1] for j in joints])
        contacts = a in touching, b in touching, c in touching, d in touching
        return RobotState(np.array(position), rotation, velocity, rates, sensed, contacts)

    def advance(self, torques_n_m: Floats, steps: int) -> None:
        """Hold (4, 3) joint torques, clipped to the motors' limit, for some physics steps."""
        client = self._client
        limited = _limited(torques_n_m).tolist()
        for _ in range(steps):
            client.setJointMotorControlArray(
                self._body, self._motors, client.TORQUE_CONTROL, forces=limited
            )
            client.stepSimulation()


@compiled
def _limited(torques_n_m: Floats) -> Floats:
    """(12,) clipped to the motors' limit."""
    return np.minimum(np.maximum(torques_n_m.ravel(), -TORQUE_LIMIT_N_M), TORQUE_LIMIT_N_M)
