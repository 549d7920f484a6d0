"""Closed-form leg kinematics of the Laikago (`laikago_toes_zup_lores.urdf`).

Frames: base (x forward, y left, z up). Legs in the order FR, FL, RR, RL; a leg's joints in the
order abduction, hip, knee. In a leg's sagittal plane a point is a complex number, real part up
and imaginary part forward, so a rotation is a product; abduction then turns (lateral, up).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEGS", "TOE_RADIUS_M", "LegState", "forward", "inverse"]

Floats = NDArray[np.float64]

LEGS = ("FR", "FL", "RR", "RL")
TOE_RADIUS_M = 0.03
"""A toe is a ball of this radius, metres."""
_SIDE = np.array([-1.0, 1.0, -1.0, 1.0])
_HIP_M = np.array(
    [
        [0.199095, -0.0817145, -0.03],
        [0.199095, 0.0817145, -0.03],
        [-0.238195, -0.0817145, -0.03],
        [-0.238195, 0.0817145, -0.03],
    ]
)
_LATERAL_M = np.array([-0.032875, 0.035165, -0.032875, 0.035165])
_THIGH = complex(-0.20833, -0.1422)
_SHANK = complex(-0.25, -0.022)
_THIGH_M, _SHANK_M = abs(_THIGH), abs(_SHANK)
_THIGH_RAD, _SHANK_RAD = np.angle(_THIGH), np.angle(_SHANK)
_TURN = 2 * np.pi


@dataclass(frozen=True)
class LegState:
    """Toes and Jacobians of the four legs at one joint configuration.

    Attributes:
        toes_m: (4, 3) toe centres in the base frame, metres.
        jacobian: (4, 3, 3) derivative of a toe's position by its joints, metres a radian.
    """

    toes_m: Floats
    jacobian: Floats


def forward(joints_rad: Floats) -> LegState:
    """Toe positions and Jacobians from (4, 3) joint angles, radians."""
    abduction = _SIDE * joints_rad[:, 0]
    shank = _SHANK * np.exp(1j * (joints_rad[:, 1] + joints_rad[:, 2]))
    leg = _THIGH * np.exp(1j * joints_rad[:, 1]) + shank
    cos, sin = np.cos(abduction), np.sin(abduction)
    up = leg.real
    toes = np.empty((4, 3))
    toes[:, 0] = leg.imag
    toes[:, 1] = _LATERAL_M * cos - up * sin
    toes[:, 2] = _LATERAL_M * sin + up * cos
    jacobian = np.zeros((4, 3, 3))
    jacobian[:, 1, 0] = -_SIDE * toes[:, 2]
    jacobian[:, 2, 0] = _SIDE * toes[:, 1]
    jacobian[:, 0, 1], jacobian[:, 0, 2] = leg.real, shank.real
    jacobian[:, 1, 1], jacobian[:, 1, 2] = leg.imag * sin, shank.imag * sin
    jacobian[:, 2, 1], jacobian[:, 2, 2] = -leg.imag * cos, -shank.imag * cos
    toes += _HIP_M
    return LegState(toes, jacobian)


def inverse(toes_m: Floats) -> Floats:
    """Joint angles (4, 3), radians, that put the toes at (4, 3) base-frame positions, metres.

    A target out of reach is approached along the straight line to it (the knee saturates). The
    knee bends backward, as the robot's joints allow.
    """
    target = toes_m - _HIP_M
    forward_m, lateral_m, vertical_m = target[:, 0], target[:, 1], target[:, 2]
    up = -np.sqrt(np.maximum(lateral_m**2 + vertical_m**2 - _LATERAL_M**2, 1e-6))
    abduction = np.arctan2(vertical_m, lateral_m) - np.arctan2(up, _LATERAL_M)
    reach2 = up**2 + forward_m**2
    cos_knee = (reach2 - _THIGH_M**2 - _SHANK_M**2) / (2 * _THIGH_M * _SHANK_M)
    knee = -np.arccos(np.clip(cos_knee, -1.0, 1.0))
    hip = np.arctan2(forward_m, up) - np.arctan2(
        _SHANK_M * np.sin(knee), _THIGH_M + _SHANK_M * np.cos(knee)
    )
    joints = np.empty((4, 3))
    joints[:, 0] = _SIDE * _wrap(abduction)
    joints[:, 1] = _wrap(hip - _THIGH_RAD)
    joints[:, 2] = _wrap(knee + _THIGH_RAD - _SHANK_RAD)
    return joints


def _wrap(angle: Floats) -> Floats:
    wrapped: Floats = (angle + np.pi) % _TURN - np.pi
    return wrapped
