"""The documentation site builds without network access or warnings, and its links are valid."""

import ast
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).resolve().parents[1]
missing = [name for name in ("mkdocs", "material", "mkdocstrings") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason="the extra `docs` is not installed")
WITHOUT_NETWORK = (
    "import socket; socket.socket.connect = socket.getaddrinfo = None; "
    "from mkdocs.__main__ import cli; cli()"
)
"""MkDocs without network access."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}


class Tags(HTMLParser):
    """A page's links, what it loads, and the places that links can lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links, self.loads, self.ids = [], [], set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]):
            self.loads.append(found[LOADED[tag]])


def build(config, folder):
    command = [sys.executable, "-c", WITHOUT_NETWORK, "build", "--strict"]
    command += ["--config-file", str(config), "--site-dir", str(folder)]  # --quiet hides warnings
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def tags(site):
    return {page: Tags(page) for page in site.rglob("*.html") if page.name != "404.html"}


@pytest.fixture(scope="module")
def hooks():
    return runpy.run_path(str(ROOT / "docs" / "hooks.py"))


def is_elsewhere(address):
    return address.startswith("//") or re.match(r"\w+://", address) is not None


def test_every_link_leads_to_a_file_and_a_place_in_it(tags):
    wrong = []
    for page, found in tags.items():
        for link in [*found.links, *found.loads]:
            if is_elsewhere(link) or link.startswith(("data:", "javascript:")):
                continue
            path, anchor = urldefrag(link)
            target = (page.parent / unquote(path)).resolve() if path else page
            if target.is_dir():
                target /= "index.html"
            known = tags[target].ids if target in tags else None
            if not target.is_file() or (anchor and known and unquote(anchor) not in known):
                wrong.append((page.name, link))
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere(site, tags):
    loads = {(page.name, load) for page, found in tags.items() for load in found.loads}
    assert [load for load in loads if is_elsewhere(load[1])] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:\w+:)?//[^)]*", styles) == []


def test_every_page_and_the_readme_are_there(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "Train robot policies that look only where it matters" in home
    assert 'id="pages"' in home
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    shown = {path.relative_to(site) for path in site.rglob("*.html")}
    assert pages - {Path("README.html")} - shown == set()


def test_every_notebook_is_a_page_with_its_images(site, tags):
    files = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert files
    for file in files:
        page = site / "notebooks" / f"{file.stem}.html"
        pictures = [load for load in tags[page].loads if load.startswith(f"{file.stem}-")]
        assert len(pictures) == file.read_text(encoding="utf-8").count('"image/png"') > 0
        assert file.stem + ".html" in (site / "index.html").read_text(encoding="utf-8")


def test_every_public_name_is_on_its_packages_page(tags, site):
    for package in ("attention", "policies", "envs"):
        ids = filter(None, tags[site / "api" / f"{package}.html"].ids)
        shown = {name.rpartition(".")[2] for name in ids}
        tree = ast.parse((ROOT / package / "__init__.py").read_text())
        public = next(
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        assert set(public) - shown == set()


def test_every_command_is_on_the_page_of_its_package(tags, site):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = {target.partition(":")[0] for target in project["scripts"].values()}
    for module in modules:
        package = module.partition(".")[0]
        assert module in tags[site / "api" / f"{package}.html"].ids


@pytest.mark.parametrize(
    ("source", "written", "shown"),
    [
        ("docs/a.md", "[a](guide/training.md#start)", "[a](guide/training.md#start)"),
        ("docs/a.md", "[a](../examples/README.md)", "[a](examples/README.md)"),
        ("docs/a.md", "[how](../training/study.py)", "how (`training/study.py`)"),
        ("docs/a.md", "[a](studies/car_racing)", "[a](studies/car_racing/report.html)"),
        ("docs/a.md", "[a](https://gymnasium.farama.org)", "[a](https://gymnasium.farama.org)"),
        ("README.md", "![a](docs/images/walk.webp)", "![a](images/walk.webp)"),
        (
            "README.md",
            "[a](docs/notebooks/train_a_policy.ipynb)",
            "[a](notebooks/train_a_policy.md)",
        ),
        ("README.md", "```\n[a](SECURITY.md)\n```", "```\n[a](SECURITY.md)\n```"),
    ],
)
def test_links_are_turned_into_those_of_the_site(hooks, source, written, shown):
    assert hooks["in_site"](written, source, "a.md") == shown


def test_a_link_goes_up_from_a_folder(hooks):
    page = "examples/README.md"
    assert hooks["in_site"]("[a](../docs/guide/memory.md)", page, page) == "[a](../guide/memory.md)"


@pytest.mark.parametrize("link", ["nowhere.md", "#no-such-place", "memory.md#no-such-place"])
def test_a_link_that_leads_nowhere_is_an_error(link, tmp_path):
    """Of the settings in mkdocs.yml, with a site of two pages."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    validation = re.search(r"^validation:.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    assert validation is not None
    (tmp_path / "mkdocs.yml").write_text(f"site_name: Two\n{validation[0]}")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# One\n\n[a]({link})\n")
    (tmp_path / "docs" / "memory.md").write_text("# Two\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert link.rpartition("#")[2] in done.stderr


def test_search_works_on_a_page_opened_as_a_file(site, tmp_path):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--dump-dom",
        f"{(site / 'examples' / 'index.html').as_uri()}?q=LinearMemory",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.findall(r'href="([^"]*)" class="md-search-result__link"', done.stdout)
    assert any(link.endswith("api/attention.html#attention.LinearMemory") for link in found)
