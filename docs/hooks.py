"""Hooks for MkDocs: pages from outside docs/, links out of it, notebooks and the API.

The pages are written for a repository's host, where links lead to any file. In the site a link to
a page leads to that page, one to a study's folder to its report, and one to any other file or
folder outside docs/ is text that names it. A notebook is shown with what its cells show.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
HOME = "README.md"
"""Front page of docs/: the site shows README's text there, then that page's list."""
OUTSIDE = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
    "policies/pretrained/README.md",
    "sim_assets/README.md",
)
"""Pages of the site that lie elsewhere in the repository, and keep their paths."""
API = {
    "attention": (
        *("", "compositional", "integrations", "kernels", "recurrent", "theory"),
        *("theory.relative_error", "estimators.RandomFeatures"),
    ),
    "policies": ("", "common.contract", "implicit_attention.extractor"),
    "envs": (
        *("", "settings", "bullet", "cameras", "geometry", "camera_reader"),
        *("stepping_stones", "bimanual_sweep", "car_racing"),
    ),
    "training": (
        *("es", "bc", "ppo", "demos", "rollout", "evaluate", "sight", "flops", "plots", "study"),
        *("lerobot", "search", "io.trackers"),
        *("episode", "algorithms.es_config", "algorithms.bc_config"),
        *("algorithms.implicit_bc_config", "algorithms.ppo_config", "compare.config"),
        *("io.checkpoint", "command.errors"),
    ),
    "deploy": ("export", "runtime", "loop"),
}
"""Public modules of each package, "" for itself; what is public of them is in `__all__`."""
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
BADGE = re.compile(r"^\[!\[.*\n\n?", re.MULTILINE)
"""The state of a workflow on the repository's host."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, the notebooks, and the pages of the API."""
    for path in OUTSIDE:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        parts, pictures = [], {}
        for number, cell in enumerate(notebook["cells"]):
            parts.append(as_markdown(cell))
            for picture in pictures_of(cell):
                name = f"{path.stem}-{number}.png"
                pictures[name] = picture
                parts.append(f"![What the cell draws]({name})")
        page = "\n\n".join(parts)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for package in API:
        files.append(File.generated(config, f"api/{package}.md", content=api_page(package)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page's text with links that hold in the site."""
    path = page.file.src_uri
    if path == HOME:
        pages = markdown.replace("# Pages", "## Pages", 1)
        readme = BADGE.sub("", (ROOT / HOME).read_text(encoding="utf-8"))
        return f"{in_site(readme, HOME, path)}\n\n{in_site(pages, f'docs/{HOME}', path)}"
    if path.startswith("api/"):
        return markdown
    return in_site(markdown, path if path in OUTSIDE else f"docs/{path}", path)


def in_site(markdown: str, source: str, page: str) -> str:
    """Markdown of the repository's file `source`, with links as the site's page `page` has them."""

    def rewritten(link: re.Match[str]) -> str:
        image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        path = normpath(join(dirname(source), target))
        if "://" in target or not (ROOT / path).exists():
            return link[0]  # MkDocs says what leads nowhere
        where = site_path(path)
        if where is not None:
            where, _, start = where.partition("#")
            anchor = anchor or (f"#{start}" if start else "")
            return f"{image}[{text}]({relpath(where, dirname(page) or '.')}{anchor})"
        return text if path in text else f"{text} (`{path}`)"

    parts = CODE.split(markdown)  # every second one is a block of code
    return "".join(part if i % 2 else LINK.sub(rewritten, part) for i, part in enumerate(parts))


def site_path(path: str) -> str | None:
    """Return the site's path of a file or folder of the repository; None if it has none."""
    if path == f"docs/{HOME}":
        return f"{HOME}#pages"
    if path == HOME or path in OUTSIDE:
        return path
    if (ROOT / path / "report.html").is_file():
        path = f"{path}/report.html"
    if path.endswith(".ipynb"):
        path = f"{path.removesuffix('.ipynb')}.md"
        return path.removeprefix("docs/")
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return None


def as_markdown(cell: dict[str, Any]) -> str:
    """A notebook's cell, with what it prints."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    first, _, rest = source.partition("\n")
    parts = [f"```bash\n{rest}\n```" if first == "%%bash" else f"```python\n{source}\n```"]
    streams = (out for out in cell["outputs"] if out["output_type"] == "stream")
    parts += [f"```text\n{''.join(out['text']).rstrip()}\n```" for out in streams]
    return "\n\n".join(parts)


def pictures_of(cell: dict[str, Any]) -> Iterator[bytes]:
    """Return the output image of a notebook cell, as PNG."""
    for output in cell.get("outputs", ()):
        if picture := output.get("data", {}).get("image/png"):
            yield base64.b64decode("".join(picture))


def api_page(package: str) -> str:
    """A page of mkdocstrings about a package's modules."""
    paths = (f"{package}.{module}".rstrip(".") for module in API[package])
    return f"# API of {package}\n\n" + "\n".join(f"::: {path}\n" for path in paths)
