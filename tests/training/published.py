"""Helpers for the tests of the studies in docs/studies."""

import re
import tempfile
from functools import cache
from pathlib import Path

import pytest

from training.compare.config import load_config
from training.compare.record import unpack
from training.compare.results import read_results

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "docs" / "studies"
needs_studies = pytest.mark.skipif(
    not STUDIES.is_dir(), reason="docs/studies is not part of a source distribution"
)


_FOLDER = tempfile.TemporaryDirectory(prefix="published-")


@cache
def unpacked(name):
    """A study's directory, made of its record."""
    out = Path(_FOLDER.name) / name
    unpack(STUDIES / name, out)
    return out


@cache
def published(name, *changes):
    """A study's configuration, with fields set, and its results."""
    study = load_config(ROOT / "configs" / "studies" / f"{name}.yaml", changes)
    return study, read_results(study, unpacked(name))


def printed(name, section):
    """The first table of a section of a document: cells after the first, by the first."""
    text = (ROOT / name).read_text()
    text = text[text.index(f"# {section}\n") :]
    table = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = [line.strip("|\n").split("|") for line in table[1].splitlines()]
    return {first.strip(): [cell.strip() for cell in cells] for first, *cells in lines}


def row(*cells):
    """A row of a table."""
    return "".join(f"| {cell} " if cell != "" else "| " for cell in cells) + "|"


def around(low, high, digits, of=1):
    """An interval in brackets."""
    return f"({of * low:.{digits}f}-{of * high:.{digits}f})"


def share(scores, digits=1):
    """Success and its interval, in percent."""
    low, high = scores.success_interval
    return f"{100 * scores.success + 1e-9:.{digits}f} {around(low, high, digits, 100)}"


def short(variant):
    """The documents' name of a variant: angular 8x2 has m = 8 and n = 2."""
    name = re.sub(r",? m = n = (\d+)", r" \1x\1", variant.replace(" hybrid", ""))
    name = re.sub(r",? m = (\d+), n = (\d+)", r" \1x\2", name)
    return re.sub(r",? m = (\d+)", r" \1", name)
