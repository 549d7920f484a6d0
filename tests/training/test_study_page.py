"""The page of a study: complete, self-contained, and in order in a real browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import yaml

from tests.training.published import STUDIES, needs_studies
from tests.training.study_jobs import CURVE, WALK, conduct, with_figures, write_study

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VOID = {"meta", "br", "img", "link", "hr"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    arms = [
        {"name": "FAVOR+ m = 16", "set": {"feature_map": "positive", "num_features": 16}},
        {"name": "<b>&none", "set": {"policy.selection": "all"}},
    ]
    changes = {"arms": arms, "seeds": [3], "curves": [CURVE], "title": "Less & <i>less</i>"}
    path = write_study(folder, {"env_id": WALK, "iterations": 3}, **changes)
    with with_figures():
        assert conduct(path, folder / "out") == 0
    return folder / "out"


class Elements(HTMLParser):
    """Tags and attributes of a page; its tags must match."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def elements(out):
    parser = Elements()
    parser.feed((out / "report.html").read_text())
    assert parser.open == []
    return parser.found


def test_it_loads_nothing_from_elsewhere(out, elements):
    text = (out / "report.html").read_text()
    assert {tag for tag, _ in elements} & {"script", "link", "iframe", "object", "image"} == set()
    assert re.findall(r"(?:src|href|action|data)\s*=\s*\"(?:[a-z]+:)?//", text) == []
    assert re.findall(r"url\(\s*['\"]?(?!#)", text) == []
    assert "@import" not in text
    links = [a["href"] for tag, a in elements if tag == "a"]
    assert links
    assert all((out / link).is_file() for link in links)


def test_it_has_title_viewport_language_and_figures(elements):
    tags = [tag for tag, _ in elements]
    assert ("html", {"lang": "en"}) in elements
    assert any(a.get("name") == "viewport" for tag, a in elements if tag == "meta")
    assert tags.count("title") >= 1
    labels = [a["aria-label"] for tag, a in elements if tag == "svg" and "aria-label" in a]
    assert [label.split(",")[0] for label in labels] == [
        "Reward of each variant", *["FLOPs against reward"] * 2, *["Training"] * 3, "head wind",
    ]  # fmt: skip
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_names_are_text_not_markup(out):
    text = (out / "report.html").read_text()
    assert "<title>Less &amp; &lt;i&gt;less&lt;/i&gt;</title>" in text
    assert "<b>" not in text
    assert "2. &lt;b&gt;&amp;none" in text


def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    return found


def dump(page, folder, width):
    """The page's DOM after loading, and what the browser's console said."""
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--disable-background-networking", f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


MEASURE = """<script>
const visible = [...document.querySelectorAll('figure svg')].filter(s => s.clientWidth > 200);
const page = document.documentElement;
document.body.dataset.figures = visible.length;
document.body.dataset.sideways = page.scrollWidth > page.clientWidth;
document.body.dataset.rows = document.querySelectorAll('tbody tr').length;
const tables = [...document.querySelectorAll('.wide')];
document.body.dataset.cut = tables.filter(t => t.scrollWidth > t.clientWidth).length;
</script></body>"""


def opened(page, folder, width):
    """The page's DOM with what MEASURE found; nothing may be in the console."""
    copy = folder / "page.html"
    copy.write_text(page.read_text().replace("</body>", MEASURE))
    dom, messages = dump(copy, folder, width)
    assert messages == []
    return dom


def test_it_opens_in_a_browser(out, tmp_path):
    """Drawn figures, table rows, no message in the console, and no scrolling sideways."""
    dom = opened(out / "report.html", tmp_path, 500)
    assert 'data-figures="7"' in dom
    assert 'data-sideways="false"' in dom
    assert 'data-rows="7"' in dom


@needs_studies
@pytest.mark.records
@pytest.mark.parametrize("page", sorted(STUDIES.glob("*/report.html")), ids=lambda p: p.parent.name)
def test_published_pages_open_with_a_figure_and_at_most_three_lines(page):
    """Then the first table; controls, missing parts and provenance come last, folded."""
    start, _, rest = page.read_text().partition("<table>")
    assert start.index('<figure class="first"><svg') < start.index('class="lead"')
    assert 1 <= start.count('class="lead"') <= 3
    picture = re.search(
        '<img class="task" alt="The task" src="data:image/webp;base64,([^"]+)"', start
    )
    assert 1000 < len(picture[1]) < 10_000
    variants = yaml.safe_load((page.parent / "study.yaml").read_text())["arms"]
    last = rest[rest.index("<details>") :]
    assert ("; controls: " in last) == any(variant["control"] for variant in variants)
    assert "<table>" not in last
    assert ("are at the ceiling" in rest) == ("<td>= " in rest)


@needs_studies
@pytest.mark.records
@pytest.mark.parametrize(
    "name",
    [
        "stepping_stones", "stepping_stones_stages", "stepping_stones_repair", "bimanual_sweep",
        "bimanual_sweep_choices", "car_racing",
    ],
)  # fmt: skip
def test_published_pages_open_in_a_browser(tmp_path, name):
    """The table of results, the first of all, shows every column at once."""
    dom = opened(STUDIES / name / "report.html", tmp_path, 1400)
    assert 'data-sideways="false"' in dom
    assert 'data-cut="0"' in dom


def test_the_browser_would_tell_of_an_error(tmp_path):
    page = tmp_path / "broken.html"
    page.write_text("<!DOCTYPE html><html><body><script>nothing()</script></body></html>")
    _, messages = dump(page, tmp_path, 500)
    assert any("nothing is not defined" in message for message in messages)
