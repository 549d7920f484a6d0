"""A study that is interrupted or killed resumes at the same episode of an evaluation."""

import json
import shutil

import pytest
import yaml

from tests.training import test_bc, walk_env
from tests.training.study_jobs import (
    CURVE,
    TWO_STAGES,
    WALK,
    conduct,
    figures,
    files,
    write_study,
)
from training import study
from training.compare.evaluations import EvaluationJob, evaluation_file, unfinished
from training.compare.jobs import DONE, MISSING
from training.compare.runs import Stop, all_runs, read_stop, write_stop
from training.compare.study import plan
from training.io.config import UserError

SEEDS = [100_000, 100_001, 100_002, 100_003, 100_004]


def test_only_its_own_left_overs_are_removed(plain, tmp_path):
    path, whole = plain
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "evaluations" / "oracle.json").unlink()
    own = ["evaluations/.oracle.json.99999999", "evaluations/exact-s0.jsonl"]
    others = [
        ".notes.tar.gz", ".report.html.old", "evaluations/.mine.json.bak", "evaluations/mine.jsonl",
    ]  # fmt: skip
    for name in own + others:
        (out / name).write_text("")
    (out / "runs" / "exact-s0" / "checkpoints" / "best.safetensors").write_text("")
    assert conduct(path, out) == 0
    assert [name for name in own + others if (out / name).exists()] == others


def test_control_c_says_how_to_resume(tmp_path, monkeypatch, capsys):
    def interrupt(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(EvaluationJob, "execute", interrupt)
    path, out = write_study(tmp_path), tmp_path / "out"
    assert conduct(path, out) == 130
    printed = capsys.readouterr().out
    assert f"resume with: python -m training.study --config {path} --out {out}" in printed
    assert "The study is not finished" in (out / "report.html").read_text()


@pytest.fixture
def played(monkeypatch):
    """Seeds of the started episodes; the one whose seed is `stop_at` stops all."""
    reset = walk_env.WalkEnv.reset

    class Played(list):
        stop_at = None

    seeds = Played()

    def begin(self, *, seed=None, options=None):
        if seed == seeds.stop_at:
            raise KeyboardInterrupt
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(walk_env.WalkEnv, "reset", begin)
    return seeds


def evaluation(folder):
    """The evaluation of the oracle in a new folder."""
    folder.mkdir()
    return EvaluationJob(study.load_config(write_study(folder)), folder, "oracle", WALK, {})


def stopped(folder, played):
    """An evaluation that was stopped in its fourth episode, and the file of its episodes."""
    conditions = evaluation(folder)
    played.stop_at = SEEDS[3]
    with pytest.raises(KeyboardInterrupt):
        conditions.execute()
    assert played == SEEDS[:3]
    assert conditions.status() == MISSING
    played.clear()
    played.stop_at = None
    return conditions, unfinished(evaluation_file(folder, "oracle"))


@pytest.fixture
def whole(tmp_path, played):
    """What an evaluation comes to that was not stopped."""
    evaluation(tmp_path / "whole").execute()
    assert played == SEEDS
    played.clear()
    return figures(tmp_path / "whole")


def test_it_goes_on(tmp_path, played, whole):
    conditions, file = stopped(tmp_path / "out", played)
    conditions.execute()
    assert played == SEEDS[3:]
    assert figures(tmp_path / "out") == whole
    assert not file.exists()


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda text: text[:-20], 2),  # killed while it wrote
        (lambda text: text.replace('"seed": 100001', '"seed": 7'), 1),
        (lambda text: text.replace('"env": {}', '"env": {"wind": 0.5}'), 0),  # other settings
        (lambda text: "\0" + text, 0),
    ],
)
def test_what_is_no_episode_of_it_is_played_again(tmp_path, played, whole, damage, left):
    conditions, file = stopped(tmp_path / "out", played)
    text = file.read_text()
    assert text != damage(text)
    file.write_text(damage(text))
    conditions.execute()
    assert played == SEEDS[left:]
    assert figures(tmp_path / "out") == whole


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
    settings = study.load_config(path)
    runs = all_runs(settings, path, out)
    first, second = runs[1]
    assert f"evaluate {second.directory.name}" in [unit.label for unit in plan(settings, out, runs)]
    write_stop(first.directory, Stop(0, "loss nan"))
    assert first.status() == DONE
    assert second.status() == MISSING
    second.execute()
    assert second.status() == DONE
    assert second.stop == Stop(0, "the stage before stopped: loss nan")
    left = [unit.label for unit in plan(settings, out, runs)]
    assert f"evaluate {second.directory.name}" not in left
    assert f"evaluate {runs[0][1].directory.name}" in left
    (second.directory / "stopped.json").write_text(json.dumps({"iterations": -1}))
    with pytest.raises(UserError, match=r"stopped.json is damaged"):
        second.status()
