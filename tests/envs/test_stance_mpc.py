"""The stance controller's quadratic problem against a rollout, and its solution against a slow
interior-point solver that shares nothing with DAQP."""

import numpy as np
import pytest

from envs.stepping_stones.estimator import Estimate
from envs.stepping_stones.stance_mpc import (
    GRAVITY_M_S2,
    BodyCommand,
    MpcWeights,
    StanceMpc,
)

STEP_S, BLOCKS, FRICTION = 0.025, (1, 3, 6), 0.45
MASS_KG, INERTIA = 25.567, np.array([0.384, 1.043, 1.293])
FEET = np.array([[x, y, -0.43] for x in (0.17, -0.26) for y in (-0.11, 0.11)])
LEVEL = Estimate(np.array([*np.zeros(9), 0.45]))
STAY = BodyCommand((0.0, 0.0), 0.0, 0.45)


def situation(seed: int, legs: int) -> tuple[Estimate, np.ndarray, BodyCommand]:
    rng = np.random.default_rng(seed)
    state = Estimate(
        np.array(
            [
                *rng.uniform(-0.3, 0.3, 3),
                *rng.uniform(-1, 1, 3),
                *rng.uniform(-0.5, 0.5, 3),
                rng.uniform(0.4, 0.5),
            ]
        )
    )
    arms = FEET[rng.permutation(4)[:legs]] + rng.uniform(-0.05, 0.05, (legs, 3))
    forward, lateral = rng.uniform(-0.5, 0.5, 2).tolist()
    return state, arms, BodyCommand((forward, lateral), rng.uniform(-0.3, 0.3), 0.46)


def rollout_cost(
    state: Estimate, arms: np.ndarray, command: BodyCommand, forces: np.ndarray
) -> float:
    """Cost of forces (blocks, legs, 3), the motion integrated step by step."""
    weights = MpcWeights()
    pitch = state.euler_rad[1]
    to_euler = np.array([[1 / np.cos(pitch), 0, 0], [0, 1, 0], [np.tan(pitch), 0, 1]])
    euler = np.array([*state.euler_rad[:2], 0.0])
    position = np.array([0.0, 0.0, state.height_m])
    rates, velocity = state.rates_rad_s.copy(), state.velocity_m_s.copy()
    wanted_rates = np.array([0, 0, command.yaw_rate_rad_s])
    wanted_velocity = np.array([*command.velocity_m_s, 0.0])
    cost = 0.0
    for step, block in enumerate(np.repeat(np.arange(len(BLOCKS)), BLOCKS), start=1):
        force = forces[block]
        turning = sum(np.cross(arm, f) for arm, f in zip(arms, force, strict=True)) / INERTIA
        moving = force.sum(0) / MASS_KG - [0, 0, GRAVITY_M_S2]
        euler = euler + to_euler @ (STEP_S * rates + STEP_S**2 / 2 * turning)
        position = position + STEP_S * velocity + STEP_S**2 / 2 * moving
        rates, velocity = rates + STEP_S * turning, velocity + STEP_S * moving
        time_s = step * STEP_S
        errors = (
            (weights.euler, euler - time_s * wanted_rates),
            (weights.position, position - [0, 0, command.height_m]),
            (weights.rates, rates - wanted_rates),
            (weights.velocity, velocity - turned(wanted_velocity, command, time_s)),
        )
        cost += sum(float(np.dot(weight, error**2)) for weight, error in errors)
        cost += weights.force * float((force**2).sum())
    return cost


def turned(velocity: np.ndarray, command: BodyCommand, time_s: float) -> np.ndarray:
    """Reference trajectory of the next steps."""
    if not command.turns:
        return velocity
    x, y = velocity[:2]
    cos, sin = np.cos(command.yaw_rate_rad_s * time_s), np.sin(command.yaw_rate_rad_s * time_s)
    return np.array([cos * x - sin * y, sin * x + cos * y, 0.0])


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("legs", [1, 2, 3, 4])
def test_the_condensed_problem_is_the_rollouts_cost(legs, turns):
    """The positions ahead and sideways weigh nothing, so the cost leaves them out."""
    mpc = StanceMpc()
    for seed in range(5):
        state, arms, command = situation(seed, legs)
        command = command._replace(turns=turns)
        hessian, gradient = mpc.problem(state, arms, command)
        np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12)
        at_rest = rollout_cost(state, arms, command, np.zeros((3, legs, 3)))
        for draw in range(3):
            u = 100 * np.random.default_rng(draw).standard_normal(len(gradient))
            condensed = u @ hessian @ u / 2 + gradient @ u
            expected = rollout_cost(state, arms, command, u.reshape(3, legs, 3)) - at_rest
            assert condensed == pytest.approx(expected, rel=1e-9)


def interior_point(
    hessian: np.ndarray, gradient: np.ndarray, sides: np.ndarray, bounds: np.ndarray
) -> np.ndarray:
    """argmin u.H u / 2 + g.u subject to sides u >= bounds, by a primal-dual method."""
    u, slack, dual = np.zeros(len(gradient)), np.full(len(bounds), 1e3), np.ones(len(bounds))
    for _ in range(100):
        target = 0.1 * (slack @ dual) / len(bounds)
        infeasible = sides @ u - slack - bounds
        unbalanced = hessian @ u + gradient - sides.T @ dual
        ratio = dual / slack
        centring = target / slack - dual
        matrix = hessian + (sides.T * ratio) @ sides
        du = np.linalg.solve(matrix, -unbalanced + sides.T @ (centring - ratio * infeasible))
        dslack = sides @ du + infeasible
        ddual = centring - ratio * dslack
        length = 1.0
        for value, change in ((slack, dslack), (dual, ddual)):
            falling = change < 0
            if falling.any():
                length = min(length, 0.99 * float((-value[falling] / change[falling]).min()))
        u, slack, dual = u + length * du, slack + length * dslack, dual + length * ddual
        if slack @ dual < 1e-12 and np.abs(infeasible).max() < 1e-9:
            return u
    raise AssertionError("the reference solver did not converge")


def constraints(legs: int) -> tuple[np.ndarray, np.ndarray]:
    """The friction pyramid and the range of vertical force, from their definition."""
    weight = MASS_KG * GRAVITY_M_S2
    rows, bounds = [], []
    for foot in range(3 * legs):
        for axis in (0, 1):
            for sign in (-1, 1):
                row = np.zeros((3 * legs, 3))
                row[foot, axis], row[foot, 2] = sign, FRICTION
                rows.append(row.ravel())
                bounds.append(0.0)
        for sign, bound in ((1, 0.1 * weight), (-1, -10 * weight)):
            row = np.zeros((3 * legs, 3))
            row[foot, 2] = sign
            rows.append(row.ravel())
            bounds.append(bound)
    return np.array(rows), np.array(bounds)


@pytest.mark.parametrize("legs", [1, 2, 3, 4])
def test_the_solution_is_the_slow_solvers(legs):
    mpc, binding = StanceMpc(), 0
    sides, bounds = constraints(legs)
    for seed in range(6):
        problem = situation(seed, legs)
        exact = interior_point(*mpc.problem(*problem), sides, bounds)
        forces = mpc.solve(*problem)
        np.testing.assert_allclose(forces.ravel(), exact[: 3 * legs], atol=1e-3)
        assert np.array_equal(forces, StanceMpc().solve(*problem)), "to the bit, again and again"
        binding += int((np.abs(sides @ exact - bounds) < 1e-3).sum())
    assert binding > 0


def test_without_feet_there_are_no_forces():
    assert StanceMpc().solve(LEVEL, np.zeros((0, 3)), STAY).shape == (0, 3)


def test_a_problem_without_numbers_is_an_error():
    with pytest.raises(ValueError, match="no finite solution"):
        StanceMpc().solve(Estimate(np.full(10, np.nan)), FEET, STAY)
