"""Target poses of the two tools, and joint angles that reach them."""

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.arm import ArmModel
from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.kinematics import rotation_of

Floats = NDArray[np.float64]

_POSTURE_RAD = np.array([0.0, -0.976, -0.437, 0.0, 1.413, 0.0])
_START_M = np.array([[0.0, 0.30, 0.20], [0.0, -0.30, 0.20]])
_LOWEST_M, _HIGHEST_M = np.array([-0.50, -0.42, 0.003]), np.array([0.50, 0.42, 0.40])
_STEEPEST_RAD = 1.2
_APART_M = 0.003
_LAG_M = 0.03
_MISSED_M, _MISSED_RAD = 5e-3, 0.03  # beyond this a pose is out of reach
_FASTEST_RAD = 0.35  # a joint in a decision


class ToolTargets:
    """Target poses of both tools and the joints' path to them.

    A target stays inside a box around the table and its angles inside +-1.2 rad. The left blade's
    edge stays on the left of the right one's: tools may meet, never pass through each other. A
    target that the arm cannot reach is refused: it stays where it was.

    Args:
        config: the task's settings.
        models: of the left and the right arm.
        jitter_m: (2, 3) offset of the start from (0, +-0.30, 0.20).

    Raises:
        ValueError: if an arm cannot reach its start.
    """

    def __init__(
        self, config: BimanualSweepConfig, models: list[ArmModel], jitter_m: Floats
    ) -> None:
        self._models = models
        self._furthest_m = math.sqrt(3) * config.step_m + _LAG_M
        self._frozen = {"none": None, "left": 0, "right": 1}[config.frozen_arm]
        self.poses = np.concatenate([_START_M + jitter_m, np.zeros((2, 3))], axis=1)
        self.joints_rad: list[Floats] = []
        self.refused = 0
        for pose, model in zip(self.poses, models, strict=True):
            joints, error = model.kinematics.inverse(
                pose[:3], rotation_of(pose[3:]), _POSTURE_RAD, iterations=100
            )
            if not _met(error):
                raise ValueError(
                    f"arm_distance_m = {config.arm_distance_m}: an arm there, with a handle of "
                    f"handle_m = {config.handle_m}, cannot reach "
                    f"{np.round(pose[:3], 3).tolist()} m, where its tool may start"
                )
            self.joints_rad.append(joints)

    def move(self, change: Floats, places_m: Floats) -> None:
        """Change the targets by (2, 6): x, y, z (metres), roll, pitch, yaw (radians).

        `places_m` (2, 3) are the positions of the tools: a target that would be more than a
        decision's largest step and 3 cm ahead of its tool, which something blocks, does not move.
        """
        wanted = self.poses + change
        if self._frozen is not None:
            wanted[self._frozen] = self.poses[self._frozen]
        wanted[:, :3] = np.clip(wanted[:, :3], _LOWEST_M, _HIGHEST_M)
        wanted[:, 3:] = np.clip(wanted[:, 3:], -_STEEPEST_RAD, _STEEPEST_RAD)
        self._keep_apart(wanted)
        wanted[:, :3] = np.clip(wanted[:, :3], _LOWEST_M, _HIGHEST_M)
        found = [
            self._follow(model, pose, joints)
            for model, pose, joints in zip(self._models, wanted, self.joints_rad, strict=True)
        ]
        ahead = np.linalg.norm(wanted[:, :3] - places_m, axis=1)
        now_ahead = np.linalg.norm(self.poses[:, :3] - places_m, axis=1)
        held = (ahead > self._furthest_m) & (ahead > now_ahead)
        for side in (0, 1):
            if held[side]:
                found[side] = None
            if found[side] is None:
                wanted[side] = self.poses[side]
        if _gap_m(wanted)[0] < _APART_M - 1e-9:  # one stays where it was, in the other's way
            found = [None, None]
        self.refused += sum(joints is None for joints in found)
        joints_rad = []
        for side, model in enumerate(self._models):
            joints, now = found[side], self.joints_rad[side]
            if joints is None:  # fall back to the unchanged target
                joints = self._follow(model, self.poses[side], now)
            else:
                self.poses[side] = wanted[side]
            joints_rad.append(now if joints is None else joints)
        self.joints_rad = joints_rad

    def _keep_apart(self, wanted: Floats) -> None:
        gap, along = _gap_m(wanted)
        missing = _APART_M - gap
        if missing > 0:
            shares = np.array([0.5, -0.5]) if self._frozen is None else np.array([1.0, -1.0])
            if self._frozen is not None:
                shares[self._frozen] = 0.0
            wanted[:, :2] += missing * shares[:, None] * along

    @staticmethod
    def _follow(model: ArmModel, pose: Floats, joints_rad: Floats) -> Floats | None:
        """Joint angles on the way to a pose, a decision's part of it; None where it is out of
        reach."""
        solve, rotation = model.kinematics.inverse, rotation_of(pose[3:])
        joints, error = solve(pose[:3], rotation, joints_rad)
        if np.abs(error[:3]).max() > 1e-3 or np.abs(error[3:]).max() > 1e-2:
            joints, error = solve(pose[:3], rotation, joints, iterations=30, damping=0.004)
        if not _met(error):
            return None
        change = joints - joints_rad
        return joints_rad + change * min(1.0, _FASTEST_RAD / max(float(np.abs(change).max()), 1e-9))


def check_starts(config: BimanualSweepConfig, models: list[ArmModel]) -> None:
    """Try the middle, the faces, the edges and the corners of the box that each tool starts in.

    Args:
        config: the task's settings.
        models: of the left and the right arm.

    Raises:
        ValueError: if an arm cannot reach one of them.
    """
    for place in product((-1, 0, 1), repeat=3):
        ToolTargets(config, models, np.array([place, place]) * config.start_jitter_m)


def _gap_m(poses: Floats) -> tuple[float, Floats]:
    """How far the left edge is on the left of the right one, and the direction (2,) of that."""
    yaw = poses[:, 5].mean()
    along = np.array([-math.sin(yaw), math.cos(yaw)])
    return float((poses[0, :2] - poses[1, :2]) @ along), along


def _met(error: Floats) -> bool:
    """Whether the error (6,) of a pose is small enough."""
    return bool(np.linalg.norm(error[:3]) <= _MISSED_M and np.linalg.norm(error[3:]) <= _MISSED_RAD)
