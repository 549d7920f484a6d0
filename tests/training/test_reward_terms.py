"""PPO with a reward, a discount and bins for each number of an action, and mirrored steps."""

import numpy as np
import pytest
import torch
import yaml

from tests.helpers import metrics, refused, same_results, train
from training.algorithms.exploration import Rollout
from training.algorithms.ppo_config import PPOConfig

pytest.importorskip("stable_baselines3")

from training import ppo
from training.algorithms.mirroring import reflected
from training.algorithms.ppo import ProximalPolicyOptimisation

CART = "tests.training.two_terms:Cart-v0"
JOB = {
    "trainer": "ppo", "env_id": CART, "iterations": 6, "steps": 240, "episodes": 20,
    "workers": 1, "seed": 3, "batch_size": 64, "n_epochs": 5, "learning_rate": 0.005,
    "learning_rate_end": 0.001, "exploration": [0.4], "credit": "terms", "gammas": [0.0, 0.5],
    "mirror": True, "fit_after": None,
    "policy": {"bins": [9, 0], "hidden": [32], "init_output": 0.0},
}  # fmt: skip


def test_each_number_learns_from_its_own_terms(tmp_path):
    """One number is chosen among bins, the other regressed, and both terms improve; a resumed run
    is the uninterrupted one, bit for bit."""
    whole = train(ppo, JOB, tmp_path / "whole")
    rewards = [float(row["reward_mean"]) for row in metrics(whole)]
    assert np.mean(rewards[-2:]) > rewards[0] + 1.5
    part = train(ppo, JOB | {"iterations": 6}, tmp_path / "part", "--set", "iterations=6")
    for path in sorted((part / "checkpoints").glob("*"))[-2:]:
        path.unlink()
    assert ppo.main(["--resume", str(part)]) == 0
    same_results(whole, part)


def test_batches_of_whole_decisions_have_every_number_once_and_the_same_values(tmp_path):
    """What the networks give for a batch is what they give for each of its rows."""
    made = ProximalPolicyOptimisation(PPOConfig(**{**JOB, "whole_decisions": True}))
    try:
        made.update(made.collect(made.tasks([])))
        buffer, policy = made.model.rollout_buffer, made.model.policy
        batches = list(buffer.get(64))
        assert {len(batch.actions) for batch in batches[:-1]} == {64}
        seen = np.concatenate([batch.advantages for batch in batches])
        assert np.array_equal(np.sort(seen), np.sort(buffer.advantages.ravel()))
        one = batches[0]
        halves = [part[:32] for part in one.observations.values()]
        assert all(
            torch.equal(half, part[32:]) == (key != "\0number")
            for half, (key, part) in zip(halves, one.observations.items(), strict=True)
        )
        whole = policy.evaluate_actions(one.observations, one.actions)
        policy._whole = False
        for ours, theirs in zip(
            whole, policy.evaluate_actions(one.observations, one.actions), strict=True
        ):
            assert torch.allclose(ours, theirs, atol=1e-6)
    finally:
        made.close()
    rewards = [
        float(row["reward_mean"])
        for row in metrics(train(ppo, JOB | {"whole_decisions": True}, tmp_path / "run"))
    ]
    assert np.mean(rewards[-2:]) > rewards[0] + 1.5


def test_the_terms_are_what_numbers_are_judged_by():
    """Rewards by number are the terms that credit it, and mirrored steps have mirrored samples."""
    made = ProximalPolicyOptimisation(PPOConfig(**{**JOB, "workers": 1}))
    try:
        rollout = made.collect(made.tasks([]))[-1]
        place, goal = np.split(rollout.observations["observation"][1:], 2, -1)
        assert rollout.rewards == pytest.approx(-np.abs(place - goal), abs=1e-5)
        mirrored = made._mirror(rollout)
        assert np.array_equal(mirrored.samples[:, 0], rollout.samples[:, 0])  # the same bin
        assert np.array_equal(mirrored.samples[:, 1], -rollout.samples[:, 1])
        assert np.array_equal(
            mirrored.observations["observation"][:, 3], -rollout.observations["observation"][:, 3]
        )
        made.update(made.collect(made.tasks([])))
        buffer = made.model.rollout_buffer
        assert buffer.n_envs == 2
        assert np.allclose(np.std(buffer.advantages), 1, atol=0.2)
    finally:
        made.close()


def test_a_part_that_is_left_out_is_not_mirrored(tmp_path):
    changes = {"env": {"observation_keys": ["proprio"]}, "policy": {"bins": [25, 25, 0]}}
    walk = {"env_id": "SteppingStones-v0", "steps": 8, "episodes": 1, "center_episodes": 1}
    lifts = {"decide": "lift_off", "action_legs": "lifting", "episode_s": 0.5}
    changes["env"] |= lifts
    job = JOB | walk | changes | {"gammas": None, "iterations": 1, "exploration": 0.4}
    assert len(metrics(train(ppo, job, tmp_path / "run"))) == 1


def test_a_mirrored_choice_of_a_negated_number_is_the_opposite_bin():
    made = ProximalPolicyOptimisation(
        PPOConfig(**{**JOB, "policy": {"bins": [9, 5]}, "exploration": 0.5})
    )
    try:
        samples = np.float32([[0, 0], [8, 1], [3, 4]])
        rollout = Rollout(
            None, {"observation": np.zeros((4, 4), np.float32)}, np.zeros((4, 0), np.float32),
            samples, np.zeros((3, 2)), False,
        )  # fmt: skip
        assert made._mirror(rollout).samples.tolist() == [[0, 4], [8, 3], [3, 0]]
    finally:
        made.close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"env": {"reported": ["ahead"]}}, "must hold aside, which reward_terms declares"),
        ({"env_id": "MountainCarContinuous-v0", "mirror": False, "gammas": None, "policy": {}},
         "credit must be shared for MountainCarContinuous-v0, which declares no reward_terms"),
        ({"env_id": "MountainCarContinuous-v0", "credit": "shared", "gammas": None,
          "policy": {}}, "mirror must be false for MountainCarContinuous-v0"),
        ({"env": {"order": [1, 1]}}, "must give the action, which has 2 numbers along its axis"),
        ({"env": {"order": [1, 0]}}, "back when it is applied twice"),
        ({"gammas": [0.5]}, "gammas must have a discount for each of the action's 2 numbers"),
        ({"whole_decisions": True, "credit": "shared", "gammas": None}, "needs credit: terms, got"),
        ({"credit": "shared"}, "gammas need credit: terms"),
        ({"policy": {"bins": [9]}}, "a count for each of the action's 2 numbers, got 1"),
        ({"policy": {"bins": 0}}, "policy.bins = 0, but input should be greater than or"),
        ({"policy": {"bins": [9, 1]}}, "policy.bins.1: bins must be 0 (regressed) or at least 2"),
        ({"policy": {"bins": [9, -3]}}, "policy.bins.1 = -3, but input should be"),
        ({"env": {"parts": {"speed": [0]}}}, "'speed' of the observation, which has 0 numbers"),
        ({"exploration": [0.5, 0.5]}, "exploration must have a deviation for each of the 1"),
    ],
)  # fmt: skip
def test_wrong_settings_are_one_sentence(tmp_path, capsys, changes, sentence):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB | changes))
    refused(capsys, ppo, ["--config", path, "--out", tmp_path / "run"], sentence)


def test_a_reflection_is_along_its_axis():
    class Flip:
        order, sign, axis = (2, 1, 0), (), -2

    images = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(reflected(images, Flip), images[:, ::-1])
    assert torch.equal(torch.tensor(reflected(images, Flip)[0, 0]), torch.tensor(images[0, 2]))
