"""The figures of a study's page: what is drawn where, and that it can be read."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from training.reports.figures import OVERLAID, Line, Point, draw_lines, draw_picture, draw_points
from training.reports.html import Section, charts, page


def same_points(*numbers_and_costs):
    return [Point(number, cost, 1.0, 0.9, 1.1) for number, cost in numbers_and_costs]


def words(svg):
    """The text of every label, and where it is in points."""
    found = ElementTree.fromstring(svg).iter("text")
    return [(one.text, float(one.get("x")) / 3, float(one.get("y")) / 3) for one in found]


def drawn(svg, style):
    """The points (n, 2) of each line or area whose style has this text, in points of print."""
    found = []
    for path in ElementTree.fromstring(svg).iter("path"):
        if style in path.get("style"):
            at = np.zeros(2)
            for piece in re.findall("m[^m]*", path.get("d")):
                steps = np.array(re.findall(r"-?\d+", piece), float).reshape(-1, 2)
                found.append((at + steps.cumsum(0)) / 3)
                at = found[-1][0 if piece.endswith("z") else -1] * 3
    return found


def test_names_in_figures_are_text():
    svg = draw_points(same_points((0, 1.0)), 'a "<b>" & c', "$a_b_c$ <i>", "y", {})
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'a "<b>" & c'
    assert "$a_b_c$ <i>" in [text for text, *_ in words(svg)]
    assert "#010203" not in svg
    assert "font-family" not in svg


def test_a_style_is_written_once():
    """However many lines, marks and labels have it; a page gives each a class."""
    svg = draw_points(same_points(*enumerate((3e5, 4e5, 5e5, 2e6))), "t", "x", "y", {})
    styles = re.findall(r'style="([^"]*)"', svg)
    assert len(set(styles)) == len(styles) > 4
    text = page("t", svg, (), [Section("s", [charts([svg, svg])])])
    assert "style=" not in text
    assert [text.count(f"{{{style}}}") for style in styles] == [1] * len(styles)
    classes = re.findall(r'class="(s\d+)"', text)
    assert len(classes) == 3 * len(set(classes)) == 3 * len(styles)


def test_a_curve_keeps_its_form():
    """A line of many points is drawn by fewer, at most half a point of print from each of them."""
    x = np.linspace(0, 6, 400)
    (line,) = [Line(0, "a", x, np.sin(x), np.sin(x), np.sin(x))]
    svg = draw_lines([line], "t", "x", "y", baseline="a")
    (curve,) = drawn(svg, "stroke:#3b82d6")
    (frame, *_) = drawn(svg, "stroke-linejoin:miter")
    assert 10 < len(curve) < 100
    left, right = curve[0, 0], curve[-1, 0]
    middle, height = (curve[:, 1].max() + curve[:, 1].min()) / 2, np.ptp(curve[:, 1]) / 2
    exact = middle - height * np.sin(6 * (curve[:, 0] - left) / (right - left))
    np.testing.assert_allclose(curve[:, 1], exact, atol=0.6)
    assert len(frame) == 2


def test_the_label_of_all_panels_is_turned_in_its_place():
    svg = draw_lines(lines(16), "t", "x", "tall", baseline="arm 1")
    (label,) = (one for one in ElementTree.fromstring(svg).iter("text") if one.text == "tall")
    x, y = label.get("x"), label.get("y")
    assert label.get("transform") == f"rotate(-90 {x} {y})"
    height = float(ElementTree.fromstring(svg).get("viewBox").split()[3])
    assert 0.3 * height < float(y) < 0.7 * height


def test_numbers_of_points_that_coincide_stand_apart():
    svg = draw_points(same_points(*((number, 1.0) for number in range(20, 26))), "t", "x", "y", {})
    places = [(x, y) for text, x, y in words(svg) if text in {f"{n}" for n in range(21, 27)}]
    assert len(places) == 6
    for one, other in itertools.combinations(places, 2):
        assert abs(one[0] - other[0]) > 5 or abs(one[1] - other[1]) > 7


def test_names_that_matplotlib_would_read_otherwise():
    """Unbalanced mathematics stopped the page for good, and a leading underscore hid a name."""
    points = same_points((0, 1.0), (1, 1.0))
    image = draw_picture(points, ["$x_{ $ 1", "_hidden"], "$x_{ $", "y", {})
    assert image.startswith(b"\x89PNG")
    assert image[25] == 3  # colours by a palette
    x = np.arange(3.0)
    variants = [Line(i, f"_{i} $x_{{ $", x, x, x, x) for i in range(OVERLAID + 1)]
    svg = draw_lines(variants, "t", "x", "y", baseline="_0 $x_{ $")
    assert svg.count("_0 $x_{ $</text>") == 2  # its own panel, and the grey line in the others


def lines(count):
    x = np.arange(3.0)
    variants = [Line(i, f"arm {i}", x, x / 4, x / 4 - 0.3, x / 4 + 0.8) for i in range(count)]
    return [*variants, Line(count, "oracle", x, x / 2, x / 2, x / 2, scripted=True)]


@pytest.mark.parametrize("count", [OVERLAID, OVERLAID + 1])
def test_of_many_variants_each_has_a_panel_with_its_name(count):
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
    (band,) = drawn(svg, "fill-opacity:0.18")
    frame = np.concatenate(drawn(svg, "stroke-linejoin:miter"))
    assert np.ptp(band[:, 1]) == pytest.approx(np.ptp(frame[:, 1]) / 1.08, abs=0.7)
