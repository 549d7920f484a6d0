"""The tables of a study's page: every figure from the episodes and metrics, or none."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from tests.training.published import ROOT, needs_studies, published, unpacked
from tests.training.study_jobs import STUDY
from training.algorithms.bc_config import BCConfig
from training.analysis.intervals import mean_interval
from training.command.files import write_json
from training.compare.config import StudyConfig
from training.compare.evaluations import evaluation_file
from training.compare.page import render
from training.compare.results import Results, Row, Scores, read_results
from training.compare.runs import TrainingJob, all_runs
from training.compare.tables import (
    best,
    best_pairs,
    controls,
    decisions,
    group_pairs,
    groups,
    held_out,
)
from training.io.run_log import provenance


def rows_of(*tables):
    """Texts of the cells by the first, of tables as HTML."""
    lines = re.findall(r"<tr>(.*?)</tr>", "".join(map(escape, tables)), re.DOTALL)
    cells = [re.findall(r"<t[dh]>(.*?)</t[dh]>", re.sub("</?small>", " ", line)) for line in lines]
    texts = [[" ".join(cell.split()) for cell in row] for row in cells]
    return {row[0]: row[1:] for row in texts}


def evaluated(out, who, records, *place):
    """Write an evaluation with these records of rewards and successes."""
    path = evaluation_file(out, who, *place)
    path.parent.mkdir(exist_ok=True)
    facts = [{"reward": reward, "success": float(success)} for reward, success in records]
    write_json(path, {"records": facts, "env": "Plain-v0"})


SUCCESSES = {
    "one": [[1, 1, 0, 0], [1, 0, 0, 0]],
    "other": [[1, 1, 1, 0], [0, 0, 0, 0]],
    "none": [[1, 1, 1, 1], [1, 1, 0, 1]],
}
"""(seeds, scenes) of each variant."""


@pytest.fixture
def windy(tmp_path):
    """Results of two kinds of attention and a control at one point of a curve."""
    curve = {"name": "wind", "xlabel": "wind (m/s)", "episodes": 4,
             "points": [{"x": 2.0, "set": {"wind": 2.0}}]}  # fmt: skip
    for name, of_seeds in SUCCESSES.items():
        for seed, successes in enumerate(of_seeds):
            evaluated(tmp_path, f"{name}-s{seed}", [(1.0, s) for s in successes], "wind", 2.0)
    study = StudyConfig(
        title="T", stages=[{"trainer": "es", "config": "x"}], seeds=[0, 1], baseline="one",
        arms=[{"name": name, "control": name == "none"} for name in SUCCESSES], curves=[curve],
    )  # fmt: skip
    return Results(study, tmp_path)


def test_the_difference_of_a_control_is_that_of_paired_episodes(windy):
    html = escape(controls(windy, windy.study.curves[0]))
    together = np.mean([SUCCESSES["one"], SUCCESSES["other"]], axis=0)
    low, high = mean_interval(100 * (np.array(SUCCESSES["none"]) - together))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells == ["2", "38 %", f"+50 <small>{low:.0f} to {high:.0f}</small>"]
    assert "wind (m/s)" in html


def test_no_difference_without_controls_or_before_all_are_evaluated(windy):
    alone = dataclasses.replace(windy.study, arms=[{"name": name} for name in SUCCESSES])
    assert controls(Results(alone, windy.out), windy.study.curves[0]) is None
    evaluation_file(windy.out, "none-s1", "wind", 2.0).unlink()
    assert controls(windy, windy.study.curves[0]) is None


CLONED = StudyConfig(
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


def costing(**costs):
    scores = Scores(np.ones((1, 2)), np.ones((1, 2)))
    variants = {name: Row(name, scores, (1, 1), cost=cost) for name, cost in costs.items()}
    return Results(CLONED, Path(), variants=variants)


def test_decisions_have_their_time_and_memory():
    """What nobody measured, or keeps in memory, is left out."""
    assert rows_of(decisions(costing(exact=COST, **{"lin<ear": OLD}))) == {
        "variant": ["attention MFLOPs", "total MFLOPs", "p50 ms", "p99 ms", "state numbers"],
        "exact": ["2.000", "3.000", "1.250", "2.500", "12,345"],
        "lin&lt;ear": ["2.000", "3.000", "-", "-", "-"],
    }
    assert decisions(costing(exact=OLD)) is None
    assert decisions(costing(exact=None)) is None
    assert rows_of(decisions(costing(exact=COST | {"state": 0})))["variant"][-1] == "p99 ms"


def losses(folder, by_variant):
    """Results of runs of two iterations with these last held-out losses, by variant and seed."""
    runs = []
    for variant in CLONED.arms:
        for seed, loss in by_variant.get(variant.name, {}).items():
            directory = folder / f"{variant.name}-s{seed}"
            directory.mkdir()
            (directory / "metrics.csv").write_text(f"iteration,val_loss\n1,9.0\n2,{loss}\n")
            runs.append(TrainingJob(variant, seed, 0, directory, "bc", BCConfig(iterations=2)))
    return Results(CLONED, folder, runs)


def test_held_out_losses_are_those_of_the_last_iteration(tmp_path):
    given = {"exact": {0: 1.0, 1: 2.0, 2: 3.0}, "lin<ear": {0: 1.5, 2: 3.5}}
    found = rows_of(*held_out(losses(tmp_path, given)))
    assert found["variant"][2:] == ["seed 0", "seed 1", "seed 2"]
    assert found["exact"] == ["2.000 -0.4841 to 4.484", "-", "1.000", "2.000", "3.000"]
    mean, more, *by_seed = found["lin&lt;ear"]
    assert mean.startswith("2.500 ")
    assert more == "+0.500 +0.500 to +0.500"
    assert by_seed == ["1.500", "-", "3.500"]


@pytest.mark.parametrize(
    ("loss", "cells"), [(2.0, ["2.000", "-", "-", "2.000", "-"]), ("nan", None)]
)
def test_a_single_seed_has_no_interval_and_a_loss_that_is_not_finite_no_row(tmp_path, loss, cells):
    found = rows_of(*held_out(losses(tmp_path, {"exact": {1: loss}})))
    assert found.get("exact") == cells
    assert "lin&lt;ear" not in found


@needs_studies
def test_older_studies_have_held_out_losses_and_no_times():
    config, measured = published("stepping_stones_repair")
    path = ROOT / "configs" / "studies" / "stepping_stones_repair.yaml"
    stages = all_runs(config, path, unpacked("stepping_stones_repair"))
    runs = [run for some in stages for run in some]
    found = rows_of(*held_out(dataclasses.replace(measured, runs=runs)))
    assert {variant.name for variant in config.arms} <= set(found)
    assert decisions(measured) is None


RATES = [
    {"name": f"{map_} {rate}", "group": map_, "set": {}} for map_ in "ab" for rate in (1e-3, 1e-4)
] + [{"name": map_, "group": map_, "set": {}} for map_ in "cde"]


@pytest.fixture
def rated(tmp_path):
    """Results of four seeds, evaluated but for the last four variants; the best two are wanted."""
    study = StudyConfig(**STUDY | {
        "arms": RATES, "baseline": RATES[0]["name"], "seeds": (0, 1, 2, 3), "best_seeds": 2,
        "episodes": 2, "references": (),
    })  # fmt: skip
    rewards = {"a-0-001": (1, 5, 2, 4), "a-0-0001": (0, 0, 0, 0), "b-0-001": (3, 1, 3, 3)}
    for name, means in rewards.items():
        for seed, mean in enumerate(means):
            records = [(mean + more, mean > 2) for more in (-0.5, 0.5)]
            evaluated(tmp_path, f"{name}-s{seed}", records)
    return read_results(study, tmp_path)


def test_the_best_seeds_stand_beside_all(rated):
    """None are picked of as few seeds, as with --set 'seeds=[0]' first."""
    pairs = best_pairs(rated)
    assert [[seed for _, seed in kept] for kept in pairs.values()] == [[1, 3], [0, 1], [0, 2]]
    assert [str(cell) for cell in best(rated, pairs).rows[0]] == [
        "a 0.001", "4", "3.000 <small>± 1.826</small>", "4.500 <small>± 0.707</small>", "50.0 %",
        "100.0 %", "1, 3",
    ]  # fmt: skip
    few = Results(dataclasses.replace(rated.study, seeds=(0, 1)), rated.out)
    assert best_pairs(few) == {}
    assert best(few, {}) is None


def test_against_a_baseline_without_attention_nothing_is_saved(rated):
    costs = {"a 0.001": COST | {"attention": 0}, "b 0.001": COST}
    facts = {"measured": {}, "costs": costs, "provenance": provenance({})}
    write_json(rated.out / "costs.json", facts)
    assert read_results(rated.study, rated.out).variants["b 0.001"].fewer is None


def test_a_group_is_the_mean_of_its_variants(rated):
    table = groups(rated, group_pairs(rated))
    assert [list(map(str, row)) for row in table.rows] == [
        ["a", "2 of 2", "1.500 <small>± 2.121</small>", "25.0 %", "0 of 0"],
        ["b", "1 of 2", "2.500", "75.0 %", "0 of 0"],
        *([map_, "0 of 1", "-", "-", "0 of 0"] for map_ in "cde"),
    ]
    page = render(rated, "the command", [])
    for words in ("The best 2 of 4 seeds", "biased upward", "Groups of variants", "1 of 2"):
        assert words in page
