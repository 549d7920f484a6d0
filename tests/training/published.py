"""What the tests of the studies in docs/studies share."""

import tempfile
from functools import cache
from pathlib import Path

import pytest

from training.compare.config import load_config
from training.compare.record import unpack
from training.compare.summary import summarise

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
    """A study's configuration, with fields set, and what it came to."""
    study = load_config(ROOT / "configs" / "studies" / f"{name}.yaml", changes)
    return study, summarise(study, unpacked(name))


def quoted(name, end):
    """Cells after the first of the rows of a document's tables that end like that."""
    lines = (ROOT / name).read_text().splitlines()
    return [line.split(" | ", 1)[1] for line in lines if line.startswith("| ") and end in line]
