"""docs/experiments.md quotes the tables in docs/experiments rightly."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import CONFIGS
from experiments.config import load_config
from training.evaluation.intervals import seeds_interval

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "experiments.md"
MEASURES = {
    "accuracy": "accuracy", "word errors": "wer", "perplexity": "perplexity",
    "Wasserstein": "wasserstein",
}  # fmt: skip
"""By the heading of the second column."""
TABLE = re.compile(
    r"\(experiments/(\w+)/report\.html\)[^|]*\n\n\| arm \| ([^|]+) \|.*\n\|[-|]+\n((?:\|.*\n)+)"
)

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the sources' docs/")


def quoted():
    for name, measure, rows in TABLE.findall(PAGE.read_text() if PAGE.is_file() else ""):
        for row in rows.splitlines():
            arm, cell = (part.strip() for part in row.split("|")[1:3])
            yield pytest.param(name, MEASURES[measure], arm, cell, id=f"{name}-{arm}")


@pytest.mark.parametrize(("name", "measure", "arm", "cell"), [*quoted()])
def test_a_quoted_mean_and_its_interval_are_those_of_the_record(name, measure, arm, cell):
    record = csv.DictReader((DOCS / "experiments" / name / "table.csv").read_text().splitlines())
    values = np.array([float(row[measure]) for row in record if row["arm"] == arm])
    digits = len(cell.split()[0].partition(".")[2])
    shown = f"{values.mean():.{digits}f}"
    interval = seeds_interval(values)
    if interval is not None:
        shown += f" ({interval[0]:.{digits}f} to {interval[1]:.{digits}f})"
    assert cell == shown


def test_every_record_is_of_a_shipped_experiment_and_quoted():
    told = {param.values[0] for param in quoted()}
    for folder in (DOCS / "experiments").iterdir():
        arms = {arm.name for arm in load_config(CONFIGS / f"{folder.name}.yaml").arms}
        rows = csv.DictReader((folder / "table.csv").read_text().splitlines())
        assert {row["arm"] for row in rows} <= arms
        assert f"experiments/{folder.name}/report.html" in PAGE.read_text()
    assert told
