"""The trot's clock."""

import numpy as np

from envs.stepping_stones.env import DECISION_S
from envs.stepping_stones.gait import Trot
from envs.stepping_stones.locomotion import CONTROL_S

TICKS = 12_000  # a minute


def standing(gait: Trot) -> np.ndarray:
    return np.array([gait.phase(tick * CONTROL_S) for tick in range(TICKS)]) < gait.duty_factor


def test_lift_offs_coincide_with_decisions():
    stands = standing(Trot())
    ticks, legs = np.nonzero(stands[:-1] & ~stands[1:])
    per_decision = round(DECISION_S / CONTROL_S)
    assert set((ticks + 1) % per_decision) == {0}
    first = {leg: DECISION_S * (ticks[legs == leg][0] + 1) / per_decision for leg in range(4)}
    np.testing.assert_allclose([first[leg] for leg in range(4)], [0.30, 0.05, 0.05, 0.30])


def test_times_of_stance_and_swing():
    gait = Trot()
    assert gait.cycle_s == 0.5
    assert gait.swing_s == 0.2
    stands = standing(gait)
    np.testing.assert_allclose(stands.mean(0), 0.6)
    assert (stands[:, 0] == stands[:, 3]).all()  # diagonal pairs
    assert (stands[:, 1] == stands[:, 2]).all()
    assert stands.sum(1).min() == 2


def test_swing_progress_runs_from_lift_off_to_landing():
    gait = Trot(offsets=(0.0, 0.0, 0.0, 0.0))
    times = np.arange(0, 0.5, 0.01)
    progress = np.array([gait.swings(t).get(0, 0.0) for t in times])
    np.testing.assert_allclose(progress, np.clip((times - 0.3) / 0.2, 0, None), atol=1e-6)
