"""PPO against evolution strategies: the same policy and environment, and what is gone on with."""

import dataclasses
import json

import pytest
import yaml

from tests.training.test_es import TOY

pytest.importorskip("stable_baselines3")

from experiments.robots import ppo_against_es
from experiments.robots.ppo_against_es import TASKS, Task, overrides, preset, smooth
from training.algorithms import es_config, ppo_config
from training.io.metrics import read_metrics

SMALL = {"env_id": TOY, "env": {"episode_s": 0.15}, "iterations": 1, "workers": 1,
         "policy": {"patch": [4, 4]}}  # fmt: skip
ES = {"trainer": "es", "popsize": 4, "terrains": 1, "center_terrains": 1}
PPO = {"trainer": "ppo", "steps": 20, "episodes": 4, "center_episodes": 1, "batch_size": 8}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    files = {}
    for trainer, own in (("es", ES), ("ppo", PPO)):
        files[trainer] = str(tmp_path / f"{trainer}.yaml")
        (tmp_path / f"{trainer}.yaml").write_text(yaml.safe_dump(SMALL | own))
    monkeypatch.setitem(TASKS, "toy", Task("toy", files, 100, "distance_m"))
    return tmp_path


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("key", ["stones", "car"])
def test_both_trainers_are_given_the_same_policy_and_environment(key, quick):
    task = TASKS[key]
    jobs = [
        load(preset(task, trainer), overrides(task, trainer, 3, quick))
        for trainer, load in (("es", es_config.load_config), ("ppo", ppo_config.load_config))
    ]
    for key in ("env_id", "env", "policy", "seed"):
        assert getattr(jobs[0], key) == getattr(jobs[1], key)
    assert jobs[0].policy.init_seed == jobs[0].policy.feature_seed == jobs[0].seed == 3


def test_the_presets_of_car_racing_have_one_policy_and_environment():
    es_job = es_config.load_config(preset(TASKS["car"], "es"), [])
    ppo_job = ppo_config.load_config(preset(TASKS["car"], "ppo"), [])
    assert (es_job.env_id, es_job.env) == (ppo_job.env_id, ppo_job.env)
    assert es_job.policy == ppo_job.policy


def test_what_is_done_is_not_done_again_and_a_stopped_run_goes_on(toy, monkeypatch, capsys):
    words = ["toy", "--quick", "--runs", str(toy / "runs"), "--out", str(toy / "out")]
    monkeypatch.setattr(ppo_against_es, "QUICK", {"es": (), "ppo": ()})
    assert ppo_against_es.main(words) == 0
    first = capsys.readouterr().out
    assert "| toy, PPO |" in first
    assert "| toy, PPO less evolution strategies | |" in first
    file = toy / "out" / "ppo_against_es.json"
    found = json.loads(file.read_text())["results"]["toy"]
    assert [len(found[trainer][0]["fresh"]["reward"]) for trainer in ("es", "ppo")] == [2, 2]
    assert (toy / "out" / "ppo_against_es.png").stat().st_size > 10_000
    before = {path: path.read_bytes() for path in (toy / "runs").rglob("*") if path.is_file()}
    assert ppo_against_es.main(words) == 0
    again = json.loads(file.read_text())["results"]["toy"]
    assert again == found
    assert {path: path.read_bytes() for path in before} == before
    assert "done:" not in capsys.readouterr().out  # nothing was trained

    monkeypatch.setitem(TASKS, "other", dataclasses.replace(TASKS["toy"], title="other"))
    assert ppo_against_es.main(["other", *words[1:]]) == 0
    assert "| toy, PPO |" in capsys.readouterr().out  # of the file
    assert json.loads(file.read_text())["results"]["toy"] == found

    more = dataclasses.replace(TASKS["toy"], env_steps=100)
    run = toy / "runs" / "toy-es-s0"
    ppo_against_es.train(run, more, "es", [], more.env_steps)
    steps = read_metrics(run).columns["env_steps"]
    assert steps[-2] < 100 <= steps[-1]
    assert json.loads((run / "cost.json").read_text())["training_cpu_s"] > 0


def test_a_curve_is_means_over_equal_stretches_of_steps():
    x, y = smooth([1, 2, 3, 150], [1.0, 3.0, 5.0, 7.0])
    assert x.tolist() == [2.0, 150.0]
    assert y.tolist() == [3.0, 7.0]
    assert len(smooth(range(1, 301), [0.0] * 300)[0]) == 15


def test_a_task_that_does_not_exist_is_one_sentence(capsys, tmp_path):
    assert ppo_against_es.main(["stone", "--runs", str(tmp_path)]) == 2
    assert "TASK must be of stones, car, got 'stone'" in capsys.readouterr().err
