"""The figures of a study's page: what is drawn where, and that it can be read."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from training.compare.line_charts import OVERLAID, Line, draw_lines
from training.compare.scatter import Point, draw_picture, draw_points
from training.reports import svg as shortening
from training.reports.svg import _stepped, finish


def test_names_in_figures_are_text():
    svg = draw_points([Point(0, 1.0, 1.0, 0.9, 1.1)], 'a "<b>" & c', "$a_b_c$ <i>", "y", {})
    assert 'aria-label="a &quot;&lt;b&gt;&quot; &amp; c"' in svg
    assert "$a_b_c$ &lt;i&gt;" in svg


def test_numbers_of_points_that_coincide_stand_apart():
    svg = draw_points(
        [Point(number, 1.0, 1.0, 0.9, 1.1) for number in range(20, 26)], "t", "x", "y", {}
    )
    found = re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>2[1-6]</text>', svg)
    assert len(found) == 6
    places = [(float(x), float(y)) for x, y in found]
    for one, other in itertools.combinations(places, 2):
        assert abs(one[0] - other[0]) > 5 or abs(one[1] - other[1]) > 7


def test_arms_without_cost_stand_apart_left_of_the_axis():
    points = [Point(number, cost, 1.0, 0.9, 1.1) for number, cost in enumerate((3e5, 0, 0, 2e6))]
    svg = draw_points(points, "t", "x", "y", {})
    across = [
        float(re.search(rf'<text [^>]*x="([\d.]+)"[^>]*>{label}</text>', svg)[1])
        for label in ("2", "3", "500k", "1M", "2M")
    ]
    assert across == sorted(across)
    assert across[1] - across[0] > 5
    for label in ("none", "200k"):
        assert (f">{label}</text>" in svg) == (label == "none")


def test_names_that_matplotlib_would_read_otherwise():
    """Unbalanced mathematics stopped the page for good, and a leading underscore hid a name."""
    points = [Point(number, 1.0, 1.0, 0.9, 1.1) for number in range(2)]
    assert draw_picture(points, ["$x_{ $ 1", "_hidden"], "$x_{ $", "y", {}).startswith(b"\x89PNG")
    x = np.arange(3.0)
    arms = [Line(i, f"_{i} $x_{{ $", x, x, x, x) for i in range(OVERLAID + 1)]
    svg = draw_lines(arms, "t", "x", "y", baseline="_0 $x_{ $")
    assert svg.count("_0 $x_{ $</text>") == 2  # its own panel, and the grey line in the others


def lines(count, **changes):
    x = np.arange(3.0)
    arms = [Line(i, f"arm {i}", x, x / 4, x / 4 - 0.3, x / 4 + 0.8) for i in range(count)]
    return [*arms, Line(count, "oracle", x, x / 2, x / 2, x / 2, scripted=True)]


def drawn(svg, style):
    """The points (n, 2) of each line whose style has this text; neighbouring ones share a path."""
    name = re.search(rf"\.(\w+)\{{[^}}]*{style}", svg)[1]
    paths = re.findall(rf'<path d="([Mlhvz\d. -]+)" class="{name}"', svg)
    return [line for path in paths for line in points(path)]


def points(path):
    """Of a path of straight lines that go on step by step, the points (n, 2) of each line."""
    lines = []
    for command, words in re.findall(r"([Mlhv])([^Mlhvz]*)", path):
        numbers = [float(word) for word in re.findall(r"-?[\d.]+", words)]
        if command == "M":
            lines.append([np.array(numbers)])
            continue
        zeros = [0.0] * len(numbers)
        across = numbers[::2] if command == "l" else numbers if command == "h" else zeros
        down = numbers[1::2] if command == "l" else numbers if command == "v" else zeros
        for step in zip(across, down, strict=True):
            lines[-1].append(lines[-1][-1] + step)
    return [np.array(line) for line in lines]


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("M50.4 108.1 76.9 82.3 103.4 75.3 50.4 75.3z", "M50.4 108.1l26.5-25.8 26.5-7h-53z"),
        ("M1 2 1.5 2 1 2M0 0 0 1 0 3.1", "M1 2h.5-.5M0 0v1 2.1"),
        ("M-1 -2L-1.5 3", "M-1-2l-.5 5"),
        ("M0 0C1 2 3 4 5 6", "M0 0C1 2 3 4 5 6"),
    ],
)
def test_lines_go_on_by_steps(path, steps, monkeypatch):
    monkeypatch.setattr(shortening, "_TOLERANCE", -1)  # every point is kept
    assert _stepped(path) == steps


def test_curves_lose_only_points_between_their_neighbours():
    x = np.arange(300.0)
    y = np.round(20 * np.sin(x / 40), 1)
    (kept,) = points(_stepped("M" + " ".join(f"{a:g} {b:g}" for a, b in zip(x, y, strict=True))))
    assert len(kept) < 100
    assert np.abs(np.interp(x, kept[:, 0], kept[:, 1]) - y).max() < 0.2


def test_steps_lead_to_the_same_points(monkeypatch):
    monkeypatch.setattr(shortening, "_TOLERANCE", -1)
    walk = np.random.default_rng(0).integers(-30, 30, (200, 2)).cumsum(0) / 10
    path = "M" + " ".join(f"{x:g} {y:g}" for x, y in walk)
    np.testing.assert_allclose(points(_stepped(path))[0], walk, atol=1e-9)


@pytest.mark.parametrize("count", [OVERLAID, OVERLAID + 1, 16])
def test_of_many_arms_each_has_a_panel_with_its_name(count):
    svg = draw_lines(lines(count), "t", "x", "y", baseline="arm 1", share=True)
    spines = drawn(svg, "stroke-linejoin:miter")  # two a panel
    assert len(spines) == 2 * (1 if count <= OVERLAID else count)
    assert ('class="panels"' in svg) == (count > OVERLAID)
    for number in range(count):
        assert (f">{number + 1}. arm {number}</text>" in svg) == (count > OVERLAID)
    assert svg.count(">oracle</text>") == 1
    assert svg.count(">arm 1</text>") == (count > OVERLAID)  # the grey line is explained once


def test_bands_of_shares_end_at_0_and_1():
    """A mean with its deviation may leave that range, and the axis goes from -0.03 to 1.05."""
    svg = draw_lines(lines(1), "t", "x", "y", baseline="arm 0", share=True)
    (band,) = drawn(svg, "opacity:0.18")
    frame = np.concatenate(drawn(svg, "stroke-linejoin:miter"))
    assert np.ptp(band[:, 1]) == pytest.approx(np.ptp(frame[:, 1]) / 1.08, abs=0.2)


def test_caps_and_dots_are_strokes_in_their_places():
    """A circle of one colour is a round stroke of no length; a square stays a mark."""
    figure = Figure(figsize=(4, 3))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.set(xlim=(0, 4), ylim=(0, 3))
    axes.errorbar([1, 2], [1, 2], 0.5, fmt="none", ecolor="red", capsize=5)
    axes.plot([1, 3], [1, 2], "o", color="blue", markersize=6)
    axes.plot([2], [1], "s", color="green")
    axes.plot([2], [1], color="black")  # a line of one point
    axes.plot([2], [2], marker=[(0, 0), (1, 1), (0, 1)], color="green")
    axes.plot([1], [2], "o", color="black", markeredgewidth=0)  # as black as it is without a word
    axes.plot([1], [2], "x", color="blue", alpha=0.5)
    svg = finish(figure, "marks")
    width = 72.0  # points an inch
    assert {"M77 180h-10M149 108h-10"} <= set(re.findall(r'd="([^"]*)"', svg))  # the lower ones
    assert svg.count("<use") == 4
    assert "stroke-linecap:round;stroke-width:7" in svg
    (dots,) = re.findall(r'd="(M[^"]*h0)"', svg)
    assert dots == f"M{1 * width:g} {2 * width:g}h0M{3 * width:g} {1 * width:g}h0"
    assert "M144 144" not in svg
