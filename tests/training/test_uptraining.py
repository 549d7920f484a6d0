"""A policy trained with one attention continues with another feature map."""

from contextlib import closing

import pytest
import torch
import yaml

from tests.training import test_bc, test_es, test_implicit_bc, test_ppo
from tests.training.study_jobs import TWO_STAGES, write_study
from training import bc, es, ppo
from training.algorithms.registry import load_any_config
from training.compare.config import load_config
from training.compare.jobs import DONE
from training.compare.runs import all_runs, check_policies
from training.io import checkpoint
from training.io import config as configuration
from training.runner import Algorithm

recorded = test_implicit_bc.recorded
EXACT = {"controller": "mlp", "hidden": [8], "patch": [8, 8], "feature_map": "softmax"}
ES = {**test_es.SMALL, "iterations": 2, "fit_after": 1, "policy": EXACT}
BC = {**test_bc.SMALL, "iterations": 2, "updates": 4, "fit_after": 4, "policy": EXACT}
IMPLICIT = {**test_implicit_bc.SMALL, "iterations": 2, "updates": 2, "fit_after": 2,
            "evaluate_every": 0,
            "policy": {**test_implicit_bc.POLICY, "feature_map": "softmax"}}  # fmt: skip
PPO = {**test_ppo.SMALL, "iterations": 2, "fit_after": 1, "policy": EXACT}
JOBS = {"es": (es.main, ES, "selection.features."), "bc": (bc.main, BC, "selection.features."),
        "ppo": (ppo.main, PPO, "selection.features."),
        "implicit": (bc.main, IMPLICIT, "encoder.blocks.0.attention.feature_map.")}  # fmt: skip


@pytest.fixture
def attempt(tmp_path, recorded):
    """Trains a job in a directory of a name; gives the exit status and the directory."""

    def run(kind, name, *arguments):
        main, job, _ = JOBS[kind]
        more = {"demonstrations": str(recorded)} if kind == "implicit" else {}
        path, out = tmp_path / f"{kind}.yaml", tmp_path / name
        path.write_text(yaml.safe_dump(job | more))
        where = ["--resume", str(out)] if out.exists() else ["--config", str(path), "--out"]
        where = where if out.exists() else [*where, str(out)]
        return main([*where, *(["--set", *arguments] if arguments else [])]), out

    return run


def begun(run):
    """The policy before training."""
    return checkpoint.load(checkpoint.in_run(run)[0]).policy


@pytest.mark.parametrize(
    "kind", ["es", "bc", *(pytest.param(k, marks=pytest.mark.records) for k in ("ppo", "implicit"))]
)
def test_all_but_the_map_is_taken_over_and_a_resumed_run_is_the_same(kind, attempt, capsys):
    maps = JOBS[kind][2]
    _, exact = attempt(kind, "exact", "iterations=1")
    end = checkpoint.load(checkpoint.resolve(exact)).policy
    changes = [f"init_from={exact}", "feature_map=oprf", "num_features=6"]
    capsys.readouterr()
    status, whole = attempt(kind, "whole", *changes)
    assert status == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "start anew" in line]
    assert len(said) == 1
    assert f"start anew: {maps}A, {maps}omega; left out: none" in said[0]
    first = begun(whole)
    assert {name for name in first if name not in end} == {f"{maps}A", f"{maps}omega"}
    assert all(torch.equal(first[name], end[name]) for name in end)
    last = checkpoint.load(checkpoint.resolve(whole))
    assert last.has_fitted_maps
    assert not torch.equal(last.policy[f"{maps}A"], first[f"{maps}A"])  # fitted anew
    (_, middle, end_path), main = checkpoint.in_run(whole), JOBS[kind][0]
    written = end_path.read_bytes()
    assert main(["--resume", str(middle)]) == 0
    assert end_path.read_bytes() == written


def test_other_kinds_and_numbers_of_features_start_again(attempt, capsys):
    """Maps whose tensors have the same names and shapes too, and the way back to exact softmax."""
    _, first = attempt("es", "first", "feature_map=positive", "num_features=8", "iterations=1")
    for name, changes, same in (
        ("same", ["feature_map=positive", "num_features=8", "policy.feature_seed=1"], True),
        ("kind", ["feature_map=trig", "num_features=8", "policy.feature_seed=1"], False),
        ("number", ["feature_map=positive", "num_features=12"], False),
        ("exact", ["feature_map=softmax"], False),
    ):
        capsys.readouterr()
        status, run = attempt("es", name, f"init_from={first}", "iterations=1", *changes)
        assert status == 0
        assert ("start anew" in capsys.readouterr().out) is not same
        before = begun(first)["selection.features.omega"]
        now = begun(run).get("selection.features.omega")
        assert (now is not None and torch.equal(before, now)) is same
    _, old = attempt("es", "old", "iterations=1")
    assert torch.equal(begun(old)["selection.query"], begun(first)["selection.query"])


REFUSED = [
    ("es", ["policy.patch=[4,4]"], "tensor selection.key is (70, 4) of float32 there, but"),
    ("implicit", ["policy.heads=4"], "policy.heads is 2 there, but the configured policy has 4"),
]


@pytest.mark.parametrize(("kind", "changes", "sentence"), REFUSED)
def test_what_else_differs_is_refused(kind, changes, sentence, attempt, capsys):
    _, exact = attempt(kind, "exact", "iterations=1")
    capsys.readouterr()
    status, out = attempt(kind, "new", f"init_from={exact}", "feature_map=oprf", *changes)
    error = capsys.readouterr().err
    assert status == 2
    assert error.count("\n") == 1
    assert f"{checkpoint.resolve(exact)} holds another policy: {sentence}" in error
    assert not out.exists()


@pytest.mark.records
def test_statistics_are_taken_over(attempt):
    """Cloning continues with the statistics of the first run."""
    for kind in ("bc", "implicit"):
        _, exact = attempt(kind, f"{kind}-exact", "iterations=1")
        fewer = ["demos_used=3"] if kind == "implicit" else ["expert_episodes=2", "seed=9"]
        changes = [f"init_from={exact}", "feature_map=oprf", *fewer]
        _, run = attempt(kind, f"{kind}-new", *changes)
        before, now = (checkpoint.load(checkpoint.resolve(one)).policy for one in (exact, run))
        found = [name for name in before if "normaliser" in name or "mean" in name]
        assert found
        assert all(torch.equal(before[name], now[name]) for name in found)


def test_a_place_memory_takes_another_map_but_no_other_reads(tmp_path):
    def policy(**changes):
        keys = {"policy.name": "place_memory", "policy.memory": "linear"}
        keys |= {key if key == "init_from" else f"policy.{key}": v for key, v in changes.items()}
        with closing(
            Algorithm(load_any_config("configs/stepping_stones_memory_es.yaml", keys))
        ) as job:
            return configuration.dump(job.config), job.policy.state_dict()

    config, first = policy(feature_map="harmonic")
    path = tmp_path / "first.safetensors"
    checkpoint.save(path, first, {}, config, {})
    _, second = policy(feature_map="positive", init_from=str(path), init_seed=3)
    assert all(torch.equal(second[key], first[key]) for key in first)
    assert second.keys() - first.keys() == {"places.memory.feature_map.omega"}
    with pytest.raises(ValueError, match=r"tensor controller.* there, but the configured"):
        policy(feature_map="positive", init_from=str(path), controller="mlp")


def test_variants_of_a_study_go_on_from_exact_attention_with_their_own_maps(tmp_path):
    first, second = TWO_STAGES
    stages = [{**first, "always": {"feature_map": "softmax"}}, second]
    path = write_study(tmp_path, {"iterations": 1}, stages=stages, seeds=[0])
    study, out = load_config(path), tmp_path / "out"
    runs = all_runs(study, path, out)
    check_policies(runs[0])
    before, after = runs[0]
    for run in (before, after):
        run.execute()
    end, start = (
        checkpoint.load(checkpoint.resolve(before.directory)).policy,
        begun(after.directory),
    )
    assert start.keys() - end.keys() == {"selection.features.omega"}
    assert all(torch.equal(start[key], end[key]) for key in end)
    assert after.status() == DONE
    moved = {name: tensor + 1 for name, tensor in end.items()}
    whole = checkpoint.load(checkpoint.resolve(before.directory))
    checkpoint.save(whole.path, moved, {}, whole.config, whole.state)
    assert after.status().state == "stale"
    assert "was trained from another policy than" in after.status().reason
