"""Forward and inverse kinematics of a serial arm, read from its URDF.

Inverse kinematics is damped least squares (Wampler, "Manipulator inverse kinematic solutions based
on vector formulations and damped least-squares methods", 1986) from the present joint angles.
"""

import math
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_JOINT_MARGIN_RAD = 0.03
_LARGEST_STEP_RAD = 0.4


def rotation_of(euler_rad: Floats) -> Floats:
    """(roll, pitch, yaw) -> (3, 3) rotation Rz(yaw) Ry(pitch) Rx(roll), as URDF has it."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(euler_rad), np.sin(euler_rad)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def rotation_vector(rotation: Floats) -> Floats:
    """Axis times angle, radians, of a rotation by less than pi."""
    axis = np.array(
        [
            rotation[2, 1] - rotation[1, 2],
            rotation[0, 2] - rotation[2, 0],
            rotation[1, 0] - rotation[0, 1],
        ]
    )
    sine = math.sqrt(axis @ axis)
    angle = math.atan2(sine, rotation[0, 0] + rotation[1, 1] + rotation[2, 2] - 1)
    return axis * (0.5 if sine < 1e-9 else angle / sine)


class SerialArm:
    """A chain of revolute joints about their own z axes, from a base to a tip.

    Args:
        robot: root element of a URDF.
        tip: name of the last link.
        base: (4, 4) pose of the root link in the world.

    Raises:
        ValueError: if a joint on the way is not revolute about z, or fixed.
    """

    def __init__(self, robot: Element, tip: str, base: Floats) -> None:
        fixed = base
        self._before: list[Floats] = []
        lower, upper = [], []
        for joint in _path(robot, tip):
            fixed = fixed @ _origin(joint)
            kind = joint.get("type")
            if kind == "revolute":
                axis, limit = joint.find("axis"), joint.find("limit")
                assert axis is not None
                assert limit is not None
                if axis.get("xyz") != "0 0 1":
                    raise ValueError(f"joint {joint.get('name')} must turn about its z axis")
                self._before.append(fixed)
                fixed = np.eye(4)
                lower.append(float(limit.get("lower", 0)))
                upper.append(float(limit.get("upper", 0)))
            elif kind != "fixed":
                raise ValueError(f"joint {joint.get('name')} must be revolute or fixed, got {kind}")
        self._after = fixed
        self.lower_rad, self.upper_rad = np.array(lower), np.array(upper)

    def forward(self, joints_rad: Floats) -> tuple[Floats, Floats]:
        """Pose (4, 4) of the tip, and its Jacobian (6, joints): linear rows, then angular."""
        pose, count = np.eye(4), len(self._before)
        axes, origins, turn = np.empty((count, 3)), np.empty((count, 3)), np.eye(4)
        for k, angle in enumerate(joints_rad.tolist()):
            pose = pose @ self._before[k]
            axes[k], origins[k] = pose[:3, 2], pose[:3, 3]
            turn[0, 0] = turn[1, 1] = math.cos(angle)
            turn[1, 0] = math.sin(angle)
            turn[0, 1] = -turn[1, 0]
            pose = pose @ turn
        pose = pose @ self._after
        arms = pose[:3, 3] - origins
        jacobian = np.empty((6, count))
        jacobian[0] = axes[:, 1] * arms[:, 2] - axes[:, 2] * arms[:, 1]
        jacobian[1] = axes[:, 2] * arms[:, 0] - axes[:, 0] * arms[:, 2]
        jacobian[2] = axes[:, 0] * arms[:, 1] - axes[:, 1] * arms[:, 0]
        jacobian[3:] = axes.T
        return pose, jacobian

    def error(self, position_m: Floats, rotation: Floats, joints_rad: Floats) -> Floats:
        """The error (6,) of the tip relative to a pose: metres, then a rotation vector, radians."""
        return _missing(position_m, rotation, self.forward(joints_rad)[0])

    def inverse(
        self,
        position_m: Floats,
        rotation: Floats,
        joints_rad: Floats,
        *,
        iterations: int = 6,
        damping: float = 0.02,
        tolerance: float = 2e-5,
    ) -> tuple[Floats, Floats]:
        """Joint angles near `joints_rad` that bring the tip to a pose, and the remaining error.

        Angles stay inside their limits. The error is as in `error`."""
        joints = joints_rad
        for _ in range(iterations):
            pose, jacobian = self.forward(joints)
            missing = _missing(position_m, rotation, pose)
            if np.abs(missing).max() < tolerance:
                return joints, missing
            square = jacobian @ jacobian.T
            square[np.diag_indices(6)] += damping**2
            change = jacobian.T @ np.linalg.solve(square, missing)
            change *= min(1.0, _LARGEST_STEP_RAD / np.abs(change).max())
            joints = np.clip(
                joints + change,
                self.lower_rad + _JOINT_MARGIN_RAD,
                self.upper_rad - _JOINT_MARGIN_RAD,
            )
        return joints, self.error(position_m, rotation, joints)


def _missing(position_m: Floats, rotation: Floats, pose: Floats) -> Floats:
    return np.concatenate([position_m - pose[:3, 3], rotation_vector(rotation @ pose[:3, :3].T)])


def _path(robot: Element, tip: str) -> list[Element]:
    """Joints from the root to the link `tip`."""
    above = {}
    for joint in robot.findall("joint"):
        child = joint.find("child")
        if child is not None:  # elements of transmissions are called joint too
            above[child.get("link")] = joint
    joints = []
    link: str | None = tip
    while link in above:
        joints.append(above[link])
        parent = above[link].find("parent")
        assert parent is not None
        link = parent.get("link")
    return joints[::-1]


def _origin(joint: Element) -> Floats:
    """(4, 4) pose of a joint in its parent link."""
    pose = np.eye(4)
    origin = joint.find("origin")
    if origin is not None:
        pose[:3, 3] = [float(x) for x in origin.get("xyz", "0 0 0").split()]
        pose[:3, :3] = rotation_of(np.array([float(x) for x in origin.get("rpy", "0 0 0").split()]))
    return pose
