"""PPO with a reward, a discount and bins for each number of an action, and mirrored steps."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces

from envs.geometry import Mirror, Reflection
from tests.helpers import metrics, refused, same_results, train
from training.algorithms.exploration import Rollout
from training.algorithms.ppo_config import PPOConfig
from training.io.config import UserError

pytest.importorskip("stable_baselines3")

from training import ppo
from training.algorithms.credit import Recorded, declared_credit
from training.algorithms.mirroring import Mirroring, reflected
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


@pytest.mark.parametrize(
    ("policy", "lifts"),
    [({"bins": [25, 25, 0]}, {"action_legs": "lifting"}), ({"controller": "mlp"}, {})],
)
def test_a_part_that_is_left_out_is_not_mirrored(tmp_path, policy, lifts):
    """Also where votes for the feet leave out some of the action's numbers."""
    changes = {"env": {"observation_keys": ["proprio"]}, "policy": policy}
    walk = {"env_id": "SteppingStones-v0", "steps": 8, "episodes": 1, "center_episodes": 1}
    changes["env"] |= {"decide": "lift_off", "episode_s": 0.5, **lifts}
    job = JOB | walk | changes | {"gammas": None, "iterations": 1, "exploration": 0.4}
    assert len(metrics(train(ppo, job, tmp_path / "run"))) == 1


@pytest.mark.parametrize("returns", [[], [1.0], [1.0] * 6, [1.0] * 9])
def test_returns_of_another_run_are_one_sentence(tmp_path, returns):
    made = ProximalPolicyOptimisation(PPOConfig(**JOB))
    try:
        made.progress.returns = returns
        start = SimpleNamespace(path=tmp_path, search=made.state()[0])
        with pytest.raises(UserError, match=f"holds {len(returns)} numbers, where 5 are needed"):
            made.restore(start, None)
    finally:
        made.close()


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
        ({"env": {"reported": ["ahead"]}},
         "must hold aside, which reward_terms declares, as a finite number at every step, got "
         "ahead at step 1 of the episode with seed"),
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
        ({"env": {"parts": {"speed": [0]}}}, "of the observation, which are observation, got"),
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


class Legs(gymnasium.Env):
    """Two legs of two joints; what it declares and reports is set from outside."""

    observation_space = spaces.Dict(
        {"state": spaces.Box(-1, 1, (2,)), "image": spaces.Box(0, 255, (2, 3), np.uint8)}
    )
    action_space = spaces.Box(np.float32([[-1, -2], [-1, -2]]), np.float32([[1, 2], [1, 2]]))
    state = Reflection((0, 1), (1, -1))

    def __init__(self, reported=None, **declared):
        self.reported = reported
        vars(self).update(declared)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return *self.reset()[:1], 0.0, False, False, {"reward_terms": self.reported}


class Failing(Legs):
    @property
    def reward_terms(self):
        raise RuntimeError("not yet known")

    mirror = reward_terms


def test_terms_are_numbers_of_any_type_and_other_terms_are_not_read():
    env = Legs(reward_terms={"a": np.array([0, 1]), "b": {2, 3}})
    env.reported = {"a": np.float32(0.5), "b": np.array(2), "note": "of no interest"}
    recorded = Recorded(env, declared_credit(env, "Legs-v0", None))
    recorded.reset(seed=1)
    recorded.step(env.action_space.sample())
    assert recorded.judged((0, 3)).tolist() == [[0.5, 2.0]]
    shared = Recorded(Legs(reported="of another meaning"))
    shared.reset(seed=1)
    shared.step(env.action_space.sample())
    assert shared.rewards == [0.0]


@pytest.mark.parametrize(
    ("reported", "sentence"),
    [
        (None, "got None at step 1 of the episode with seed 7"),
        ([1.0], r"got \[1.0\] at"),
        ({"b": 1}, "must hold a, which reward_terms declares.* got b at"),
        ({"a": float("nan")}, "got nan for it"),
        ({"a": 10**400}, "got 1000.* for it"),
        ({"a": [1.0]}, r"got \[1.0\] for it"),
        ({"a": None}, "got None for it"),
    ],
)
def test_a_term_that_is_no_finite_number_is_one_sentence(reported, sentence):
    env = Recorded(Legs(reported), {"a": (0, 1, 2, 3)})
    env.reset(seed=7)
    with pytest.raises(UserError, match=sentence):
        env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({}, "declares no reward_terms"),
        (["a"], r"must be a dict from each term .*, got \['a'\]"),
        ({"a": 0}, "got {'a': 0}"),
        ({"a": (0.0, 1.0)}, "got {'a': "),
        ({"a": "0123"}, "got {'a': '0123'}"),
        (lambda: {"a": (0, 1, 2, 3)}, "got <function"),
        ({"a": (0, 1), "b": (1, 2)}, "each of the action's 4 numbers, counted from 0, got 0, 1, 2"),
    ],
)
def test_terms_of_another_form_are_one_sentence(terms, sentence):
    with pytest.raises(UserError, match=sentence):
        declared_credit(Legs(reward_terms=terms), "Legs-v0", None)


@pytest.mark.parametrize(
    "kind", [lambda env: declared_credit(env, "", None), lambda env: _mirror(env)]
)
def test_what_fails_when_it_is_read_is_one_sentence(kind):
    with pytest.raises(UserError, match="of Failing cannot be read: RuntimeError: not yet known"):
        kind(Failing())


def _mirror(env, judged=(0, 1, 2, 3)):
    return Mirroring(env, judged, ())


def _legs(action=((1, 0), (), 0), **parts):
    image = Reflection((2, 1, 0))
    reflection = Reflection(*action) if isinstance(action, tuple) else action
    return Legs(mirror=Mirror({"state": Legs.state, "image": image, **parts}, reflection))


@pytest.mark.parametrize(
    "action",
    [
        ((1, 0), (), 0),
        ((1, 0), (), -2),
        ((2, 3, 0, 1),),
        ([1, 0], np.ones(2), 0),
        (np.array([2, 3, 0, 1]), np.ones(4)),
    ],
)
def test_actions_of_several_axes_are_reflected_along_one_or_all_in_a_row(action):
    samples = np.float32([[1, 2, 3, 4]])
    seen = {"state": np.ones((2, 2)), "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3)}
    found = _mirror(_legs(action))(Rollout(None, seen, None, samples, np.zeros((1, 1)), False))
    assert found.samples.tolist() == [[3, 4, 1, 2]]
    assert found.observations["state"].tolist() == [[1, -1], [1, -1]]
    assert found.observations["image"][0].tolist() == [[2, 1, 0], [5, 4, 3]]


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Legs(), "declares none"),
        (Legs(mirror=True), "must be an envs.geometry.Mirror, got True"),
        (Legs(mirror={"action": 1}), "must be an envs.geometry.Mirror, got {"),
        (Legs(mirror=Mirror([Legs.state], Legs.state)), "must be an envs.geometry.Mirror, got "),
        (_legs(None), "Reflection of whole numbers, signs and an axis for the action, got None"),
        (_legs(((1.0, 0.0), (), 0)), "of whole numbers"),
        (_legs(state=((0, 1), (1, -1))), "for 'state' of the observation, got"),
        (_legs(state=Reflection((0, 1), (), "x")), "of whole numbers, signs and an axis"),
        (_legs(state=Reflection((0, 1), (), 1)), "has 0 numbers along its axis 1"),
        (_legs(((1, 0, 2, 2),)), "which has 4 numbers along its axis -1, back when"),
        (_legs(((1, 0), (2, 0.5), 0)), "signs of 1 or -1 for the action, got"),
        (_legs(state=Reflection((1, 0), (1, -1))), "back when it is applied twice"),
        (_legs(image=Reflection((2, 1, 0), (-1, -1, -1))), "'image'.* holds no negative numbers"),
        (
            _legs(speed=Legs.state),
            "must name parts of the observation, which are image, state, got",
        ),
        (_legs(((1, 0),)), "numbers 0 and 1 of the action, whose ranges .* wide, got 2 and 4"),
        (gymnasium.wrappers.FlattenObservation(_legs()), "which are observation, got state"),
    ],
)
def test_mirrors_that_do_not_fit_are_one_sentence(env, sentence):
    with pytest.raises(UserError, match=sentence):
        _mirror(env)


def test_a_mirror_of_numbers_that_the_policy_does_not_give_is_one_sentence():
    with pytest.raises(UserError, match="numbers 0 and 2 of the action, and the policy gives only"):
        _mirror(_legs(), (0, 1))
