"""The figures of a study's page: what is drawn where, and that it can be read."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from training.reports.figures import OVERLAID, Line, Point, draw_lines, draw_picture, draw_points


def same_points(*numbers_and_costs):
    return [Point(number, cost, 1.0, 0.9, 1.1) for number, cost in numbers_and_costs]


def words(svg):
    """The text of every label, and where it is."""
    found = ElementTree.fromstring(svg).iter("text")
    return [(one.text, float(one.get("x")), float(one.get("y"))) for one in found]


def drawn(svg, style):
    """The points (n, 2) of each path, or of each use of one, whose style has this text."""
    root = ElementTree.fromstring(svg)
    names = re.findall(rf"\.(\w+)\{{[^}}]*{style}", root.find("style").text)
    paths = {f"#{one.get('id')}": one for one in root.iter("path")}
    found = [one for one in root.iter() if one.get("class") in names]
    texts = [paths.get(one.get("href"), one).get("d") for one in found]
    return [np.array(re.findall(r"-?[\d.]+", d), float).reshape(-1, 2) for d in texts]


def test_names_in_figures_are_text():
    svg = draw_points(same_points((0, 1.0)), 'a "<b>" & c', "$a_b_c$ <i>", "y", {})
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'a "<b>" & c'
    assert "$a_b_c$ <i>" in [text for text, *_ in words(svg)]
    assert "#010203" not in svg
    assert "font-family" not in svg


def test_ids_differ_between_figures():
    """As all are in one page, in which a name must be that of one thing."""
    svgs = [draw_points(same_points((0, 1.0), (12, 2.0)), title, "x", "y", {}) for title in "ab"]
    ids = [name for svg in svgs for name in re.findall(r' id="([^"]*)"', svg)]
    assert len(set(ids)) == len(ids) > 0
    assert {name for svg in svgs for name in re.findall(r'href="#([^"]*)"', svg)} <= set(ids)


def test_numbers_of_points_that_coincide_stand_apart():
    svg = draw_points(same_points(*((number, 1.0) for number in range(20, 26))), "t", "x", "y", {})
    places = [(x, y) for text, x, y in words(svg) if text in {f"{n}" for n in range(21, 27)}]
    assert len(places) == 6
    for one, other in itertools.combinations(places, 2):
        assert abs(one[0] - other[0]) > 5 or abs(one[1] - other[1]) > 7


def test_names_that_matplotlib_would_read_otherwise():
    """Unbalanced mathematics stopped the page for good, and a leading underscore hid a name."""
    points = same_points((0, 1.0), (1, 1.0))
    assert draw_picture(points, ["$x_{ $ 1", "_hidden"], "$x_{ $", "y", {}).startswith(b"\x89PNG")
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
    spines = drawn(svg, "stroke-linejoin: miter")  # two a panel
    assert len(spines) == 2 * (1 if count <= OVERLAID else count)
    assert ('class="panels"' in svg) == (count > OVERLAID)
    for number in range(count):
        assert (f">{number + 1}. arm {number}</text>" in svg) == (count > OVERLAID)
    assert svg.count(">oracle</text>") == 1
    assert svg.count(">arm 1</text>") == (count > OVERLAID)  # the grey line is explained once


def test_bands_of_shares_end_at_0_and_1():
    """A mean with its deviation may leave that range, and the axis goes from -0.03 to 1.05."""
    svg = draw_lines(lines(1), "t", "x", "y", baseline="arm 0", share=True)
    (band,) = drawn(svg, "fill-opacity: 0.18")
    frame = np.concatenate(drawn(svg, "stroke-linejoin: miter"))
    assert np.ptp(band[:, 1]) == pytest.approx(np.ptp(frame[:, 1]) / 1.08, abs=0.2)
