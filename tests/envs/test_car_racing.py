"""CarRacingRepeat-v0 is Gymnasium's CarRacing-v3, drawn faster and less often."""

from typing import Any

import gymnasium
import numpy as np
import pytest

CAR_RACING = "CarRacingRepeat-v0"

pytest.importorskip("Box2D", reason="needs the extra box2d")


def _make(**settings: Any) -> gymnasium.Env:
    return gymnasium.make(CAR_RACING, disable_env_checker=True, **settings)


def _actions(count: int) -> Any:
    rng = np.random.default_rng(0)
    steer = rng.uniform(-0.4, 0.3, count)
    drive = np.where(np.arange(count) < count // 3, 0.8, rng.uniform(-0.3, 0.4, count))
    return np.stack([steer, drive], -1)


def test_frames_and_rewards_are_those_of_car_racing() -> None:
    ours = _make(action_repeat=1, largest_gas=1.0, largest_brake=1.0)
    theirs = gymnasium.make("CarRacing-v3", disable_env_checker=True)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for steer, drive in _actions(120):
        seen, reward, *_ = ours.step(np.array([steer, drive]))
        expected, paid, *_ = theirs.step(np.array([steer, max(drive, 0), max(-drive, 0)]))
        np.testing.assert_array_equal(seen, expected)
        assert reward == pytest.approx(paid)
    ours.close()
    theirs.close()


def test_an_action_is_repeated_and_its_rewards_added() -> None:
    often, rarely = _make(action_repeat=1), _make(action_repeat=4)
    often.reset(seed=5)
    rarely.reset(seed=5)
    for action in _actions(20):
        paid = 0.0
        for _ in range(4):
            seen, reward, *_ = often.step(action)
            paid += float(reward)
        last, total, *_ = rarely.step(action)
        np.testing.assert_array_equal(seen, last)
        assert total == pytest.approx(paid)
    often.close()
    rarely.close()


def test_idle_drive_is_added_to_the_drive() -> None:
    plain, rolling = _make(), _make(idle_drive=0.1)
    plain.reset(seed=4)
    rolling.reset(seed=4)
    for steer, drive in _actions(8):
        seen, reward, *_ = plain.step(np.array([steer, min(drive + 0.1, 1.0)]))
        again, paid, *_ = rolling.step(np.array([steer, drive]))
        np.testing.assert_array_equal(seen, again)
        assert reward == paid
    plain.close()
    rolling.close()


@pytest.mark.parametrize("frames", [1, 6, 8])
def test_an_episode_is_cut_at_its_length_and_its_last_image_is_drawn(frames: int) -> None:
    env, stock = _make(episode_frames=frames), _make(action_repeat=1)
    env.reset(seed=1)
    stock.reset(seed=1)
    truncated = False
    while not truncated:
        seen, _, terminated, truncated, _ = env.step(np.array([0.1, 0.5]))
        assert not terminated
    for _ in range(frames):
        expected, *_ = stock.step(np.array([0.1, 0.5]))
    np.testing.assert_array_equal(seen, expected)
    env.close()
    stock.close()


def test_a_car_that_gets_nowhere_ends_an_episode_only_where_patience_is_set() -> None:
    for patience, expected in ((None, 1000), (22, 22)):
        env = _make(patience_frames=patience)
        env.reset(seed=2)
        frames, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(np.array([0.0, -1.0]))
            frames -= 10 * float(reward)  # standing costs a tenth a frame
            over = terminated or truncated
        assert (terminated, truncated) == (patience is not None, patience is None)
        assert frames == pytest.approx(expected, abs=350)  # tiles under the car at the start pay
        env.close()


@pytest.mark.parametrize("kind", ["colour", "bars", "blob"])
def test_a_distraction_changes_the_image_and_not_the_drive(kind: str) -> None:
    plain, distracted = _make(), _make(distraction=kind)
    before, _ = plain.reset(seed=7)
    seen, _ = distracted.reset(seed=7)
    changed = (before != seen).any(-1)
    assert 0.01 < changed.mean() < 1
    assert not changed[84:].any() or kind == "colour"
    for action in _actions(10):
        assert plain.step(action)[1] == distracted.step(action)[1]
    again, _ = distracted.reset(seed=7)
    np.testing.assert_array_equal(seen, again)
    plain.close()
    distracted.close()
