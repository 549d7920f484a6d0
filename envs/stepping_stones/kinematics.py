"""Closed-form leg kinematics of the Laikago (`laikago_toes_zup_lores.urdf`).

Frames: base (x forward, y left, z up). Legs in the order FR, FL, RR, RL; a leg's joints in the
order abduction, hip, knee. In a leg's sagittal plane a point is a complex number, real part up
and imaginary part forward, so a rotation is a product; abduction then turns (lateral, up).

Loops over legs are compiled (`envs.compiled`).
"""

from cmath import rect
from math import acos, atan2, cos, pi, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled

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
    return LegState(*toes_and_jacobians(joints_rad))


@compiled
def inverse(leg: int, toe_m: Floats) -> tuple[float, float, float]:
    """A leg's joint angles, radians, that put its toe at a base-frame position (3,), metres.

    A target out of reach is approached along the straight line to it (the knee saturates). The
    knee bends backward, as the robot's joints allow.
    """
    lateral, (hip_x, hip_y, hip_z) = _LATERAL_M[leg], _HIP_M[leg]
    x, y, z = toe_m[0] - hip_x, toe_m[1] - hip_y, toe_m[2] - hip_z
    up = -sqrt(max(y * y + z * z - lateral * lateral, 1e-6))
    cos_knee = (up * up + x * x - _THIGH_M**2 - _SHANK_M**2) / (2 * _THIGH_M * _SHANK_M)
    knee = -acos(min(max(cos_knee, -1.0), 1.0))
    of_shank = atan2(_SHANK_M * sin(knee), _THIGH_M + _SHANK_M * cos(knee))
    abduction, hip = atan2(z, y) - atan2(up, lateral), atan2(x, up) - of_shank - _THIGH_RAD
    knee = knee + _THIGH_RAD - _SHANK_RAD
    return _SIDE[leg] * _wrapped(abduction), _wrapped(hip), _wrapped(knee)


@compiled
def _wrapped(angle_rad: float) -> float:
    return (angle_rad + pi) % _TURN - pi


@compiled
def toes_and_jacobians(joints_rad: Floats) -> tuple[Floats, Floats]:
    """`forward`, for compiled functions."""
    toes, jacobian = np.empty((4, 3)), np.empty((4, 3, 3))
    for leg in range(4):
        abduction, hip, knee = joints_rad[leg]
        shank = _SHANK * rect(1.0, hip + knee)
        whole = _THIGH * rect(1.0, hip) + shank
        up, ahead, side = whole.real, whole.imag, _SIDE[leg]
        cos_a, sin_a = cos(side * abduction), sin(side * abduction)
        y, z = _LATERAL_M[leg] * cos_a - up * sin_a, _LATERAL_M[leg] * sin_a + up * cos_a
        hip_x, hip_y, hip_z = _HIP_M[leg]
        toes[leg] = ahead + hip_x, y + hip_y, z + hip_z
        jacobian[leg, 0] = 0.0, up, shank.real
        jacobian[leg, 1] = -side * z, ahead * sin_a, shank.imag * sin_a
        jacobian[leg, 2] = side * y, -ahead * cos_a, -shank.imag * cos_a
    return toes, jacobian
