"""The best seeds, groups of arms, and runs that stopped for numbers that are not finite."""

import dataclasses
import json

import pytest
import yaml

from tests.training import test_bc
from tests.training.study_jobs import CURVE, STUDY, TWO_STAGES, conduct, files, write_study
from training.command.errors import UserError
from training.command.files import write_json
from training.compare.config import StudyConfig, load_config
from training.compare.evaluations import evaluation_file
from training.compare.jobs import DONE, MISSING
from training.compare.page import render
from training.compare.results import Results, read_results
from training.compare.runs import Stop, all_runs, read_stop, write_stop
from training.compare.study import plan
from training.compare.tables import best, best_pairs, group_pairs, groups

RATES = [
    {"name": f"{map_} {rate}", "group": map_, "set": {}} for map_ in "ab" for rate in (1e-3, 1e-4)
] + [{"name": map_, "group": map_, "set": {}} for map_ in "cde"]


@pytest.fixture
def evaluated(tmp_path):
    """Four seeds, evaluated but for the last four arms; the best two are wanted."""
    study = StudyConfig(**STUDY | {
        "arms": RATES, "baseline": RATES[0]["name"], "seeds": (0, 1, 2, 3), "best_seeds": 2,
        "episodes": 2, "references": (),
    })  # fmt: skip
    (tmp_path / "evaluations").mkdir()
    rewards = {"a-0-001": (1, 5, 2, 4), "a-0-0001": (0, 0, 0, 0), "b-0-001": (3, 1, 3, 3)}
    for name, means in rewards.items():
        for seed, mean in enumerate(means):
            records = [{"reward": mean + more, "success": mean > 2} for more in (-0.5, 0.5)]
            facts = {"records": records, "seeds": [1, 2], "env": "Plain-v0", "env_settings": {}}
            write_json(evaluation_file(tmp_path, f"{name}-s{seed}"), facts)
    return study, tmp_path


def test_the_best_seeds_stand_beside_all(evaluated):
    study, out = evaluated
    results = Results(study, out)
    pairs = best_pairs(results)
    assert [[seed for _, seed in kept] for kept in pairs.values()] == [[1, 3], [0, 1], [0, 2]]
    table = best(results, pairs)
    assert [str(cell) for cell in table.rows[0]] == [
        "a 0.001", "4", "3.000 <small>± 1.826</small>", "4.500 <small>± 0.707</small>", "50.0 %",
        "100.0 %", "1, 3",
    ]  # fmt: skip


def test_a_group_is_the_mean_of_its_arms(evaluated):
    study, out = evaluated
    results = read_results(study, out)
    table = groups(results, group_pairs(results))
    assert [list(map(str, row)) for row in table.rows] == [
        ["a", "2 of 2", "1.500 <small>± 2.121</small>", "25.0 %", "0 of 0"],
        ["b", "1 of 2", "2.500", "75.0 %", "0 of 0"],
        *([map_, "0 of 1", "-", "-", "0 of 0"] for map_ in "cde"),
    ]


def test_no_best_are_picked_of_as_few_seeds(evaluated):
    """As with --set 'seeds=[0]' first."""
    study, out = evaluated
    few = Results(dataclasses.replace(study, seeds=(0, 1)), out)
    assert best_pairs(few) == {}
    assert best(few, {}) is None


def test_the_page_says_that_picking_the_best_is_biased(evaluated):
    study, out = evaluated
    page = render(read_results(study, out), "the command", [])
    for words in ("The best 2 of 4 seeds", "biased upward", "Groups of variants", "1 of 2"):
        assert words in page


def test_a_loss_that_is_not_finite_stops_a_run_for_good(tmp_path, capsys):
    """A weight decay of 1,000 a step grows weights until they overflow."""
    job = test_bc.SMALL | {"expert_episodes": 2, "episodes": 2, "iterations": 1}
    (tmp_path / "bc.yaml").write_text(yaml.safe_dump(job))
    arms = [
        {"name": f"decay {decay:g}", "group": "positive",
         "set": {"feature_map": "positive", "weight_decay": decay}}
        for decay in (0, 1e6)
    ]  # fmt: skip
    path = write_study(
        tmp_path, stages=[{"trainer": "bc", "config": "bc.yaml"}], arms=arms,
        curves=[{**CURVE, "points": [{"x": 1, "set": {"episode_s": 0.4}}]}],
        baseline="decay 0", references=[], seeds=[0], episodes=3, videos=False,
    )  # fmt: skip
    out, run = tmp_path / "out", tmp_path / "out" / "runs" / "decay-1e-06-s0"
    assert conduct(path, out) == 0
    assert f"stopped for good: train {run.name}" in capsys.readouterr().out
    stop = read_stop(run)
    assert stop.iterations == 0
    assert "where finite numbers are needed" in stop.reason
    assert not list(out.glob(f"evaluations/{run.name}*"))
    page = (out / "report.html").read_text()
    for words in ("<h2>Not finite</h2>", "<td>decay 1e+06</td>", ", by group", "0 of 1"):
        assert words in page
    assert "1 of 2: decay 1e+06" in page
    assert "The study is not finished" not in page
    before = files(out)
    assert conduct(path, out) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert files(out) == before
    record, again = tmp_path / "record", tmp_path / "again"
    assert conduct(path, out, "--record", str(record)) == 0
    assert conduct(path, again, "--unpack", str(record), "--page") == 0
    assert read_stop(again / "runs" / run.name) == stop


def test_what_begins_from_a_stopped_run_stops_too(tmp_path):
    path, out = write_study(tmp_path, stages=TWO_STAGES, seeds=[0], videos=False), tmp_path / "out"
    study = load_config(path)
    runs = all_runs(study, path, out)
    first, second = runs[1]
    assert f"evaluate {second.directory.name}" in [unit.label for unit in plan(study, out, runs)]
    write_stop(first.directory, Stop(0, "loss nan"))
    assert first.status() == DONE
    assert second.status() == MISSING
    second.execute()
    assert second.status() == DONE
    assert second.stop == Stop(0, "the stage before stopped: loss nan")
    left = [unit.label for unit in plan(study, out, runs)]
    assert f"evaluate {second.directory.name}" not in left
    assert f"evaluate {runs[0][1].directory.name}" in left
    (second.directory / "stopped.json").write_text(json.dumps({"iterations": -1}))
    with pytest.raises(UserError, match=r"stopped.json is damaged"):
        second.status()
