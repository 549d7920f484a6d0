"""Whole-body walking: footholds and a lateral speed in, joint torques out.

Low-level control of the hierarchy in Hybrid Random Features, appendix K.1: a position-based swing
controller and a model-predictive stance controller under a policy that chooses footholds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled, product
from envs.stepping_stones.estimator import Estimate, StateEstimator
from envs.stepping_stones.gait import STANDS, Trot
from envs.stepping_stones.kinematics import forward, inverse
from envs.stepping_stones.robot import POSTURE_RAD
from envs.stepping_stones.sensors import Measurement
from envs.stepping_stones.stance_mpc import BodyCommand, StanceMpc
from envs.stepping_stones.swing import SwingLegs, toe_target

Floats = NDArray[np.float64]

CONTROL_S = 0.005
"""Time between control steps, seconds."""
_MPC_EVERY = 2  # control steps
_STEP_M = 0.05  # nominal foothold ahead of the standing posture; sets the walking speed
HEIGHT_M = 0.45
SPEED_LIMIT_M_S = 0.8
_RAIBERT = -0.25  # foothold displacement ahead by speed error, m per m/s, reversed
LATERAL_RAIBERT_S, LATERAL_RAIBERT_M = 0.20, 0.10
_SPEED_FILTER_S = 0.10
YAW_RATE_LIMIT_RAD_S = 0.3
_KP = 220.0
_KD = (0.3, 2.0, 2.0)
_EARLY_CONTACT = 0.4  # swing progress from which touching the ground ends the swing
_COM_M = np.array([[-0.0256], [0.0], [-0.022]])
NOMINAL_TOES_M = forward(POSTURE_RAD).toes_m
_AHEAD_M = NOMINAL_TOES_M + np.array([_STEP_M, 0.0, 0.0])


@dataclass(frozen=True)
class FootholdCommand:
    """Command of the policy until its next decision; legs FR, FL, RR, RL.

    Attributes:
        offsets_m: (4, 2) forward and lateral displacement of each leg's next foothold from its
            nominal place; a leg takes the value that holds when it lifts off.
        lateral_speed_m_s: desired sideways speed of the body, left positive.
    """

    offsets_m: Floats
    lateral_speed_m_s: float


class Locomotion:
    """The walking controller of one episode, stepped every `CONTROL_S`.

    Args:
        measurement: the sensors at the start.
        gait: its clock starts at 0.
    """

    def __init__(self, measurement: Measurement, gait: Trot | None = None) -> None:
        self.gait = gait or Trot()
        self.tick = 0
        self._mpc = StanceMpc()
        self._swing = SwingLegs()
        self._swings: tuple[float, ...] = (STANDS,) * 4
        self._displacement_m = np.tile([_STEP_M, 0.0], (4, 1))
        self._mean_speed = 0.0
        self._speed_m_s = 0.0
        self._forces_n = np.zeros((4, 3))
        self._measurement = measurement
        self._estimator = StateEstimator(measurement, CONTROL_S)
        self.estimate: Estimate = self._estimator.update(measurement, (True,) * 4)

    @property
    def time_s(self) -> float:
        """Time on the gait's clock, seconds."""
        return self.tick * CONTROL_S

    def about_to_lift(self) -> list[int]:
        """Legs that lift off at the next control step."""
        return self._lifting(self.gait.swings(self.time_s))

    def _lifting(self, swings: tuple[float, ...]) -> list[int]:
        return [leg for leg in range(4) if swings[leg] >= 0 > self._swings[leg]]

    def nominal_footholds_m(self) -> Floats:
        """(4, 2) where each leg would land if it lifted off now uncorrected, from the present
        base, level frame."""
        return _nominal_m(self.estimate.values, self.gait.swing_s)

    def sense(self, measurement: Measurement) -> None:
        """Take in the sensors after a control step."""
        self.tick += 1
        self._measurement = measurement
        a, b, c, d = measurement.contacts
        at, bt, ct, dt = self._swings
        stands = a and at < 0, b and bt < 0, c and ct < 0, d and dt < 0
        self.estimate = self._estimator.update(measurement, stands)
        gain = CONTROL_S / _SPEED_FILTER_S
        forward_m_s = float(self.estimate.values[6])
        self._mean_speed += gain * (forward_m_s - self._mean_speed)

    def torques(self, command: FootholdCommand) -> Floats:
        """(4, 3) joint torques for the coming control step, newton metres.

        Raises:
            ValueError: if the stance problem has no finite solution.
        """
        estimate, gait = self.estimate, self.gait
        swings = gait.swings(self.time_s)
        lifting = self._lifting(swings)
        if lifting:
            foothold = self._uncorrected_m()
            foothold[:, :2] += command.offsets_m
            for leg in lifting:
                self._displacement_m[leg] = foothold[leg, :2] - NOMINAL_TOES_M[leg, :2]
                self._swing.lift_off(leg, estimate.toes_m, foothold)
        self._swings = swings
        measured = self._measurement
        touches = measured.contacts
        if self.tick % _MPC_EVERY == 0:
            self._plan_forces(command)
        return _torques(
            swings,
            touches,
            self._swing.lift_m,
            self._swing.foothold_m,
            self._swing.clearance_m,
            self._forces_n,
            estimate.values,
            measured.values,
        )

    def _uncorrected_m(self) -> Floats:
        """(4, 3) landing points in the level frame that the base will have at landing."""
        return _landing_m(self.estimate.values)

    def _limited_speed_m_s(self, wanted_m_s: float) -> float:
        return min(max(wanted_m_s, 0.0), SPEED_LIMIT_M_S)

    def _wanted_yaw_rate_rad_s(self) -> float:
        """Return the yaw rate that turns the robot to the row's heading, 0."""
        yaw = float(self.estimate.values[2])
        return min(max(-yaw, -YAW_RATE_LIMIT_RAD_S), YAW_RATE_LIMIT_RAD_S)

    @property
    def _turns(self) -> bool:
        """Whether the wanted velocity turns with the body."""
        return False

    def _plan_forces(self, command: FootholdCommand) -> None:
        wanted_m_s = _wanted_speed_m_s(
            self._swings, self._displacement_m, self._mean_speed, self.gait.swing_s
        )
        if wanted_m_s is not None:
            self._speed_m_s = self._limited_speed_m_s(wanted_m_s)
        body = BodyCommand(
            (self._speed_m_s, command.lateral_speed_m_s),
            self._wanted_yaw_rate_rad_s(),
            HEIGHT_M,
            self._turns,
        )
        arms_m, presses = _arms_m(self.estimate.values, self._swings, self._measurement.contacts)
        self._forces_n = _of_all_legs(self._mpc.solve(self.estimate, arms_m, body), presses)


@compiled
def _landing_m(estimate: Floats) -> Floats:
    """`Locomotion._uncorrected_m` by the values of an `Estimate`."""
    lateral = LATERAL_RAIBERT_S * estimate[7]
    landing_m = _AHEAD_M.copy()
    landing_m[:, 1] += min(max(lateral, -LATERAL_RAIBERT_M), LATERAL_RAIBERT_M)
    return landing_m


@compiled
def _nominal_m(estimate: Floats, swing_s: float) -> Floats:
    """`Locomotion.nominal_footholds_m` by the values of an `Estimate`."""
    return _landing_m(estimate)[:, :2] + swing_s * estimate[6:8]


@compiled
def _presses(time: float, touches: bool) -> bool:
    """Whether a leg presses a force on the ground; else it tracks a swing."""
    return time < 0 or (time > _EARLY_CONTACT and touches)


@compiled
def _wanted_speed_m_s(
    times: tuple[float, ...], displacement_m: Floats, speed_m_s: float, swing_s: float
) -> float | None:
    """Inverse Raibert rule: the body speed for which the footholds of swinging legs are neutral."""
    wanted, legs = 0.0, 0
    for leg in range(4):
        if times[leg] >= 0:
            wanted += (speed_m_s * swing_s / 2 - displacement_m[leg, 0]) / _RAIBERT + speed_m_s
            legs += 1
    return wanted / legs if legs else None


@compiled
def _arms_m(
    estimate: Floats, times: tuple[float, ...], touches: tuple[bool, ...]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Toes of the legs that press forces, (legs, 3) from the centre of mass, level frame, by the
    values of an `Estimate`; and which legs (4,) these are."""
    presses = np.empty(4, np.bool_)
    for leg in range(4):
        presses[leg] = _presses(times[leg], touches[leg])
    arms_m = estimate[10:22].reshape(4, 3) - product(estimate[22:31].reshape(3, 3), _COM_M).T
    return arms_m[presses], presses


@compiled
def _of_all_legs(forces_n: Floats, presses: NDArray[np.bool_]) -> Floats:
    """Forces (4, 3), 0 where a leg does not press, from those of the legs that do, (legs, 3)."""
    wide_n, pressing = np.zeros((4, 3)), 0
    for leg in range(4):
        if presses[leg]:
            wide_n[leg] = forces_n[pressing]
            pressing += 1
    return wide_n


@compiled
def _torques(
    times: tuple[float, ...],
    touches: tuple[bool, ...],
    lift_m: Floats,
    foothold_m: Floats,
    clearance_m: float,
    forces_n: Floats,
    estimate: Floats,
    measured: Floats,
) -> Floats:
    """(4, 3) of legs that track a swing, and of those that press forces on the ground, by the
    values of an `Estimate` and of a `Measurement`."""
    rotation, jacobian = estimate[22:31].reshape(3, 3), estimate[34:].reshape(4, 3, 3)
    forces_n = product(forces_n, rotation)
    torques = np.empty((4, 3))
    joints_rad, joint_speeds_rad_s = measured[6:18], measured[18:]
    for leg in range(4):
        if _presses(times[leg], touches[leg]):
            for joint in range(3):
                torque = 0.0
                for axis in range(3):
                    torque += forces_n[leg, axis] * jacobian[leg, axis, joint]
                torques[leg, joint] = -torque
        else:
            target_m = toe_target(
                times[leg], lift_m[leg], foothold_m[leg], -estimate[9], clearance_m
            )
            wanted_rad = inverse(leg, product(target_m.reshape(1, 3), rotation)[0])
            for joint in range(3):
                torques[leg, joint] = _KP * (wanted_rad[joint] - joints_rad[3 * leg + joint])
        for joint in range(3):
            torques[leg, joint] -= _KD[joint] * joint_speeds_rad_s[3 * leg + joint]
    return torques
