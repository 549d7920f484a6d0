"""Behaviour cloning: it learns, resumes bit for bit, and is careful with bad input."""

import dataclasses
import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import policies
from benchmarks.cloning_time import random_data
from policies.footholds.head import FootholdVotes, two_bin_labels
from tests.helpers import metrics, refused, train
from training import bc, es
from training.algorithms import dagger
from training.algorithms import labelled_rollouts as demonstrations
from training.algorithms.bc_config import BC, BCConfig, load_config
from training.algorithms.labelled_rollouts import Demonstrations
from training.collect.environments import make_env
from training.collect.seeds import EVALUATION_SEEDS_FROM
from training.command.errors import UserError
from training.io import checkpoint
from training.runner import build_policy

ROOT = Path(__file__).resolve().parents[2]
TOY = "tests.training.expert_env:Expert-v0"
SMALL = {
    "env_id": TOY, "iterations": 2, "expert_episodes": 4, "episodes": 3, "updates": 20,
    "batch_size": 16, "workers": 1, "seed": 5, "checkpoints_kept": 3, "held_out": 0.25,
    "policy": {"controller": "mlp", "hidden": [16], "patch": [8, 8]},
}  # fmt: skip


def test_it_learns(job, tmp_path):
    """Loss falls on data that it was trained on and on data that it was not."""
    path = job(iterations=3, updates=150, expert_episodes=40, learning_rate=0.003)
    rows = metrics(train(bc, path, tmp_path / "run"), without=())
    assert tuple(rows[0]) == dagger.DAgger.columns("Expert-v0")
    policy, _ = checkpoint.load_policy(tmp_path / "run")
    assert float(policy.normaliser.count) == int(rows[-1]["decisions"])
    assert [int(row["episodes"]) for row in rows] == [43, 46, 49]
    assert [int(row["decisions"]) for row in rows] == [300, 320, 340]
    loss, unseen = ([float(row[key]) for row in rows] for key in ("loss", "val_loss"))
    assert loss[-1] < 0.75 * loss[0]
    assert unseen[-1] < math.log(25) - 0.5
    assert float(rows[-1]["val_accuracy"]) > 3 * 3 / 25  # chance: three bins of 25


def test_pixels_are_standardised_by_the_demonstrations(job, tmp_path):
    policy = {**SMALL["policy"], "standardise": True}
    run = train(bc, job(policy=policy), tmp_path / "run", "--set", "iterations=1")
    data = Demonstrations.load(run / "data" / "000000.safetensors").split()[0]
    tensors = checkpoint.load(checkpoint.resolve(run)).policy
    depth = data.observations["depth"].double()
    for name, expected in (("zero_m", depth.mean(0)), ("unit_m", depth.std(0, correction=0))):
        torch.testing.assert_close(
            tensors[f"tokens.{name}"].double(), expected, rtol=1e-3, atol=1e-3
        )
    saved, _ = checkpoint.load_policy(run)
    assert saved.tokens.zero_m.equal(tensors["tokens.zero_m"])


def test_an_observation_that_is_not_finite_stops_the_run(job, tmp_path, capsys):
    run = tmp_path / "run"
    said = refused(
        capsys, bc, ["--config", job(env={"nan_after": 9}), "--out", str(run)],
        "training stopped: Expert-v0, at step 9 of the episode with seed ",
        ": observation depth has 1536 of 1536 numbers that are not finite, the first nan; no check",
    )  # fmt: skip
    assert "learning_rate" not in said
    assert not checkpoint.in_run(run)


def test_a_loss_that_is_not_finite_reaches_no_parameter():
    with make_env("SteppingStones-v0", {}) as env:
        policy = policies.build({}, env.observation_space, env.action_space)
    before = [parameter.clone() for parameter in policy.parameters()]
    images = torch.full((4, 2, 24, 32), torch.nan, dtype=torch.float16)
    seen = {"depth": images, "proprio": torch.zeros(4, 45)}
    data = Demonstrations(seen, torch.zeros(4, 9), torch.zeros(4).bool())
    optimiser = torch.optim.AdamW(policy.parameters())
    with pytest.raises(UserError, match="of iteration 1 has loss nan and gradient norm nan, where"):
        dagger.fit(policy, optimiser, data, BCConfig(), 1, torch.Generator())
    assert all(map(torch.equal, before, policy.parameters()))


def test_labels_are_shared_by_two_bins():
    labels = two_bin_labels(torch.tensor([[-1.0, 0.0, 1 / 48, 1.0]]))
    assert torch.allclose(labels.sum(-1), torch.ones(1, 4))
    assert labels[0, 0, 0] == labels[0, 1, 12] == labels[0, 3, 24] == 1
    assert torch.allclose(labels[0, 2, 12:14], torch.tensor([0.75, 0.25]))


def test_the_loss_is_least_at_the_experts_votes():
    """Cross-entropy of one-bin labels is 0 for certain votes, log 25 for undecided ones."""
    actions = torch.zeros(3, 9)
    actions[:, 8] = 0.4
    certain = torch.full((3, 4, 25), -50.0)
    certain[..., 12] = 50.0
    assert FootholdVotes(certain, torch.full((3,), 0.4)).loss(actions, 5.0) < 1e-6
    undecided = FootholdVotes(torch.zeros(3, 4, 25), torch.zeros(3))
    loss = undecided.loss(actions, 5.0)
    assert loss == pytest.approx(math.log(25) + 5 * 0.4**2, rel=1e-5)


def test_batches_are_shuffled_passes():
    drawn = list(dagger.batches(10, 4, 5, torch.Generator().manual_seed(0)))
    assert [len(index) for index in drawn] == [4] * 5
    assert len(set(torch.cat(drawn[:2]).tolist())) == len(set(torch.cat(drawn[2:4]).tolist())) == 8
    assert len(next(dagger.batches(3, 8, 1, torch.Generator()))) == 3


def test_a_batch_in_parts_has_the_gradient_of_the_whole():
    """An update from 50 decisions in parts of 16 equals the update from all of them at once."""
    generator = torch.Generator().manual_seed(0)
    job = BCConfig(updates=1, batch_size=50, policy=policies.PolicyConfig(patch=(4, 4)))
    data = random_data(job, generator)
    made = [build_policy(job.env_id, job.env, job.policy) for _ in range(2)]
    fits = []
    for policy, part in zip(made, (16, 50), strict=True):
        optimiser = torch.optim.SGD(policy.parameters(), 0.1)
        fits.append(dagger.fit(policy, optimiser, data, job, 1, generator, part))
    assert fits[0]["loss"] == pytest.approx(fits[1]["loss"], rel=1e-5)
    assert fits[0]["grad_norm"] == pytest.approx(fits[1]["grad_norm"], rel=1e-4)
    for mine, theirs in zip(*(policy.parameters() for policy in made), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_the_learning_rate_is_a_cosine():
    rates = [dagger.learning_rate(2.0, update, 8) for update in range(9)]
    assert rates[0] == 2.0
    assert rates[4] == pytest.approx(1.0)
    assert rates[8] == pytest.approx(0.0)


def tasks_of(config, iteration=0):
    with closing(dagger.DAgger(config)) as run:
        run.progress.iteration = iteration
        return run.tasks([])


def test_whole_episodes_are_held_out(job):
    config = load_config(job(), [])
    with closing(demonstrations.LabellingWorker(TOY, {}, {"controller": "mlp"})) as worker:
        rollouts = [worker.run(task) for task in tasks_of(config)]
    data = Demonstrations.of(rollouts, config.held_out)
    assert data.held_out.tolist() == [False] * 30 + [True] * 10
    seen, held_out = data.split()
    assert len(seen), len(held_out) == (30, 10)
    assert torch.equal(held_out.actions, torch.from_numpy(rollouts[3].actions))


def marks(count, share):
    """Which of `count` episodes of one decision are held out."""
    values = np.zeros((1, 1), np.float32)
    one = demonstrations.LabelledRollout(None, {"observation": values}, values, values)
    return Demonstrations.of([one] * count, share).held_out.tolist()


@pytest.mark.parametrize("share", [0.1, 0.25, 0.29, 0.3, 0.4, 0.5])
def test_as_many_are_held_out_as_is_said(share):
    for count in (2, 5, 7, 10, 40, 100):
        assert sum(marks(count, share)) == max(1, math.floor(round(share * count, 6)))


def test_the_expert_is_disturbed_and_its_labels_are_not(job):
    """Labels follow the observation exactly; the noise has the configured standard deviation."""
    config = load_config(job(disturbance=0.2, expert_episodes=40), [])
    acted = []

    class Recorded(demonstrations._Recorder):
        def act(self, observation):
            acted.append(super().act(observation) - self.labels[-1])
            return self.labels[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstrations, "_Recorder", Recorded)
        made = demonstrations.LabellingWorker(TOY, {"episode_s": 2.0}, {"controller": "mlp"})
        with closing(made) as worker:
            rollouts = [worker.run(task) for task in tasks_of(config)]
    for rollout in rollouts:
        expected = np.clip(0.3 + 0.05 * (rollout.observations["proprio"][:, :9] - 2), -1, 1)
        assert np.allclose(rollout.actions, expected, atol=1e-6)
    noise = np.stack(acted)[:, :9]
    noise = noise[np.abs(noise) > 0]
    assert 0.1 < noise.std() < 0.22  # less than 0.2: it starts at 0, and actions are clipped


def test_seeds_are_those_of_training(job):
    config = load_config(job(), [])
    tasks = [tasks_of(config, iteration) for iteration in (0, 1, 2)]
    seeds = [task.seed for group in tasks for task in group]
    assert len(set(seeds)) == 4 + 3 + 3
    assert all(seed < EVALUATION_SEEDS_FROM for seed in seeds)
    assert all(task.learner is None and task.disturbance for task in tasks[0])
    assert all(task.learner is not None and not task.disturbance for task in tasks[1])


def test_the_presets_fit_together():
    clone = load_config(ROOT / "configs" / "stepping_stones_clone.yaml", [])
    finetune = es.load_config(ROOT / "configs" / "stepping_stones_finetune.yaml", [])
    assert clone.policy == finetune.policy
    assert clone.env_id == finetune.env_id
    assert "stepping_stones_finetune" in BC.following(clone, Path("runs/a"))[0][0]
    other = dataclasses.replace(clone, env_id="Pendulum-v1")
    assert BC.following(other, Path("runs/a")) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"policy": {"name": "place_memory", "fit_pitch": True}}, "fit_pitch must be false with"),
        ({"held_out": 0.9}, "held_out = 0.9, but input should be less than or equal to 0.5"),
        ({"env_id": "tests.training.toy_env:Toy-v0"}, "has no expert_action() that could be"),
    ],
)
def test_bad_configurations(job, tmp_path, capsys, changes, sentence):
    refused(capsys, bc, ["--config", job(**changes), "--out", str(tmp_path / "run")], sentence)
    assert not (tmp_path / "run").exists()


def test_demonstrations_of_earlier_versions_are_read(job, tmp_path):
    """Their parts had other names; a run resumes with them."""
    run = train(bc, job(), tmp_path / "run")
    whole = train(bc, job(), tmp_path / "whole", "--set", "iterations=3")
    names = {"observation/depth": "depth_m", "observation/proprio": "proprio"}
    for path in (run / "data").iterdir():
        tensors = load_file(path)
        save_file({names.get(name, name): tensor for name, tensor in tensors.items()}, path)
    assert bc.main(["--resume", str(run), "--set", "iterations=3"]) == 0
    ours, theirs = (checkpoint.resolve(found) for found in (run, whole))
    assert ours.read_bytes() == theirs.read_bytes()
