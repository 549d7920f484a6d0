"""The row of stones and the expert who knows it."""

import numpy as np
import pytest

from envs.stepping_stones import SteppingStonesConfig
from envs.stepping_stones.expert import expert_footholds
from envs.stepping_stones.terrain import Stones, draw_stones

ROW = Stones(np.array([[-0.6, 0.4], [0.6, 1.2], [1.3, 2.0]]), 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_stones_and_gaps_are_drawn_from_their_ranges(seed):
    config = SteppingStonesConfig(stone_length_m=(0.4, 0.6), first_edge_m=(0.5, 0.7))
    edges = draw_stones(config, (0.05, 0.25), np.random.default_rng(seed)).edges_m
    assert 0.5 <= edges[0, 1] <= 0.7
    lengths, gaps = edges[1:, 1] - edges[1:, 0], edges[1:, 0] - edges[:-1, 1]
    assert 0.4 <= lengths.min() < lengths.max() <= 0.6
    assert 0.05 <= gaps.min() < gaps.max() <= 0.25
    assert edges[-1, 1] > 0.8 * config.episode_s + 1


def test_a_longer_episode_has_the_same_stones_and_more():
    rows = [
        draw_stones(SteppingStonesConfig(episode_s=s), (0.1, 0.2), np.random.default_rng(1)).edges_m
        for s in (5.0, 20.0)
    ]
    np.testing.assert_array_equal(rows[0], rows[1][: len(rows[0])])
    assert len(rows[0]) < len(rows[1])


def test_margin():
    x = np.array([0.0, 0.35, 0.4, 0.5, 0.61, 1.25])
    np.testing.assert_allclose(ROW.margin_m(x), [0.4, 0.05, 0.0, -0.1, 0.01, -0.05], atol=1e-12)
    assert ROW.margin_m(np.zeros((2, 3))).shape == (2, 3)


def test_corners():
    np.testing.assert_allclose(ROW.low_m[1], [0.6, -0.25, -0.1])
    np.testing.assert_allclose(ROW.high_m[1], [1.2, 0.25, 0.0])


def test_nearest_safe_point():
    x = np.array([0.0, 0.38, 0.49, 0.51, 0.62, 1.26])
    safe = ROW.nearest_safe_m(x, 0.05)
    np.testing.assert_allclose(safe, [0.0, 0.35, 0.35, 0.65, 0.65, 1.35], atol=1e-12)


def test_expert_moves_only_footholds_that_are_unsafe_and_steers_to_the_middle():
    nominal = np.array([0.0, 0.38, 0.55, 1.0])
    offsets, speed = expert_footholds(ROW, nominal, y_m=0.1)
    np.testing.assert_allclose(offsets, [0.0, -0.03, 0.10, 0.0], atol=1e-12)
    assert (ROW.margin_m(nominal + offsets) >= 0.05 - 1e-12).all()
    assert speed < 0
    assert expert_footholds(ROW, nominal, y_m=-0.1)[1] == -speed
