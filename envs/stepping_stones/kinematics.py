"""Closed-form leg kinematics of the Laikago (`laikago_toes_zup_lores.urdf`).

Frames: base (x forward, y left, z up). Legs in the order FR, FL, RR, RL; a leg's joints in the
order abduction, hip, knee. In a leg's sagittal plane a point is a complex number, real part up
and imaginary part forward, so a rotation is a product; abduction then turns (lateral, up).

Legs are computed one after another in Python's floats: four of them are too few for NumPy, a call
of which costs as much as twenty products.
"""

from cmath import rect
from collections.abc import Sequence
from math import cos, pi, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEGS", "TOE_RADIUS_M", "LegState", "forward", "inverse"]

Floats = NDArray[np.float64]

LEGS = ("FR", "FL", "RR", "RL")
TOE_RADIUS_M = 0.03
"""A toe is a ball of this radius, metres."""
_SIDE = (-1.0, 1.0, -1.0, 1.0)
_HIP_M = (
    (0.199095, -0.0817145, -0.03),
    (0.199095, 0.0817145, -0.03),
    (-0.238195, -0.0817145, -0.03),
    (-0.238195, 0.0817145, -0.03),
)
_LATERAL_M = (-0.032875, 0.035165, -0.032875, 0.035165)
_THIGH = complex(-0.20833, -0.1422)
_SHANK = complex(-0.25, -0.022)
_THIGH_M, _SHANK_M = abs(_THIGH), abs(_SHANK)
_THIGH_RAD, _SHANK_RAD = float(np.angle(_THIGH)), float(np.angle(_SHANK))
_BONES = np.repeat([_THIGH, _SHANK], 4)
_TURN = 2 * pi


class LegState(NamedTuple):
    """Toes and Jacobians of the four legs at one joint configuration.

    Attributes:
        toes_m: (4, 3) toe centres in the base frame, metres.
        jacobian: (4, 3, 3) derivative of a toe's position by its joints, metres a radian.
    """

    toes_m: Floats
    jacobian: Floats


def forward(joints_rad: Floats) -> LegState:
    """Toe positions and Jacobians from (4, 3) joint angles, radians."""
    toes: list[float] = []
    jacobian: list[float] = []
    joints = joints_rad.tolist()
    turns = [rect(1.0, hip) for _, hip, _ in joints]
    turns += [rect(1.0, hip + knee) for _, hip, knee in joints]
    bones = (_BONES * np.array(turns)).tolist()
    legs = zip(joints, bones[:4], bones[4:], _SIDE, _LATERAL_M, _HIP_M, strict=True)
    for (abduction, _, _), thigh, shank, side, lateral, (hip_x, hip_y, hip_z) in legs:
        leg = thigh + shank
        up, ahead = leg.real, leg.imag
        cos_a, sin_a = cos(side * abduction), sin(side * abduction)
        y, z = lateral * cos_a - up * sin_a, lateral * sin_a + up * cos_a
        toes += (ahead + hip_x, y + hip_y, z + hip_z)
        bent, bent_ahead = shank.real, shank.imag
        jacobian += (0.0, up, bent, -side * z, ahead * sin_a, bent_ahead * sin_a)
        jacobian += (side * y, -ahead * cos_a, -bent_ahead * cos_a)
    return LegState(np.array(toes).reshape(4, 3), np.array(jacobian).reshape(4, 3, 3))


def inverse(toes_m: Floats, legs: Sequence[int] = (0, 1, 2, 3)) -> Floats:
    """Joint angles (legs, 3), radians, that put toes at base-frame positions, metres.

    A target out of reach is approached along the straight line to it (the knee saturates). The
    knee bends backward, as the robot's joints allow.

    Args:
        toes_m: (4, 3) of all legs.
        legs: those that are asked for.
    """
    targets = toes_m.tolist()
    knees: list[float] = []
    rises: list[float] = []  # of four angles a leg
    runs: list[float] = []
    for leg in legs:
        (x, y, z), (hip_x, hip_y, hip_z), lateral = targets[leg], _HIP_M[leg], _LATERAL_M[leg]
        x, y, z = x - hip_x, y - hip_y, z - hip_z
        up = -sqrt(max(y * y + z * z - lateral * lateral, 1e-6))
        cos_knee = (up * up + x * x - _THIGH_M**2 - _SHANK_M**2) / (2 * _THIGH_M * _SHANK_M)
        knee = -float(np.arccos(min(max(cos_knee, -1.0), 1.0)))
        knees.append(knee)
        rises += (z, up, x, _SHANK_M * sin(knee))
        runs += (y, lateral, up, _THIGH_M + _SHANK_M * cos(knee))
    angles = iter(np.arctan2(rises, runs).tolist())
    joints: list[float] = []
    for leg, knee, of_target, of_plane, of_toe, of_shank in zip(
        legs, knees, angles, angles, angles, angles, strict=True
    ):
        joints += (
            _SIDE[leg] * _wrap(of_target - of_plane),
            _wrap(of_toe - of_shank - _THIGH_RAD),
            _wrap(knee + _THIGH_RAD - _SHANK_RAD),
        )
    return np.array(joints).reshape(-1, 3)


def _wrap(angle_rad: float) -> float:
    return (angle_rad + pi) % _TURN - pi
