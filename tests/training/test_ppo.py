"""Proximal policy optimisation: it learns, resumes bit for bit, and writes a run directory."""

import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Normal

from policies.common.heads import head_for
from policies.common.sampling import draw
from tests.helpers import metrics, refused, train
from tests.training.test_es import TOY
from training.algorithms.exploration import Explorer, Task, log_probability
from training.algorithms.ppo_config import PPOConfig
from training.algorithms.registry import load_any_config
from training.io import checkpoint

pytest.importorskip("stable_baselines3")

from training import ppo
from training.algorithms.ppo import ProximalPolicyOptimisation, _buffer, discounted

DOT = "tests.training.dot_env:Dot-v0"
SMALL = {
    "trainer": "ppo", "env_id": TOY, "env": {"episode_s": 0.15}, "iterations": 4, "steps": 20,
    "episodes": 4, "center_episodes": 1, "workers": 1, "seed": 5, "checkpoints_kept": 3,
    "batch_size": 8, "n_epochs": 2, "critic": {"selection": "all", "hidden": [8]},
    "policy": {"patch": [4, 4]}, "fit_after": 2,
}  # fmt: skip


# --- what it learns ---


@pytest.mark.records
def test_it_balances_a_pole(job, tmp_path):
    """From a vector to a choice; without training the pole stays up for ten steps."""
    path = job(
        env_id="CartPole-v1", env={}, policy={"hidden": [32]}, iterations=6, steps=800,
        episodes=8, batch_size=64, n_epochs=8, learning_rate=0.003, critic={},
    )  # fmt: skip
    rows = metrics(train(ppo, path, tmp_path / "run"))
    assert float(rows[-1]["reward_mean"]) > 80


@pytest.mark.records
@pytest.mark.parametrize(
    "env",
    [{"kind": "colours"}, pytest.param({"kind": "dict", "choices": 4}, marks=pytest.mark.slow)],
)
def test_it_learns_to_look(job, tmp_path, env):
    """A quarter of 12 steps is right by chance with four choices, and 5.6 earned by the numbers."""
    policy = {"patch": [4, 4], "keep": 0.4, "hidden": [16]}
    path = job(
        env_id=DOT, env=env, policy=policy, iterations=4, steps=400, episodes=25, batch_size=64,
        n_epochs=6, learning_rate=0.003, gamma=0.0, exploration=0.3, critic={"hidden": [16]},
        seed=8,
    )  # fmt: skip
    rows = metrics(train(ppo, path, tmp_path / "run"))
    first = float(rows[0]["reward_mean"])
    best = max(float(row["reward_mean"]) for row in rows[1:])
    assert best > first + 1


def test_queries_keys_and_votes_are_trained(job, tmp_path):
    """On the observations and actions of the stepping stones."""
    run = train(ppo, job(iterations=1), tmp_path / "run")
    first, last = (checkpoint.load(path).policy for path in checkpoint.in_run(run))
    trained = {name for name in last if not torch.equal(first[name], last[name])}
    assert trained >= {"selection.query", "selection.key", "controller.template"}
    assert "normaliser.mean" in trained


# --- what its gradient is made of ---

SPACES = {
    "box": spaces.Box(np.float32([-2, 0]), np.float32([2, 1])),
    "choice": spaces.Discrete(3, start=1),
    "choices": spaces.MultiDiscrete([3, 2]),
    "switches": spaces.MultiBinary(2),
    "whole numbers": spaces.Box(-3, 3, (2,), np.int64),
}


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("kind", SPACES)
def test_samples_have_the_probabilities_that_they_are_drawn_by(kind, temperature):
    head = head_for(SPACES[kind])
    generator = torch.Generator().manual_seed(0)
    decision = head(torch.randn(1, head.size, generator=generator).expand(4000, -1))
    log_std = torch.full((decision.means().shape[1],), -0.7)
    samples = draw(decision, log_std, generator, temperature)
    count = len(decision.choices())
    log_p, entropy = log_probability(decision, log_std, samples, temperature)
    known = [Categorical(logits=logits / temperature) for logits in decision.choices()]
    normal = Normal(decision.means(), log_std.exp())
    expected = normal.log_prob(samples[:, count:]).sum(-1)
    expected += sum(each.log_prob(samples[:, i]) for i, each in enumerate(known))
    torch.testing.assert_close(log_p, expected)
    entropies = normal.entropy().sum(-1) + sum(each.entropy() for each in known)
    torch.testing.assert_close(entropy, entropies)
    # 4,000 draws: a mean is off by 0.1 of an entropy's unit less than once in 10,000 times.
    assert abs(float((-log_p).mean() - entropy[0])) < 0.1
    actions = head.explored(samples[:, :count].long(), samples[:, count:])
    for action in actions[:50]:
        assert SPACES[kind].contains(head.given(action))


def learner(job, **changes):
    config = load_any_config(job(**changes), [])
    assert isinstance(config, PPOConfig)
    return config, ProximalPolicyOptimisation(config)


def test_an_episode_that_is_cut_off_is_worth_what_its_last_observation_promises(job):
    config, made = learner(job, gamma=0.9, gae_lambda=0.8)
    explorer = Explorer(1.0, config.env_id, config.env, {"patch": [4, 4]})
    state = {name: tensor.numpy() for name, tensor in made.policy.state_dict().items()}
    rollouts = [explorer.run(Task(seed, state, made.log_std.numpy())) for seed in (1, 2)]
    assert not rollouts[0].terminated
    ended = [rollouts[0], rollouts[1].__class__(**{**vars(rollouts[1]), "terminated": True})]
    buffer = _buffer(made.model, ended, np.full(1, 2.0), np.full(1, 0.9))
    begin = 0
    for one in ended:
        n = len(one.rewards)
        assert n == 3
        seen = {k: torch.from_numpy(v.reshape(n + 1, -1)) for k, v in one.observations.items()}
        with torch.no_grad():
            values = made.model.policy.predict_values(seen).flatten().double().numpy()
        values[-1] *= not one.terminated
        errors = one.rewards[:, 0] / 2.0 + 0.9 * values[1:] - values[:-1]
        advantages = discounted(errors, 0.9 * 0.8)
        np.testing.assert_allclose(buffer.advantages[begin : begin + n, 0], advantages, rtol=1e-4)
        begin += n
    assert begin == buffer.buffer_size


def test_probabilities_are_as_they_were_when_the_actions_were_drawn(job):
    config, made = learner(job)
    explorer = Explorer(1.0, config.env_id, config.env, {"patch": [4, 4]})
    state = {name: tensor.numpy() for name, tensor in made.policy.state_dict().items()}
    rollout = explorer.run(Task(3, state, made.log_std.numpy()))
    buffer = _buffer(made.model, [rollout], np.ones(1), np.full(1, 0.9))
    for batch in buffer.get(2):
        _, log_p, _ = made.model.policy.evaluate_actions(batch.observations, batch.actions)
        torch.testing.assert_close(log_p, batch.old_log_prob, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("choices", [None, 3])
def test_the_action_before_is_what_was_taken_not_what_the_policy_alone_would_have_done(
    job, choices
):
    policy = {"patch": [4, 4], "controller": "mlp", "last_action": True}
    changes = {"env_id": DOT, "env": {"choices": choices}, "policy": policy}
    config, made = learner(job, **changes, exploration=0.7)
    explorer = Explorer(1.0, config.env_id, config.env, policy)
    with torch.no_grad():  # so that it matters
        made.policy.controller.layers[0].weight[:, -made.policy.head.coded :] = 1.0
    state = {name: tensor.numpy() for name, tensor in made.policy.state_dict().items()}
    rollout = explorer.run(Task(3, state, made.log_std.numpy()))
    samples = torch.from_numpy(rollout.samples)
    taken = samples.long()[:, 0] if choices else samples.clamp(-1, 1)
    seen = {k: torch.from_numpy(v[:-1]).unsqueeze(0) for k, v in rollout.observations.items()}
    starts = torch.arange(len(taken)).unsqueeze(0) == 0
    with torch.no_grad():
        decision, _ = made.policy.unroll(seen, taken.unsqueeze(0), starts, made.policy.start(1))
        expected, _ = log_probability(decision, made.log_std, samples)
        alone = {key: part[0] for key, part in seen.items()}
        without, _ = log_probability(made.policy.decide(alone), made.log_std, samples)
    found = _buffer(made.model, [rollout], np.ones(1), np.full(1, 0.9)).log_probs[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(found[1:] - without[1:].numpy()).max() > 0.1
    (batch,) = _buffer(made.model, [rollout], np.ones(1), np.full(1, 0.9)).get(len(taken))
    _, again, _ = made.model.policy.evaluate_actions(batch.observations, batch.actions)
    torch.testing.assert_close(again, batch.old_log_prob, rtol=1e-4, atol=1e-4)


# --- what a run is ---


# --- what it refuses ---


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"critic": {"hiden": [8]}}, "unknown key critic.hiden"),
        ({"policy": {"controller": "gru"}}, "controller must be auto, mlp or vote in training.ppo"),
        ({"critic": {"last_action": True}}, "critic.last_action must be false and critic.repair"),
        ({"policy": {"repair": "full"}}, "policy.repair must be none in training.ppo"),
        ({"trainer": "es"}, "is for the trainer es, whose command is python -m training.es, not"),
        ({"env": {"nan_after": 1}}, "the reward is nan"),
        ({"learning_rate": 1e6}, "parameters that are not finite"),
    ],
)
def test_a_mistake_is_one_sentence(job, tmp_path, capsys, changes, sentence):
    refused(capsys, ppo, ["--config", job(**changes), "--out", str(tmp_path / "run")], sentence)


def test_a_checkpoint_without_exploration_is_refused(job, tmp_path, capsys):
    run = train(ppo, job(iterations=1), tmp_path / "run")
    path = checkpoint.in_run(run)[-1]
    held = checkpoint.load(path)
    lacking = {k: v for k, v in held.search.items() if "log_std" not in k}
    checkpoint.save(path, held.policy, lacking, held.config, held.state)
    words = ["--resume", path, "--set", "iterations=2"]
    refused(capsys, ppo, words, "tensor log_std is absent there")


def test_without_stable_baselines_one_sentence_names_the_extra(job, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "training.algorithms.ppo")
    for name in [one for one in sys.modules if one.partition(".")[0] == "stable_baselines3"]:
        monkeypatch.setitem(sys.modules, name, None)
    said = 'training.ppo needs Stable-Baselines3: pip install "foveate[rl]"'
    refused(capsys, ppo, ["--config", job(), "--out", tmp_path / "run"], said)
    assert not (tmp_path / "run").exists()
