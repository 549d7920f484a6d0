"""Paths that turn, and the boxes that lie along them."""

import numpy as np
import pytest

from envs.stepping_stones import SteppingStonesConfig
from envs.stepping_stones.course import draw_course
from envs.stepping_stones.path import Path
from envs.stepping_stones.terrain import Stones, draw_stones
from envs.stepping_stones.turned_stones import TurnedStones, lay_stones
from envs.stepping_stones.twist import turn, wrapped

CURVES = [0.0, 1 / 1.5, -1 / 2, 1 / 10]
ALONG = np.linspace(-0.5, 30, 3001)


def laid(curvature, seed=0, **settings):
    config = SteppingStonesConfig(episode_s=20.0, **settings)
    return lay_stones(config, config.gap_m, Path(curvature), np.random.default_rng(seed))


@pytest.mark.parametrize("curvature", CURVES)
def test_arc_length_heading_and_curvature_are_those_of_the_points(curvature):
    path = Path(curvature)
    points, heading = path.at(ALONG)
    step, length = np.diff(points, axis=0), np.diff(ALONG)
    np.testing.assert_allclose(np.hypot(*step.T), length, rtol=1e-4)
    middle = (heading[1:] + heading[:-1]) / 2
    direction = np.arctan2(step[:, 1], step[:, 0])
    off = (direction - middle + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(off).max() < 0.01
    bends = np.diff(heading) / length
    told = np.array([path.curvature_at(along) for along in (ALONG[1:] + ALONG[:-1]) / 2])
    assert (np.abs(bends - told) < 1e-6).mean() > 0.99  # the rest is where it changes
    assert np.abs(points[np.abs(ALONG) < 0.3, 1]).max() == 0


@pytest.mark.parametrize("curvature", CURVES)
def test_a_point_is_placed_where_it_was_put(curvature):
    path, rng = Path(curvature), np.random.default_rng(1)
    for along, aside in zip(rng.uniform(-0.5, 30, 500), rng.uniform(-0.4, 0.4, 500), strict=True):
        point, heading = path.at(along)
        place = path.place(point + aside * np.array([-np.sin(heading), np.cos(heading)]))
        assert place.along_m == pytest.approx(along, abs=1e-9)
        assert place.aside_m == pytest.approx(aside, abs=1e-9)
        assert wrapped(place.heading_rad - float(heading)) == pytest.approx(0, abs=1e-9)


def test_half_circles_follow_each_other_and_never_meet():
    points, heading = Path(1 / 1.5).at(np.arange(0, 60, 0.1))
    assert [heading.min(), heading.max()] == pytest.approx([0, np.pi], abs=0.1)
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    far = np.abs(np.subtract.outer(np.arange(600), np.arange(600))) > 10  # 1 m along it
    assert apart[far].min() > 0.8


def test_straight_on_the_stones_are_the_rows():
    row, stones = draw_stones(SteppingStonesConfig(episode_s=20.0), (0.1, 0.2), rng()), laid(0.0)
    np.testing.assert_array_equal(stones.edges_m, row.edges_m)
    np.testing.assert_allclose(stones.low_m, row.low_m, atol=1e-12)
    np.testing.assert_allclose(stones.high_m, row.high_m, atol=1e-12)
    x = np.linspace(-0.5, 5, 200)
    points = np.column_stack([x, np.zeros_like(x)])
    clipped = np.minimum(row.margin_m(x), 0.25)
    np.testing.assert_allclose(stones.margin_m(points), clipped, atol=1e-12)
    safe = stones.nearest_safe_m(points, 0.05)
    np.testing.assert_allclose(safe[:, 0], row.nearest_safe_m(x, 0.05), atol=1e-12)
    np.testing.assert_allclose(safe[:, 1], 0, atol=1e-12)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("curvature", [1 / 1.5, -1 / 3, 1 / 10])
def test_gaps_are_as_drawn_at_the_outer_leg_and_stones_on_the_path(curvature):
    stones, straight = laid(curvature), laid(0.0)
    gaps, drawn = (s.edges_m[1:, 0] - s.edges_m[:-1, 1] for s in (stones, straight))
    assert (gaps < drawn).all()
    path, outer = Path(curvature), -np.sign(curvature) * 0.115
    for i in range(1, 5):  # of the first half circle; measured across the gap's middle
        middle, heading = path.at((stones.edges_m[i, 1] + stones.edges_m[i + 1, 0]) / 2)
        ahead, left = np.array([1, 0]) @ turn(heading).T, np.array([0, 1]) @ turn(heading).T
        line = middle + outer * left + np.linspace(-0.25, 0.25, 2001)[:, None] * ahead
        width = 0.00025 * (stones.margin_m(line) < 0).sum()
        assert width == pytest.approx(drawn[i], abs=0.012)
    on_path = path.at(stones.edges_m.mean(1))[0]
    np.testing.assert_array_less(0.2, stones.margin_m(on_path))


@pytest.mark.parametrize("angle", [0.3, -2.0])
def test_margins_and_safe_points_turn_with_the_stones(angle):
    about, edges = turn(angle), np.zeros((2, 2))
    centre, half = np.array([[0.0, 0.0], [0.7, 0.1]]), np.array([[0.3, 0.25], [0.25, 0.25]])
    flat = TurnedStones(edges, 0.5, centre, np.zeros(2), half)
    turned = TurnedStones(edges, 0.5, centre @ about.T, np.full(2, angle), half)
    points = np.random.default_rng(2).uniform(-0.6, 1.2, (4, 100, 2))
    there = points @ about.T
    np.testing.assert_allclose(turned.margin_m(there), flat.margin_m(points), atol=1e-12)
    safe = flat.nearest_safe_m(points, 0.05)
    np.testing.assert_allclose(turned.nearest_safe_m(there, 0.05), safe @ about.T, atol=1e-12)
    assert (flat.margin_m(safe) > 0.05 - 1e-12).all()
    inside = flat.margin_m(points) >= 0.05
    np.testing.assert_allclose(safe[inside], points[inside], atol=1e-12)


def test_the_path_is_drawn_without_changing_the_stones():
    def course(seed, **settings):
        config = SteppingStonesConfig(**settings)
        return draw_course(config, config.gap_m, np.random.default_rng(seed))

    row = course(3).stones
    assert isinstance(row, Stones)
    turning = {"path_turn": "random", "path_radius_m": (2.0, 4.0)}
    courses = [course(seed, **turning) for seed in range(40)]
    lengths = np.diff(courses[3].stones.edges_m)
    np.testing.assert_allclose(lengths, np.diff(row.edges_m), atol=1e-12)
    curvatures = np.array([each.path.curvature_per_m for each in courses])
    assert (1 / np.abs(curvatures)).min() < 2.3 < 3.7 < (1 / np.abs(curvatures)).max()
    assert 8 < (curvatures > 0).sum() < 32
    assert course(3, path_turn="left").path.curvature_per_m == pytest.approx(1 / 3)
    assert course(3, path_turn="right").path.curvature_per_m == pytest.approx(-1 / 3)
    assert course(3, walk_back=True, episode_s=18.0).path.curvature_per_m == 0
