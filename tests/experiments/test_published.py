"""docs/results/experiments.md quotes the tables in docs/experiments rightly."""

import csv
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import CONFIGS, main
from experiments.config import load_config, task
from training.analysis.intervals import seeds_interval

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "results" / "experiments.md"
MEASURES = {
    "accuracy": "accuracy", "word errors": "wer", "perplexity": "perplexity",
    "Wasserstein": "wasserstein",
}  # fmt: skip
"""By the heading of the second column."""
TABLE = re.compile(
    r"\(\.\./experiments/(\w+)/report\.html\)[^|]*\n\n"
    r"\| variant \| ([^|]+) \|.*\n\|[-|]+\n((?:\|.*\n)+)"
)
PAIRS = re.compile(r"\| (\w+): better according to the paper \|.*\n\|[-|]+\n((?:\|.*\n)+)")
SUMMARY = re.compile(r"\| task \| exact attention \|.*\n\|[-|]+\n((?:\|.*\n)+)")

VERDICTS = ("holds", "the other way", "not told apart")

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the sources' docs/")


def quoted():
    for name, measure, rows in TABLE.findall(PAGE.read_text() if PAGE.is_file() else ""):
        for row in rows.splitlines():
            arm, cell = (part.strip() for part in row.split("|")[1:3])
            yield pytest.param(name, MEASURES[measure], arm, cell, id=f"{name}-{arm}")


def record(name):
    return [*csv.DictReader((DOCS / "experiments" / name / "table.csv").read_text().splitlines())]


def shown(values, digits):
    interval = seeds_interval(values)
    around = ""
    if interval is not None:
        to = "-" if interval[0] >= 0 else " to "
        around = f" ({interval[0]:.{digits}f}{to}{interval[1]:.{digits}f})"
    return f"{values.mean():.{digits}f}{around}"


@pytest.mark.parametrize(("name", "measure", "arm", "cell"), [*quoted()])
def test_a_quoted_mean_and_its_interval_are_those_of_the_record(name, measure, arm, cell):
    values = np.array([float(row[measure]) for row in record(name) if row["arm"] == arm])
    assert cell == shown(values, len(cell.split()[0].partition(".")[2]))


def test_quoted_differences_are_of_the_papers_orders_and_those_of_the_record():
    tables = PAIRS.findall(PAGE.read_text())
    assert tables
    for name, rows in tables:
        experiment = load_config(CONFIGS / f"{name}.yaml")
        measure = task(experiment.task).measures[0]
        claimed = {pair for one in experiment.orderings for pair in pairwise(one.arms)}
        found = defaultdict(dict)
        for row in record(name):
            found[row["arm"]][row["seed"]] = float(row[measure.name])
        for line in rows.splitlines():
            better, worse, cell = (part.strip() for part in line.split("|")[1:4])
            assert {better, worse} <= set(found)
            assert (better, worse) in claimed
            sign = 1 if measure.higher_is_better else -1
            both = [sign * (found[better][s] - found[worse][s]) for s in found[better]]
            assert cell == shown(np.array(both), len(cell.split()[0].partition(".")[2]))


@pytest.mark.parametrize(
    ("name", "words"), [("softmax_errors", "10,000"), ("softmax_errors_wikitext2", "33,278")]
)
def test_quoted_lengths_are_those_of_the_record(name, words):
    text = (DOCS / "experiments" / name / "lengths.csv").read_text()
    rows = [*csv.DictReader(text.splitlines())]
    for vectors in ("queries", "keys"):
        cells = (
            f"{float(row[vectors]):.2f}" for row in rows if row["quantile"] in ("0", "0.5", "1")
        )
        assert f"| {vectors}, {words} words | {' | '.join(cells)} |" in PAGE.read_text()


def test_figures_of_the_summary_stand_in_a_table_below_it():
    page = PAGE.read_text()
    (summary,) = SUMMARY.findall(page)
    below = page[page.index(summary) + len(summary) :]
    below += "".join(
        (DOCS / name).read_text() for name in ("results/figure_4.md", "results/bimanual_sweep.md")
    )
    figures = re.findall(
        r"\d+\.\d+|\d{3,}",
        re.sub(r"0\.\d\d of exact's|[\d,]+( to [\d,]+)? (words|tokens)", "", summary),
    )
    assert len(figures) > 20
    assert not [one for one in figures if not re.search(rf"\| {re.escape(one)}\b", below)]


def test_every_record_is_of_a_shipped_experiment_and_quoted():
    told = {param.values[0] for param in quoted()}
    for folder in (DOCS / "experiments").iterdir():
        arms = {arm.name for arm in load_config(CONFIGS / f"{folder.name}.yaml").arms}
        assert {row["arm"] for row in record(folder.name)} <= arms
        assert f"experiments/{folder.name}/report.html" in PAGE.read_text()
    assert told


def test_pairs_that_come_out_are_counted_by_the_tables(capsys):
    for folder in (DOCS / "experiments").iterdir():
        assert main([folder.name, "--orders", str(folder)]) == 0
    told = capsys.readouterr().out
    holds, other, not_told = (told.count(f"  {verdict}: ") for verdict in VERDICTS)
    assert (
        f"Of {holds + other + not_told} pairs of variants that the papers rank, "
        f"{holds} are confirmed, {other} are reversed, and {not_told} cannot be distinguished."
    ) in " ".join(PAGE.read_text().split())
