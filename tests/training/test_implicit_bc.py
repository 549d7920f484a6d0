"""Cloning from recorded demonstrations: it learns, resumes exactly, and survives bad numbers."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import yaml

from tests.helpers import metrics, refused, train
from training import bc, demos
from training.algorithms import implicit_bc
from training.algorithms.devices import Group
from training.algorithms.implicit_bc_config import ImplicitBCConfig, load_config
from training.collect.environments import make_env
from training.demonstrations.batches import Prefetcher, frames_of_update
from training.io import checkpoint
from training.io.config import UserError

ROOT = Path(__file__).resolve().parents[2]
PICTURE = "tests.training.picture_env:Picture-v0"
POLICY = {
    "name": "vision_performer", "patch": [8, 8], "embed_dim": 16, "depth": 1, "heads": 2,
    "context_dim": 16, "hidden": [16], "negatives": 16, "samples": 16, "num_features": 4,
    "num_lambda_features": 4, "pose_octaves": 1, "patch_readout": 2,
}  # fmt: skip
SMALL = {
    "env_id": PICTURE, "iterations": 2, "updates": 6, "batch_size": 8, "warm_up": 2,
    "val_frames": 16, "evaluate_every": 2, "episodes": 2, "workers": 1, "threads": 1, "seed": 5,
    "checkpoints_kept": 3, "policy": POLICY,
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demos")
    arguments = ["--env", PICTURE, "--episodes", "60", "--workers", "1", "--valid-share", "0.25"]
    assert demos.main([*arguments, "--out", str(directory)]) == 0
    return directory


@pytest.fixture
def job(tmp_path, recorded):
    """Writes a configuration and returns its path."""

    def write(policy=None, **changes):
        path = tmp_path / "job.yaml"
        data = {**SMALL, "demonstrations": str(recorded), **changes}
        path.write_text(yaml.safe_dump({**data, "policy": {**POLICY, **(policy or {})}}))
        return str(path)

    return write


@pytest.mark.records
@pytest.mark.parametrize(
    "head", ["autoregressive", pytest.param("explicit", marks=pytest.mark.slow)]
)
def test_it_learns_and_acts(job, tmp_path, head):
    """The expert's action is -0.2 times the pose: the loss must fall, on unseen frames too."""
    path = job({"head": head}, updates=150, iterations=3, learning_rate=0.003, batch_size=32)
    run = train(bc, path, tmp_path / "run")
    rows = metrics(run, without=())
    assert tuple(rows[0]) == implicit_bc.ImplicitCloning.columns("Picture-v0")
    assert [int(row["frames"]) for row in rows] == [150 * 32, 300 * 32, 450 * 32]
    loss, unseen = ([float(row[key]) for row in rows] for key in ("loss", "val_loss"))
    if head == "explicit":
        assert unseen[-1] < 0.5 * loss[0]
    else:
        assert loss[-1] < loss[0] - 0.3
        assert unseen[-1] < math.log(17) - 0.3  # chance: one of 17 candidates
    assert math.isnan(float(rows[0]["success"]))  # not evaluated then
    assert float(rows[1]["success"]) == 0.0  # odd seeds and half the steps never succeed
    assert float(rows[-1]["in_bowls"]) == 1.0
    policy, config = checkpoint.load_policy(run)
    with make_env(config["env_id"], config["env"]) as env:
        missed, wanted = [], []
        for seed in range(100, 110):
            observation, _ = env.reset(seed=seed)
            policy.reset()
            action = policy.act(observation)
            assert env.action_space.contains(action)
            wanted.append(env.unwrapped.expert_action())
            missed.append(action - wanted[-1])
        assert np.abs(missed).mean() < 0.7 * np.abs(wanted).mean()  # zero misses all of it


@pytest.mark.slow
def test_two_processes_train_one_policy(job, tmp_path):
    """Under torchrun every process takes half of each batch; the result is one policy."""
    run = tmp_path / "run"
    clustered = {"feature_map": "clustered_hybrid"}  # found by the first process, in all of them
    path = job(
        clustered, iterations=1, updates=20, evaluate_every=0, learning_rate=0.003, fit_after=10
    )
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "training.bc", "--config", path, "--out", str(run),
    ]  # fmt: skip
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (row,) = metrics(run)
    alone = metrics(train(bc, path, tmp_path / "alone"))[0]
    assert float(row["loss"]) == pytest.approx(float(alone["loss"]), rel=0.1)  # other negatives
    assert [p.name for p in checkpoint.in_run(run)] == ["000000.safetensors", "000001.safetensors"]
    centers = "encoder.blocks.0.attention.feature_map.query_centers"
    assert checkpoint.load(checkpoint.resolve(run)).policy[centers].any()


@pytest.mark.parametrize("size", [9, 17])
def test_each_pass_takes_every_frame_once(size):
    passes = size // 4
    drawn = [frames_of_update(update, 4, size, seed=3) for update in range(2 * passes)]
    for begin in (0, passes):
        frames = np.concatenate(drawn[begin : begin + passes])
        assert len(set(frames.tolist())) == 4 * passes
    assert not np.array_equal(np.concatenate(drawn[:passes]), np.concatenate(drawn[passes:]))
    assert np.array_equal(frames_of_update(1, 4, size, 3), drawn[1])
    assert len(frames_of_update(0, 64, size, 3)) == size  # fewer frames than a batch


def test_reading_ahead_keeps_the_order(job):
    data = implicit_bc.ImplicitCloning(load_config(job(), []))
    frames, held_out = data.frames, data.held_out
    assert (len(frames), len(held_out)) == (45 * 12, 15 * 12)
    wanted = [frames_of_update(update, 8, len(frames), 0) for update in range(7)]
    prefetcher = Prefetcher(frames, readers=3)
    found = list(prefetcher.batches(iter(wanted)))
    prefetcher.close()
    assert len(found) == 7
    for indices, batch in zip(wanted, found, strict=True):
        alone = frames.read(indices)
        assert torch.equal(batch.rgb, alone.rgb)
        assert torch.equal(batch.actions, torch.from_numpy(frames.actions[indices]))
    mean = data.policy.normaliser.mean.double()
    assert torch.allclose(mean, torch.from_numpy(frames.pose.astype(float).mean(0)))


def test_the_learning_rate_rises_and_falls():
    config = ImplicitBCConfig(
        iterations=10, updates=10, warm_up=20, learning_rate=1.0, final_learning_rate=0.1
    )
    rates = [implicit_bc.learning_rate(config, update) for update in range(101)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[19] == rates[20] == 1.0
    assert rates[60] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert sorted(rates[20:], reverse=True) == rates[20:]


def poisoned(policy):
    """Break the encoder as an exploding gradient would."""
    with torch.no_grad():
        policy.encoder.blocks[0].attention.in_proj_weight[0, 0] = math.nan


def test_a_batch_that_is_not_finite_stops_the_run(job, tmp_path, capsys, monkeypatch):
    """The report holds attention's diagnosis, and no checkpoint ever holds the bad numbers."""
    run = train(bc, job(iterations=1, evaluate_every=0), tmp_path / "run")
    learner = learner_of(run, "stop")
    poisoned(learner.policy)
    sentence = r"update 6 has loss nan and gradient norm nan, .*; the angular_hybrid attention has"
    with pytest.raises(UserError, match=sentence):
        learner.learn()
    (report,) = map(json.loads, (run / implicit_bc.NOT_FINITE).read_text().splitlines())
    assert report["parameters"] == ["encoder.blocks.0.attention.in_proj_weight"]
    assert [(head["block"], head["head"]) for head in report["attention"]] == [(0, 0), (0, 1)]
    assert report["attention"][0]["non_finite"] > 0


def learner_of(run, not_finite):
    start = checkpoint.load(checkpoint.resolve(run))
    config = load_config(run / "config.yaml", [f"not_finite={not_finite}", "iterations=2"])
    learner = implicit_bc.ImplicitCloning(config, start)
    learner.setup(run)
    learner.progress.iteration += 1
    return learner


def test_a_batch_that_is_not_finite_can_be_skipped(job, tmp_path, capsys):
    """One bad frame among many: its batch is left out, the parameters stay finite."""
    run = train(bc, job(iterations=1, evaluate_every=0), tmp_path / "run")
    learner = learner_of(run, "skip")
    bad = frames_of_update(7, 8, len(learner.frames), learner.config.seed)[3]
    learner.frames.actions[bad] = math.nan
    learner.learn()
    assert learner._learned["skipped"] == 1
    assert all(parameter.isfinite().all() for parameter in learner.policy.parameters())
    assert "skipped: update 7 has loss nan" in capsys.readouterr().out
    (report,) = map(json.loads, (run / implicit_bc.NOT_FINITE).read_text().splitlines())
    assert report["actions_not_finite"] == 3
    learner = learner_of(run, "skip")
    learner.frames.actions[:] = math.nan
    with pytest.raises(UserError, match="6 of 6 batches of iteration 2 were not finite"):
        learner.learn()


@pytest.mark.records
def test_mixed_precision_learns_too(job, tmp_path):
    mixed = metrics(train(bc, job(evaluate_every=0, precision="bfloat16"), tmp_path / "mixed"))
    plain = metrics(train(bc, job(evaluate_every=0), tmp_path / "plain"))
    assert mixed != plain
    assert float(mixed[-1]["loss"]) == pytest.approx(float(plain[-1]["loss"]), rel=0.05)


def test_bad_settings_are_refused(job, tmp_path, capsys, recorded):
    out = ["--out", str(tmp_path / "run")]
    for settings, sentence in (
        ({"demonstrations": str(tmp_path / "none")}, "where demonstrations should be"),
        ({"final_learning_rate": 1.0}, "final_learning_rate must be at most learning_rate"),
        ({"env_id": "SteppingStones-v0"}, "'rgb' is (height, width, 3) of uint8"),
        ({"env": {"bound": 0.25}, "demos_used": 0}, "demos_used"),
        ({"device": "cuda:99"}, "device cuda:99 cannot be used here"),
        ({"optimizer": "adam"}, "unknown key optimizer"),
    ):
        refused(capsys, bc, ["--config", job(**settings), *out], sentence)
        assert not (tmp_path / "run").exists()
    for policy, sentence in (
        ({"optimiser": "gradient"}, "policy.optimiser = 'gradient', but input should be"),
        ({"optimiser": "langevin"}, "optimiser must be null or autoregressive"),
        (
            {"embed_dim": 4, "heads": 4},
            "policy.qk_length must be null where heads have one dimension (embed_dim = heads = 4)",
        ),
        ({"patch": [7, 7]}, "that divide the 40 x 48 image"),
        ({"feature_map": "magic"}, "feature_map must be one of"),
    ):
        refused(capsys, bc, ["--config", job(policy), *out], sentence)
    refused(
        capsys, bc, ["--config", job(env_id="tests.training.picture_env:Tiring-v0"), *out],
        "was recorded in tests.training.picture_env:Picture-v0",
    )  # fmt: skip


def test_demonstrations_of_validation_scenes_are_refused(job, tmp_path, capsys, recorded):
    late = tmp_path / "late"
    shutil.copytree(recorded, late)
    with h5py.File(late / "episodes/000003.hdf5", "r+") as file:
        file["data/demo_3"].attrs["seed"] = 90_003
    refused(
        capsys, bc, ["--config", job(demonstrations=str(late)), "--out", str(tmp_path / "run")],
        "has a demonstration of seed 90003, but those from 90000 up are kept",
    )  # fmt: skip


@pytest.mark.records
def test_a_robot_of_another_kind_is_refused(job, tmp_path, capsys):
    """Recorded with steps of 5 cm, so the actions would mean something else."""
    directory = tmp_path / "sweeps"
    arguments = ["--env", "BimanualSweep-v0", "--episodes", "2", "--workers", "1"]
    settings = ["--set", "episode_s=0.2", "step_m=0.05", "--valid-share", "0.5"]
    assert demos.main([*arguments, *settings, "--out", str(directory)]) == 0
    policy = {"patch": [100, 100]}
    path = job(policy, env_id="BimanualSweep-v0", demonstrations=str(directory))
    sentence = "was recorded with step_m = 0.05, but the run has env.step_m = 0.04"
    refused(capsys, bc, ["--config", path, "--out", str(tmp_path / "run")], sentence)


def test_a_run_resumes_only_with_its_data_and_processes(
    job, tmp_path, capsys, recorded, monkeypatch
):
    run = train(bc, job(iterations=1, evaluate_every=0), tmp_path / "run")
    fewer = ["--resume", str(run), "--set", "iterations=2"]
    checkpoints = sorted((run / "checkpoints").iterdir())
    other = shutil.copytree(recorded, tmp_path / "other")
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace(str(recorded), str(other)))
    with h5py.File(other / "episodes/000000.hdf5", "r+") as file:
        actions = file["data/demo_0/actions"]
        actions[:] = -actions[()]
    refused(capsys, bc, fewer, f"{other} holds other demonstrations now than those that")
    config.write_text(text)
    start = checkpoint.load(checkpoint.resolve(run))
    monkeypatch.setattr(implicit_bc, "current_group", lambda: Group(0, 2))
    with pytest.raises(UserError, match=r"was trained by 1 processes, and a resumed run .* got 2"):
        implicit_bc.ImplicitCloning(load_config(config, []), start)
    monkeypatch.undo()
    assert sorted((run / "checkpoints").iterdir()) == checkpoints
    assert bc.main(fewer) == 0


@pytest.mark.parametrize("negatives", [False, True])
def test_the_joint_head_learns_and_validates(job, tmp_path, negatives):
    """With chains of negatives, which need gradients even where the loss is only watched."""
    policy = {"head": "joint", "optimiser": "langevin", "langevin_negatives": negatives}
    policy |= {"langevin_steps": 3, "langevin_training_steps": 3}
    rows = metrics(train(bc, job(policy, iterations=1), tmp_path / "run"))
    assert math.isfinite(float(rows[0]["val_loss"]))
    assert float(rows[0]["in_bowls"]) == 1.0
