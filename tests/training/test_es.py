"""The trainer: deterministic, resumable bit for bit, and careful with bad input."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests.helpers import checkpoints, metrics, refused, same_results, train
from tests.training.background import start, wait_for
from training import es, evaluate
from training.algorithms.es import ESProgress, EvolutionStrategies, parameter_columns
from training.algorithms.es_config import load_config
from training.collect.seeds import EVALUATION_SEEDS_FROM
from training.io import checkpoint
from training.io.config import UserError

ROOT = Path(__file__).resolve().parents[2]
TOY = "tests.training.toy_env:Toy-v0"
SMALL = {
    "env_id": TOY, "env": {"episode_s": 0.15}, "iterations": 4, "popsize": 4, "terrains": 2,
    "center_terrains": 1, "workers": 1, "seed": 5, "checkpoints_kept": 3,
    "searcher": {"name": "pgpe", "sigma": 0.1}, "curriculum": [{"easy": 4.0}, {"easy": 2.0}, {}],
    "advance_at": 0.1, "advance_window": 2,
}  # fmt: skip


def test_a_run_and_what_it_leaves(job, tmp_path, capsys):
    run = train(es, job(), tmp_path / "run")
    rows = metrics(run, without=())
    assert tuple(rows[0]) == EvolutionStrategies.columns("Toy-v0")
    assert [int(row["iteration"]) for row in rows] == [1, 2, 3, 4]
    assert int(rows[-1]["episodes"]) == 4 * (1 + 4 * 2)
    assert int(rows[-1]["env_steps"]) == 4 * 9 * 3
    assert list(checkpoints(run)) == [f"{i:06d}.safetensors" for i in (0, 2, 3, 4)]
    assert not list((run / "checkpoints").glob(".*"))
    printed = capsys.readouterr().out
    for command in ("training.rollout", "training.evaluate", "tensorboard", "training.es --resume"):
        assert command in printed


def test_the_saved_configuration_is_complete(job, tmp_path):
    run = train(es, job(iterations=1), tmp_path / "run", "--set", "num_features=4")
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert saved["num_features"] == saved["policy"]["num_features"] == 4
    assert saved["episode_s"] == saved["env"]["episode_s"] == 0.15
    assert saved["feature_map"] == saved["policy"]["feature_map"]
    again = train(es, str(run / "config.yaml"), tmp_path / "again")
    same_results(run, again)
    assert checkpoints(run) == checkpoints(again)


def test_the_normaliser_saw_every_episode(job, tmp_path):
    run = train(es, job(), tmp_path / "run")
    latest = checkpoint.load(checkpoint.resolve(run))
    assert latest.policy["normaliser.count"] == latest.state["progress"]["env_steps"]
    mean = latest.policy["normaliser.mean"]
    assert (mean - 2.0).abs().max() < 2.5  # proprioception is N(2, 3): 36 samples, sd 0.5


def test_seeds_are_those_of_training_and_shared_as_configured(job):
    def seeds(**changes):
        with closing(EvolutionStrategies(load_config(job(**changes), []))) as search:
            search.progress.iteration = 7
            return [task.seed for task in search.tasks([])]

    shared, paired = seeds(), seeds(common_terrains="pair")
    assert all(seed < EVALUATION_SEEDS_FROM for seed in shared + paired)
    assert shared[1:3] == shared[3:5] == shared[5:7] == shared[7:9]
    assert paired[1:3] == paired[3:5] != paired[5:7] == paired[7:9]
    assert shared[0] == paired[0] not in shared[1:]
    assert shared == seeds()
    assert shared != seeds(seed=6)


def test_the_curriculum_follows_the_success_rate(job):
    config = load_config(job(advance_at=0.5), [])
    progress = ESProgress()
    levels = []
    for rate in (1.0, 0.4, 0.1, 0.8, 0.9, 0.1, 1.0, 1.0, 1.0):
        progress.advance(config, rate)
        levels.append(progress.level)
    assert levels == [0, 1, 1, 1, 2, 2, 2, 2, 2]


def test_warm_start(job, tmp_path, capsys):
    first = train(es, job(), tmp_path / "first")
    second = train(es, job(), tmp_path / "second", "--set", f"init_from={first}", "seed=6")
    start = checkpoint.load(second / "checkpoints" / "000000.safetensors").policy
    end = checkpoint.load(checkpoint.resolve(first)).policy
    assert all(torch.equal(start[name], end[name]) for name in end)
    other = first.parent / "other.safetensors"
    tensors = {name: torch.zeros(1, 2, 3) for name in end}
    checkpoint.save(other, tensors, {}, {}, {})
    out = str(tmp_path / "third")
    refused(
        capsys, es, ["--config", job(), "--out", out, "--set", f"init_from={other}"],
        "holds another policy: tensor",
    )  # fmt: skip


def test_sampled_actions_resume_bit_for_bit_and_are_evaluated_when_asked(tmp_path, capsys):
    """CartPole, resumed and not; greedy candidates earn otherwise."""
    pole = {
        "env_id": "CartPole-v1", "iterations": 2, "popsize": 4, "workers": 1, "terrains": 1,
        "center_terrains": 1, "policy": {"hidden": []},
    }  # fmt: skip
    greedy = train(es, pole, tmp_path / "greedy")
    begun = capsys.readouterr().out
    assert "\npolicy implicit_attention: no images, so no attention, controller mlp" in begun
    assert "2 choices, the best taken (sample_actions=true draws them" in begun
    assert "\n1 worker on " in begun
    pole["sample_actions"] = True
    whole = train(es, pole, tmp_path / "whole")
    assert "cmaes with a full covariance, sigma 0.05 (" in capsys.readouterr().out
    run = train(es, pole, tmp_path / "run", "--set", "iterations=1")
    assert es.main(["--resume", str(run), "--set", "iterations=2"]) == 0
    same_results(whole, run)
    (first, *_), (other, *_) = metrics(whole), metrics(greedy)
    assert (first["sigma"], other["sigma"]) < ("0.1", "0.4")
    assert first["reward_mean"] != other["reward_mean"]
    assert f"training.evaluate {run} --sample-actions" in capsys.readouterr().out
    words = [str(run), "--episodes", "2", "--no-floors", "--out"]
    assert evaluate.main([*words, str(tmp_path / "best")]) == 0
    assert "run was trained with actions that are drawn" in capsys.readouterr().err
    assert evaluate.main([*words, str(tmp_path / "drawn"), "--sample-actions"]) == 0
    assert "note: " not in capsys.readouterr().err
    best, drawn = (
        json.loads((tmp_path / name / "evaluation.json").read_text())[0]
        for name in ("best", "drawn")
    )
    assert drawn["sample_actions"] is True
    assert "sample_actions" not in best
    assert [one["reward"] for one in drawn["records"]] != [one["reward"] for one in best["records"]]


CART = {
    "env_id": "tests.training.two_terms:Cart-v0", "env": {}, "curriculum": [], "credit": "terms",
    "policy": {"hidden": [], "bins": [5, 0], "init_output": 0.0},
}  # fmt: skip


def test_parameters_are_judged_by_the_terms_of_their_number(job, tmp_path):
    """Returns are sums of each number's terms, discounted, and a run resumes bit for bit."""
    returns = []
    for gammas in (None, [1.0, 0.5], [0.0, 0.0]):
        config = load_config(job(**CART, gammas=gammas), [])
        with closing(EvolutionStrategies(config)) as search:
            assert parameter_columns(search.policy).bincount().tolist() == [25, 5]  # 4 and a bias
            outcomes = search.collect(search.tasks([]))
            returns.append(torch.tensor(np.stack([one.returns for one in outcomes])))
    whole, halved, first = returns
    rewards = torch.tensor([one.episode.reward for one in outcomes])
    assert torch.allclose(whole.sum(1).float(), rewards)
    assert torch.equal(halved[:, 0], whole[:, 0])
    assert (whole < halved).tolist() == [[False, True]] * len(whole)  # terms are negative
    assert (halved < first).all()
    whole = train(es, job(**CART), tmp_path / "whole")
    run = train(es, job(**CART), tmp_path / "run", "--set", "iterations=2")
    assert es.main(["--resume", str(run), "--set", "iterations=4"]) == 0
    same_results(whole, run)
    assert "0.center" in checkpoint.load(checkpoint.resolve(run)).search


MISTAKES = [
    ({"popsize": 5}, "popsize must be even with searcher.name = pgpe"),
    ({"popzise": 4}, "unknown key popzise; the keys known there are advance_at"),
    ({"iterations": "many"}, "iterations = 'many', but input should be a valid integer"),
    ({"searcher": {"name": "sgd"}}, "searcher.name is sgd, where one of cmaes, pgpe, ars"),
    ({"common_terrains": "pair", "searcher": {"name": "cmaes"}}, "common_terrains = pair needs"),
    ({"episode_s": 3.0}, "episode_s = 3.0 and env.episode_s = 0.15 are the same setting"),
    ({"env_id": "NoSuch-v0"}, "cannot make the environment env_id = 'NoSuch-v0'"),
    ({"init_from": "nowhere"}, "nowhere is neither a run directory, nor"),
    ({"num_features": 10**14}, "cannot build the policy for tests.training.toy_env:Toy-v0: "),
    ({"ray_address": "local"}, "would start a Ray that listens on every network interface"),
    ({"ray_address": "127.0.0.1:9"}, "nothing answers at ray_address = '127.0.0.1:9'"),
]
STONES = {"env_id": "SteppingStones-v0", "env": {}, "curriculum": []}
MISTAKES += [
    (
        {"env_id": "Pendulum-v1", "env": {}, "curriculum": [], "sample_actions": True},
        "sample_actions must be false for Pendulum-v1: the policy's actions are numbers",
    ),
    ({"gammas": [0.5]}, "gammas need credit: terms, got [0.5] with shared"),
    (CART | {"gammas": [0.5]}, "a discount for each of the action's 2 numbers, got 1"),
    (
        CART | {"env_id": "Pendulum-v1", "policy": {}},
        "credit must be shared for Pendulum-v1, which declares no reward_terms, got terms",
    ),
    (
        STONES | {"credit": "terms"},
        "a controller whose last layer is not that of the action's numbers, got terms with Vote",
    ),
    (STONES | {"env": {"gap_m": [0.1, 0.9]}}, "gap_m must be [low, high]"),
    (STONES | {"env": {"gap": 0.1}}, "unknown key env.gap; the keys known there are"),
    (STONES | {"curriculum": [{"gap_m": [0.1, 0.5]}]}, "curriculum.0"),
    (STONES | {"curriculum": [{"terrain_seed": 3}]}, "curriculum.0 may hold gap_m, which an"),
]


@pytest.mark.parametrize(("changes", "sentence"), MISTAKES)
def test_bad_configurations(job, tmp_path, capsys, changes, sentence):
    if changes.get("ray_address") == "127.0.0.1:9":
        pytest.importorskip("ray", reason="Ray is not installed (extra cluster)")
    refused(capsys, es, ["--config", job(**changes), "--out", str(tmp_path / "run")], sentence)
    if "ray_address" in changes:  # nothing else is found only when training begins
        assert not (tmp_path / "run" / "metrics.csv").exists()
    else:
        assert not (tmp_path / "run").exists()


def test_credit_needs_a_policy_whose_numbers_are_known():
    with pytest.raises(UserError, match=r"last layer is not that of .*, got terms with Linear"):
        parameter_columns(torch.nn.Linear(2, 1))


def test_bad_command_lines(job, tmp_path, capsys):
    refused(capsys, es, ["--confg", "x"], "unrecognized arguments: --confg x")
    refused(capsys, es, ["--config", "none.yaml"], "cannot read the configuration none.yaml")
    refused(capsys, es, ["--resume", str(tmp_path)], "holds no run to resume")
    (tmp_path / "file").write_text("")
    refused(
        capsys, es, ["--config", job(), "--out", str(tmp_path / "file" / "run")], "Not a directory"
    )


def test_resume_refuses_a_checkpoint_without_its_state(job, tmp_path, capsys):
    run = train(es, job(), tmp_path / "run")
    ars = train(es, job(searcher={"name": "ars"}), tmp_path / "ars")
    saved, other = (checkpoint.load(checkpoint.resolve(one)) for one in (run, ars))
    state = saved.state
    lacking = {"progress": state["progress"]}
    for search, found, sentence in (
        ({}, state, "holds another searcher: tensor center is absent there"),
        (other.search, other.state, "holds another searcher: tensor stdev is absent there"),
        (saved.search, lacking, "search is missing; it may be of another trainer"),
    ):
        checkpoint.save(saved.path, saved.policy, search, saved.config, found)
        refused(capsys, es, ["--resume", str(run)], f"{saved.path} ", sentence)


def test_nan_stops_the_run_and_keeps_the_checkpoint(job, tmp_path, capsys):
    run = tmp_path / "run"
    path = job(env={"episode_s": 0.15, "nan_after": 2})
    refused(
        capsys, es, ["--config", path, "--out", str(run)], "Toy-v0, at step 3 of the episode with",
        ": the reward is nan", f"; the newest checkpoint, {run / 'checkpoints' / '000000.'}",
    )  # fmt: skip
    assert list(checkpoints(run)) == ["000000.safetensors"]
    first = checkpoint.load(checkpoint.resolve(run))
    broken = {k: v * torch.nan if "normaliser" not in k else v for k, v in first.policy.items()}
    path = tmp_path / "broken.safetensors"
    checkpoint.save(path, broken, {}, first.config, first.state)
    arguments = ["--config", job(), "--out", str(tmp_path / "b"), "--set", f"init_from={path}"]
    refused(capsys, es, arguments, "holds a broken policy: tensor ")


@pytest.mark.parametrize(
    ("saved", "sentence"),
    [(0, "interrupted before the first checkpoint"), (3, "iteration 000002 is saved")],
)
def test_an_interrupted_run_says_how_to_go_on(job, tmp_path, capsys, monkeypatch, saved, sentence):
    run, save = tmp_path / "run", EvolutionStrategies.save

    def interrupted(self, run):
        if len(checkpoints(run)) == saved:
            raise KeyboardInterrupt
        save(self, run)

    monkeypatch.setattr(EvolutionStrategies, "save", interrupted)
    assert es.main(["--config", job(), "--out", str(run)]) == 130
    printed = capsys.readouterr().out
    assert f"{sentence}; resume with: python -m training.es --resume {run}" in printed


@pytest.mark.records
def test_kill_9_and_resume(job, tmp_path):
    """Killed while two workers run and resumed with one: bit-identical to a run that was not, and
    no process is left."""
    run, path = tmp_path / "run", job(iterations=1000, workers=2)
    process = start("training.es", ["--config", path, "--out", str(run)])
    wait_for(lambda: at(run) >= 3, process)
    started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(started) >= 2
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    more = ["--set", f"iterations={at(run) + 1}", "workers=1"]
    assert es.main(["--resume", str(run), *more]) == 0
    whole = train(es, path, tmp_path / "whole", *more)
    same_results(whole, run)
    assert checkpoint.resolve(run).read_bytes() == checkpoint.resolve(whole).read_bytes()


def test_two_workers_and_a_killed_one_change_nothing(job, tmp_path):
    """Ray: bit for bit the run in this process, although a worker is killed in an episode."""
    one = train(es, job(), tmp_path / "one")
    env = SMALL["env"] | {"die_once": str(tmp_path / "died")}
    two = train(es, job(env=env), tmp_path / "two", "--set", "workers=2")
    assert (tmp_path / "died").exists()
    same_results(one, two)


def at(run):
    return max((checkpoint.iteration_of(path) for path in checkpoint.in_run(run)), default=0)


@pytest.mark.slow
def test_memory_is_flat_over_200_iterations(job, tmp_path):
    program = (
        "import resource, sys; from training import es\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "es.main(['--config', sys.argv[1], '--out', sys.argv[2]])\n"
        "before = peak()\n"
        "es.main(['--resume', sys.argv[2], '--set', 'iterations=240'])\n"
        "print('grew', peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, job(iterations=40), str(tmp_path / "run")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout.rsplit("grew", 1)[1]) < 10
