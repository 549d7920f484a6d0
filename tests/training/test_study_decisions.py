"""Sections of a study's page: time and memory of decisions, and the held-out loss of cloning."""

import dataclasses
import re
from pathlib import Path

import numpy as np
from markupsafe import escape

from tests.training.published import ROOT, needs_studies, published, unpacked
from training.algorithms.bc_config import BCConfig
from training.compare.config import StudyConfig
from training.compare.results import Results, Row, Scores
from training.compare.runs import TrainingJob, all_runs
from training.compare.tables import decisions, held_out

STUDY = StudyConfig(
    title="T",
    stages=({"trainer": "bc", "config": "x"},),
    arms=[{"name": "exact"}, {"name": "lin<ear"}],
    baseline="exact",
    seeds=(0, 1, 2),
)
COST = {
    "attention": 2_000_000, "total": 3_000_000, "latency_ms": 1.0, "parameters": 3,
    "p50_ms": 1.25, "p99_ms": 2.5, "state": 12_345,
}  # fmt: skip
OLD = COST | {"p50_ms": None, "p99_ms": None, "state": None}


def rows_of(*tables):
    """Texts of the cells by the first, of tables as HTML."""
    lines = re.findall(r"<tr>(.*?)</tr>", "".join(map(escape, tables)), re.DOTALL)
    cells = [re.findall(r"<t[dh]>(.*?)</t[dh]>", re.sub("</?small>", " ", line)) for line in lines]
    texts = [[" ".join(cell.split()) for cell in row] for row in cells]
    return {row[0]: row[1:] for row in texts}


def summary(**costs):
    scores = Scores(np.ones((1, 2)), np.ones((1, 2)))
    arms = {name: Row(name, scores, (1, 1), cost=cost) for name, cost in costs.items()}
    return Results(STUDY, Path(), variants=arms)


def test_decisions_have_their_time_and_memory():
    found = summary(exact=COST, **{"lin<ear": OLD})
    assert rows_of(decisions(found)) == {
        "variant": ["attention MFLOPs", "total MFLOPs", "p50 ms", "p99 ms", "state numbers"],
        "exact": ["2.000", "3.000", "1.250", "2.500", "12,345"],
        "lin&lt;ear": ["2.000", "3.000", "-", "-", "-"],
    }


def test_what_nobody_measured_or_carries_is_left_out():
    assert decisions(summary(exact=OLD)) is None
    assert decisions(summary(exact=None)) is None
    head = rows_of(decisions(summary(exact=COST | {"state": 0})))["variant"]
    assert head[-1] == "p99 ms"


def runs(folder, losses):
    """Runs of two iterations with these last held-out losses, by arm and seed."""
    made = []
    for arm in STUDY.arms:
        for seed, loss in losses[arm.name].items():
            directory = folder / f"{arm.name}-s{seed}"
            directory.mkdir()
            rows = f"iteration,val_loss\n1,9.0\n2,{loss}\n"
            (directory / "metrics.csv").write_text(rows)
            made.append(TrainingJob(arm, seed, 0, directory, "bc", BCConfig(iterations=2)))
    return Results(STUDY, folder, made)


def test_held_out_losses_are_those_of_the_last_iteration(tmp_path):
    losses = {"exact": {0: 1.0, 1: 2.0, 2: 3.0}, "lin<ear": {0: 1.5, 2: 3.5}}
    found = rows_of(*held_out(runs(tmp_path, losses)))
    assert found["variant"][2:] == ["seed 0", "seed 1", "seed 2"]
    assert found["exact"] == ["2.000 -0.4841 to 4.484", "-", "1.000", "2.000", "3.000"]
    mean, more, *by_seed = found["lin&lt;ear"]
    assert mean.startswith("2.500 ")
    assert more == "+0.500 +0.500 to +0.500"
    assert by_seed == ["1.500", "-", "3.500"]


def test_a_single_seed_has_no_interval(tmp_path):
    found = rows_of(*held_out(runs(tmp_path, {"exact": {1: 2.0}, "lin<ear": {}})))
    assert found["exact"] == ["2.000", "-", "-", "2.000", "-"]
    assert "lin&lt;ear" not in found


def test_runs_that_cloned_nothing_have_no_section(tmp_path):
    made = runs(tmp_path, {"exact": {0: "nan"}, "lin<ear": {}})
    assert held_out(made) == []


@needs_studies
def test_studies_from_before_have_held_out_losses_and_no_times():
    config, measured = published("stepping_stones_repair")
    path = ROOT / "configs" / "studies" / "stepping_stones_repair.yaml"
    out = unpacked("stepping_stones_repair")
    stages = all_runs(config, path, out)
    runs = [run for some in stages for run in some]
    found = rows_of(*held_out(dataclasses.replace(measured, runs=runs)))
    assert {arm.name for arm in config.arms} <= set(found)
    assert decisions(measured) is None
