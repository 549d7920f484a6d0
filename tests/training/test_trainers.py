"""Trainers: one object each, one file a new one; who a file is for; environments opened."""

import importlib
import importlib.util
import os
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from tests.training import counted_env, random_search, test_bc, test_es, test_ppo
from tests.training.study_jobs import conduct, write_study
from training import bc, es, ppo
from training.algorithms.command import main as run_trainer
from training.algorithms.registry import TRAINERS, load_any_config, trainer_of
from training.io import checkpoint
from training.io.config import UserError
from training.runner import train

EXPERT = "tests.training.counted_env:CountedExpert-v0"
SEARCH = {
    "trainer": random_search.NAME, "env_id": test_es.TOY, "iterations": 4, "seed": 3, "workers": 1,
    "policy": {"controller": "mlp", "hidden": [4], "patch": [8, 8]},
}  # fmt: skip
COMMANDS = {"es": es, "bc": bc, "ppo": ppo}
needs_ppo = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="needs Stable-Baselines3"
)


def written(folder, data, name="job.yaml"):
    path = folder / name
    path.write_text(yaml.safe_dump(data))
    return path


def rewards(run):
    return [float(line.split(",")[1]) for line in (run / "metrics.csv").read_text().split()[1:]]


# --- a new trainer is one file ---


def test_a_trainer_of_one_file_learns(tmp_path, capsys):
    path, run = written(tmp_path, SEARCH), tmp_path / "run"
    assert run_trainer(random_search.NAME, ["--config", str(path), "--out", str(run)]) == 0
    assert f"python -m tests.training.random_search --resume {run}" in capsys.readouterr().out
    assert rewards(run) == sorted(rewards(run))
    assert rewards(run)[-1] > rewards(run)[0]


LOOP = """
from functools import partial

from pydantic.dataclasses import dataclass

from training.runs import checkpoint
from training.settings import config as configuration
from training.trainers.job_config import STRICT, JobConfig
from training.trainers.lifecycle import Job
from training.trainers.trainer import Trainer
from training.trainers.workers import EpisodeWorker, Task, get_parameters


@dataclass(frozen=True, config=STRICT)
class Config(JobConfig):
    trainer: str = "custom_loop:TRAINER"


def columns(env_id):
    return "iteration", "reward", "wall_s"


prepare = Job


def train(job, run):
    config, policy = job.config, job.policy
    done = 0 if job.start is None else job.start.state["progress"]["iteration"]
    make = partial(EpisodeWorker, policy.state_dict(), *job.settings)
    with job.opened(make, run, done) as (pool, log):
        for iteration in range(done + 1, config.iterations + 1):
            task = Task(get_parameters(policy), policy.normaliser.statistics, iteration, {})
            (outcome,) = pool.run([task])
            log.row({"iteration": iteration, "reward": outcome.episode.reward, "wall_s": 0.0}, "")
            state = {"progress": {"iteration": iteration}}
            plain = configuration.dump(config)
            checkpoint.save_in_run(run, iteration, policy, {}, plain, state)


TRAINER = Trainer(name="custom_loop:TRAINER", config=Config, learner="custom_loop")
"""


def test_a_module_with_a_loop_of_its_own_trains_by_the_former_import_paths(tmp_path, monkeypatch):
    (tmp_path / "custom_loop.py").write_text(LOOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = written(tmp_path, {**SEARCH, "trainer": "custom_loop:TRAINER"})
    words = ["--config", str(path), "--out", str(tmp_path / "run"), "--set", "iterations=1"]
    assert run_trainer("custom_loop:TRAINER", words) == 0
    words = ["--resume", str(tmp_path / "run"), "--set", "iterations=2"]
    assert run_trainer("custom_loop:TRAINER", words) == 0
    assert len(rewards(tmp_path / "run")) == 2


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("policies.building", "build build_for"),
        ("policies.extractor", "ImplicitAttentionExtractor"),
        ("training.evaluation.op_costs", "COSTS"),
        ("training.recordings.reader", "DemoReader"),
        ("training.runs.checkpoint", "load_policy resolve shipped save_in_run in_run"),
        ("training.runs.fingerprint", "differences"),
        ("training.settings.config", "UserError dump validate"),
        ("training.trainers.door", "main"),
        ("training.trainers.job_config", "JobConfig STRICT"),
        ("training.trainers.lifecycle", "Job build_policy train"),
        ("training.trainers.registry", "TRAINERS load_any_config trainer_of"),
        ("training.trainers.trainer", "Trainer"),
        ("training.trainers.workers", "EpisodeWorker get_parameters"),
    ],
)
def test_former_import_paths_work(module, names):
    found = importlib.import_module(module)
    assert all(hasattr(found, name) for name in names.split())


def test_its_file_is_read_by_its_name_wherever_configurations_are(tmp_path):
    config = load_any_config(written(tmp_path, SEARCH))
    assert type(config) is random_search.RandomSearchConfig
    assert trainer_of(config) is random_search.TRAINER


@pytest.mark.records
def test_a_study_trains_by_it_in_two_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    written(tmp_path, {**SEARCH, "env_id": "tests.training.plain_env:Plain-v0"}, "own.yaml")
    stage = {"trainer": random_search.NAME, "config": "own.yaml", "set": {"iterations": 2}}
    path = write_study(
        tmp_path, stages=[stage, {"trainer": "es", "config": "es.yaml", "set": {"iterations": 1}}],
        seeds=[0], parallel=2, baseline="exact", videos=False,
        arms=[{"name": "exact", "set": {"policy.feature_map": "softmax"}}],
    )  # fmt: skip
    out = tmp_path / "out"
    assert conduct(path, out) == 0
    first, second = out / "runs" / "exact-s0-1", out / "runs" / "exact-s0"
    assert yaml.safe_load((first / "config.yaml").read_text())["trainer"] == random_search.NAME
    before = checkpoint.load(checkpoint.in_run(first)[-1]).policy
    after = checkpoint.load(checkpoint.in_run(second)[0]).policy
    assert all(tensor.equal(after[name]) for name, tensor in before.items())


# --- who a file is for ---


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("preset", ["stepping_stones", "stepping_stones_clone", "car_racing_ppo"])
def test_a_file_for_another_command_is_refused_with_the_right_one(command, preset, capsys):
    path = test_es.ROOT / "configs" / f"{preset}.yaml"
    name = yaml.safe_load(path.read_text())["trainer"]
    if name == command:
        assert COMMANDS[command].load_config(path).trainer == command
        return
    assert COMMANDS[command].main(["--config", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"error: {path} is for the trainer {name}, whose command is python -m training.{name}, "
        f"not python -m training.{command}\n"
    )


def test_every_preset_says_which_trainer_it_is_for():
    for path in (test_es.ROOT / "configs").glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["trainer"] in COMMANDS, path


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("pbo", r"trainer must be one of es, bc, ppo, got 'pbo'; .*; did you mean ppo\?"),
        (3, "trainer must be one of es, bc, ppo, got 3; a custom one is given as module:NAME$"),
        ("no.such:TRAINER", "no.such:TRAINER: there is no module no on Python's path"),
        ("tests.training.random_search:SEARCH", "has no SEARCH"),
        ("tests.training.random_search:NAME", "trainer must be one of es, bc, ppo, got 'tests."),
    ],
)
def test_a_trainer_that_is_none_is_one_sentence(tmp_path, value, sentence):
    path = written(tmp_path, {**test_es.SMALL, "trainer": value})
    for load in (load_any_config, es.load_config):
        with pytest.raises(UserError, match=sentence) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_a_run_s_file_imports_no_trainer(tmp_path):
    """Somebody else may have written it."""
    (tmp_path / "metrics.csv").write_text("")
    path = written(tmp_path, {**SEARCH, "trainer": "unimported_trainer:TRAINER"}, "config.yaml")
    with pytest.raises(UserError, match="trainer must be one of es, bc, ppo, got"):
        load_any_config(path)
    assert "unimported_trainer" not in sys.modules


def test_files_and_runs_without_a_trainer_are_still_read(tmp_path):
    data = {key: value for key, value in test_es.SMALL.items() if key != "trainer"}
    path, run = written(tmp_path, {**data, "iterations": 1}), tmp_path / "run"
    assert load_any_config(path).trainer == "es"
    assert es.main(["--config", str(path), "--out", str(run)]) == 0
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert saved.pop("trainer") == "es"
    written(run, saved, "config.yaml")
    assert load_any_config(run / "config.yaml").trainer == "es"
    assert es.main(["--resume", str(run), "--set", "iterations=2"]) == 0


# --- training without a command ---


def test_a_configuration_is_trained_and_resumed_by_a_function(tmp_path):
    config = es.load_config(written(tmp_path, test_es.SMALL))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(config, whole)
    train(replace(config, iterations=1), parts)
    train(config, parts)
    assert checkpoint.resolve(parts).read_bytes() == checkpoint.resolve(whole).read_bytes()
    with pytest.raises(UserError, match="popsize = 6 differs from"):
        train(replace(config, popsize=6), parts)


@pytest.mark.parametrize("kind", ["bc", pytest.param("ppo", marks=needs_ppo)])
def test_an_episode_does_not_depend_on_those_before_it(tmp_path, kind):
    """So that it does not matter which worker runs it. ES runs with two workers in test_es.py."""
    config = load_any_config(written(tmp_path, JOBS[kind]))
    job = trainer_of(config).prepare(config)
    with closing(job), closing(job.make_worker()(None)) as worker:
        tasks = [*job.tasks([])]
        job.progress.iteration = 1
        tasks += job.tasks([])
        found = [vars(worker.run(task)) for task in tasks]
        again = [vars(worker.run(task)) for task in reversed(tasks)]
    for one, other in zip(found, reversed(again), strict=True):
        assert one.keys() == other.keys()
        torch.testing.assert_close(arrays(one), arrays(other), rtol=0, atol=0)


def arrays(outcome):
    return {k: v for k, v in outcome.items() if isinstance(v, np.ndarray)}, outcome["observations"]


# --- environments ---


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Return the number of environments opened since the last call."""
    file = tmp_path / "opened"
    monkeypatch.setenv(counted_env.COUNTS, str(file))
    file.write_text("")

    def count():
        lines = file.read_text().split()
        file.write_text("")
        return len(lines), lines.count(str(os.getpid()))

    return count


JOBS = {
    "es": {**test_es.SMALL, "env_id": EXPERT, "env": {}, "curriculum": []},
    "bc": {**test_bc.SMALL, "env_id": EXPERT},
    "ppo": {**test_ppo.SMALL, "env_id": EXPERT, "env": {}},
}


@pytest.mark.parametrize(
    ("kind", "workers"), [("es", 1), pytest.param("bc", 2, marks=pytest.mark.records)]
)
def test_a_run_opens_an_environment_a_worker(tmp_path, opened, kind, workers):
    """Where the worker is another process, one more tells what the policy sees."""
    job = {**JOBS[kind], "workers": workers, "iterations": 2}
    command, run = COMMANDS[kind], str(tmp_path / "run")
    assert command.main(["--config", str(written(tmp_path, job)), "--out", run]) == 0
    expected = (1, 1) if workers == 1 else (3, 1)
    assert opened() == expected
    if workers == 1:  # two take long to start
        assert command.main(["--resume", run, "--set", "iterations=3"]) == 0
        assert opened() == expected


def test_the_trainers_have_configurations_of_their_own():
    assert len({one.config for one in TRAINERS}) == len(TRAINERS)
    for one in TRAINERS:
        assert one.config().trainer == one.name
        assert all(one.has(key) for key in one.free_on_resume)
