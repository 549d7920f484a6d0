"""How long the sentences of pages and notebooks are: a line a page, then those over the limit.

    python -m tests.words [FILE ...]

Only prose counts: no code blocks, tables, headings, images, comments or link targets. An inline
code is one word. A list item and a paragraph end a sentence, a colon within one does not.
Fails where README's median is above 14 words, or a sentence of any page has over 30.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MEDIAN_WORDS = 14
LONGEST_WORDS = 30

NO_PROSE = re.compile(r"\||#{1,6}\s|\[[^\]]+\]:\s|([-*_=]\s*){3,}$")
"""Begins a line of a table, a heading, the target of a link, or a rule."""
BULLET = re.compile(r"[-*+]\s+")
NUMBER = re.compile(r"(\d{1,9})[.)]\s+")
ONE_LINK = re.compile(r"\[[^\]]*\]\([^)]*\)\s*")
"""A list item of a link alone, as in a table of contents, is not a sentence."""

END = re.compile(r"(?<=\S)[.!?]+[\"')\]*_”’]*(?=\s)")
NEVER_LAST = {"e.g.", "i.e.", "vs.", "cf.", "approx.", "resp.", "Dr.", "St."}
LAST_BEFORE_A_CAPITAL = {"etc.", "al."}
LAST_UNLESS_BEFORE_A_NUMBER = {"Eq.", "Eqs.", "Fig.", "Figs.", "No.", "no.", "Sec.", "p.", "pp."}


class Sentence(NamedTuple):
    """A sentence, its number of words and the line, from 1, on which it begins."""

    line: int
    words: int
    text: str


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Prose of a Markdown page: each paragraph or list item with the line where it begins."""
    lines: list[str] = []
    first, fence, in_list, after_blank = 0, "", False, True
    # What is cut out keeps its lines, here and below, so that numbers of lines stay true.
    uncommented = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), page, flags=re.DOTALL)
    for number, raw in enumerate([*uncommented.split("\n"), ""], 1):
        line = re.sub(r"^(>\s?)+", "", raw.strip()).strip()
        mark = re.match(r"(`{3,}|~{3,})", line)
        if fence:
            if mark and mark[1].startswith(fence) and line == mark[1]:
                fence = ""
            continue
        if mark:
            fence = mark[1]
        item = BULLET.match(line)
        if not item and (numbered := NUMBER.match(line)):
            # As in CommonMark: "in the year\n2021. Then" is no list.
            item = numbered if not lines or in_list or numbered[1] == "1" else None
        indented = raw.startswith(("    ", "\t")) and after_blank and not in_list
        prose = bool(line) and not (mark or NO_PROSE.match(line) or indented)
        if lines and (item or not prose):
            yield first, "\n".join(lines)
            lines = []
        if prose:
            in_list = bool(item) or (in_list and (not after_blank or raw[:1].isspace()))
            text = line[item.end() :] if item else line
            if not (item and ONE_LINK.fullmatch(text)):
                first = first if lines else number
                lines.append(text)
        after_blank = not line


def plain(paragraph: str) -> str:
    """Without Markdown's marks; inline code loses its spaces, which makes it one word."""

    def one_word(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n") + "_".join(match[0].split())

    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", one_word, paragraph, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", lambda m: "\n" * m[0].count("\n"), text)
    text = re.sub(r"(\[[^\]]*\])(\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"(`[^`]*`)|</?\w[^<>\n]*>|\*\*", r"\1", text)


def ends(before: str, after: str) -> bool:
    """Whether a sentence ends between: at full stops that no abbreviation needs."""
    last = before.split()[-1].lstrip("([\"'*_")
    following = after.lstrip().lstrip("([\"'*_")
    if last.endswith("...") and following[:1].islower():
        return False
    if last in LAST_BEFORE_A_CAPITAL:
        return following[:1].isupper()
    if last in LAST_UNLESS_BEFORE_A_NUMBER:
        return not following[:1].isdigit()
    return last not in NEVER_LAST


def sentences(page: str) -> list[Sentence]:
    """Those of a Markdown page's prose, in order."""
    found = []
    for first, paragraph in paragraphs(page):
        text = plain(paragraph)
        cuts = [m.end() for m in END.finditer(text) if ends(text[: m.end()], text[m.end() :])]
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            one = text[start:end]
            begin = start + len(one) - len(one.lstrip())
            if words := len(re.findall(r"\S*[\w`]\S*", one)):
                line = first + text[:begin].count("\n")
                found.append(Sentence(line, words, " ".join(one.split())))
    return found


def covered() -> list[Path]:
    """The pages that are measured where none is named."""
    top = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md"))
    docs = ROOT / "docs"
    return [*top, *sorted(docs.glob("*.md")), *sorted(docs.glob("notebooks/*.ipynb"))]


def read(path: Path) -> str:
    """A page's text; of a notebook, its cells of text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="pages in place of all")
    parser.add_argument("--over", type=int, default=LONGEST_WORDS, help="list those of more words")
    args = parser.parse_args(arguments)
    wrong = []
    for path in args.files or covered():
        page = sentences(read(path))
        middle = median(s.words for s in page) if page else 0
        longest = max((s.words for s in page), default=0)
        resolved = path.resolve()
        name = resolved.relative_to(ROOT) if resolved.is_relative_to(ROOT) else path
        print(f"{name}: {len(page)} sentences, median {middle:g} words, longest {longest}")
        for one in sorted(page, key=lambda s: -s.words):
            if one.words > args.over:
                print(f"  {name}:{one.line}: {one.words} words: {one.text}")
        if resolved == ROOT / "README.md" and middle > MEDIAN_WORDS:
            wrong.append(
                f"{name}: a median of {middle:g} words, at most {MEDIAN_WORDS} are allowed"
            )
        if longest > LONGEST_WORDS:
            wrong.append(
                f"{name}: a sentence of {longest} words, at most {LONGEST_WORDS} are allowed"
            )
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
