"""Every command on a task that nobody here knows: described as CONTRIBUTING says, or not at all."""

import csv
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import envs
from tests.helpers import refused, run_command
from tests.training import third_task  # noqa: F401 - registers Bare-v0
from training import bc, demos, es, evaluate, flops, plots, rollout, study
from training.analysis.agents import find_agents
from training.io import checkpoint

ROOT = Path(__file__).resolve().parents[2]
RING, BARE = "ring:Ring-v0", "tests.training.third_task:Bare-v0"
ONCE = ["popsize=4", "terrains=1", "center_terrains=1", "workers=1", "searcher.name=ars"]


@pytest.fixture(scope="module", autouse=True)
def ring(tmp_path_factory):
    """The folder that CONTRIBUTING describes, as a package outside."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    block = r"^`(ring/\w+\.py)`(?:(?!```).)*```py\n(.*?)```$"
    files = re.findall(block, page, re.MULTILINE | re.DOTALL)
    root = tmp_path_factory.mktemp("outside")
    (root / "ring").mkdir()
    for name, text in files:
        (root / name).write_text(text)
    sys.path.insert(0, str(root))
    yield {name for name, _ in files}
    sys.path.remove(str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == "ring"]:
        del sys.modules[name]
    envs.task._TASKS.pop("Ring-v0", None)


def ran(command, *words):
    assert run_command(command, *words) == 0


def trained(tmp_path_factory, name, env_id, *settings):
    out = tmp_path_factory.mktemp(name) / "run"
    ran(es, "--out", out, "--set", f"env_id={env_id}", "iterations=2", *ONCE, *settings)
    return out


@pytest.fixture(scope="module")
def described(tmp_path_factory, ring):
    return trained(tmp_path_factory, "described", RING, "env.steps=6", "policy.keep_tokens=4")


@pytest.fixture(scope="module")
def bare(tmp_path_factory, ring):
    return trained(tmp_path_factory, "bare", BARE, "env.length=7")


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_has_the_whole_folder(ring):
    assert ring == {"ring/config.py", "ring/env.py", "ring/task.py", "ring/__init__.py"}
    importlib.import_module("ring")
    assert envs.find_task(RING).settings.__name__ == "RingConfig"


def test_columns_of_the_metrics_come_from_the_outcomes(described, bare):
    rows = table(described / "metrics.csv")
    assert {"center_away_rad", "away_rad_mean", "stuck_rate"} <= rows[0].keys()
    assert "center_stuck" not in rows[0]
    assert 0 < float(rows[-1]["away_rad_mean"]) < np.pi
    assert 0 <= float(rows[-1]["success_rate"]) <= 1
    (last,) = table(bare / "metrics.csv")[1:]
    assert not {"distance_m_mean", "fall_rate", "center_distance_m"} & last.keys()
    assert last["center_success"] == "nan"


def test_a_preset_hands_its_environments_settings_to_no_other(described, bare):
    of_ring, of_bare = (
        checkpoint.load(checkpoint.resolve(run)).config for run in (described, bare)
    )
    assert of_ring["env"] == {"size_px": 16, "steps": 6}
    assert of_bare["env"] == {"length": 7}
    for config in (of_ring, of_bare):
        assert config["curriculum"] == []
        assert config["episode_s"] is None
        assert config["policy"]["patch"] == [4, 4]  # a policy's own, not the preset's pixels
    assert of_bare["policy"]["keep"] == 0.5


def test_episodes_are_described_in_the_tasks_words(described, bare, capsys):
    ran(rollout, described, "--env", RING)
    assert re.match(
        r"seed 100000: \d\.\d\d rad(, was stuck)? after 20 steps, reward -?\d+\.\d{3}\n"
        r"mean of 1: \d\.\d\d rad, [01] of 1 was stuck, [01] succeeded, reward",
        capsys.readouterr().out,
    )
    ran(rollout, bare, "--env", BARE)
    assert re.match(r"seed 100000: 7 steps, reward \d\.000\n", capsys.readouterr().out)


def test_evaluations_hold_the_tasks_own_means(described, bare, tmp_path, capsys):
    words = ("--episodes", 3, "--env", RING, "--policy", "oracle", "--policy", "random")
    ran(evaluate, described, *words, "--out", tmp_path / "ring", "--set", "steps=10")
    entries = json.loads((tmp_path / "ring" / "evaluation.json").read_text())
    assert [entry["name"] for entry in entries] == ["run", "oracle", "random"]
    assert entries[1]["away_rad_mean"] < entries[2]["away_rad_mean"]
    assert entries[1]["success_rate"] == 1.0
    assert all(entry["away_rad_sem"] > 0 and 0 <= entry["stuck_rate"] <= 1 for entry in entries)
    assert all(entry["env_settings"] == {"size_px": 16, "steps": 10} for entry in entries)
    assert "distance rad" in capsys.readouterr().out
    words = ("--policy", "random", "--episodes", 20, "--env", BARE)
    ran(evaluate, bare, *words, "--out", tmp_path / "b")
    entries = json.loads((tmp_path / "b" / "evaluation.json").read_text())
    assert {entry["success_rate"] for entry in entries} == {None}
    assert 2 < entries[1]["reward_mean"] < 5
    assert len({record["reward"] for record in entries[1]["records"]}) > 2


def test_scripted_policies_play_the_environment_of_the_run(described, bare):
    learned, scripted = find_agents([str(bare)], ["random"], BARE, [])
    assert scripted.env_id == learned.env_id
    assert scripted.env_settings == learned.env_settings == {"length": 7}
    learned, scripted = find_agents([str(described)], ["random"], RING, ["steps=9"])
    assert scripted.env_id == learned.env_id
    assert scripted.env_settings == learned.env_settings == {"size_px": 16, "steps": 9}


def test_videos_plots_and_costs(described, bare, tmp_path, capsys):
    ran(rollout, described, "--env", RING, "--video", tmp_path / "film.gif")
    assert (tmp_path / "film.gif").stat().st_size > 100
    for run in (described, bare):
        ran(plots, run, "--out", tmp_path / "curves.png")
    ran(flops, described, "--env", RING)
    ran(flops, bare, "--env", BARE)
    assert "FLOPs" in capsys.readouterr().out


def test_the_expert_is_cloned_and_recorded(tmp_path, capsys):
    settings = ["iterations=1", "expert_episodes=2", "episodes=2", "updates=3", "workers=1"]
    out = tmp_path / "clone"
    ran(bc, "--out", out, "--set", f"env_id={RING}", "env.steps=4", *settings)
    assert {"away_rad_mean", "stuck_rate"} <= table(out / "metrics.csv")[0].keys()
    recorded = tmp_path / "demos"
    words = ("--env", RING, "--episodes", 2, "--workers", 1, "--set", "steps=4")
    ran(demos, *words, "--out", recorded)
    assert "away_rad" in capsys.readouterr().out
    assert bc.main(["--set", f"env_id={BARE}", "--out", str(tmp_path / "none")]) == 2
    assert "has no expert_action() that could be cloned" in capsys.readouterr().err


def test_a_study_has_a_page(tmp_path, capsys):
    job = {"env_id": RING, "env": {"steps": 4}, "popsize": 4, "searcher": {"name": "ars"}}
    job |= {"iterations": 1, "terrains": 1, "center_terrains": 1, "workers": 1}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    arms = [{"name": "exact", "set": {"feature_map": "softmax"}}, {"name": "hybrid", "set": {}}]
    study_file = {
        "title": "Ring", "stages": [{"trainer": "es", "config": "job.yaml"}], "arms": arms,
        "baseline": "exact", "seeds": [0], "references": ["oracle"], "episodes": 2, "env": {},
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(json.dumps(study_file))
    ran(study, "--config", tmp_path / "study.yaml", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "distance (rad)" in page
    assert "in bowls</th>" not in page


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            [f"env_id={RING}", "env.size=9"],
            "unknown key env.size; the keys known there are",
        ),
        ([f"env_id={RING}", "env.size_px=2"], "env.size_px = 2, but input should be greater than"),
        ([f"env_id={BARE}", "env.length=0"], "RuntimeError: length is too short (/"),
        ([f"env_id={BARE}", "env.length=x"], "'<' not supported between instances of 'str'"),
        (["env_id=Nowhere-v0"], "env_id = 'Nowhere-v0': Environment `Nowhere` doesn't exist."),
        ([f"env_id={RING}", "episode_s=3"], "unknown key env.episode_s; the keys known there are"),
        ([f"env_id={RING}", "curriculum=[{steps: 3}]"], "curriculum.0 may hold nothing, which an"),
    ],
)
def test_settings_that_it_does_not_take_are_one_sentence(tmp_path, capsys, words, sentence):
    refused(capsys, es, ["--out", str(tmp_path / "run"), "--set", *words], sentence)
    assert not (tmp_path / "run").exists()


def test_a_strangers_run_imports_no_module(described, tmp_path, monkeypatch, capsys):
    """What stands in a run's files is no word of the user's."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "ring"]:
        monkeypatch.delitem(sys.modules, name)
    for command in (rollout, evaluate, flops):
        refused(capsys, command, [str(described)], "it would import ring, which only --env or")
    ran(plots, described, "--out", tmp_path / "curves.png")
    assert not any(name.partition(".")[0] == "ring" for name in sys.modules)
