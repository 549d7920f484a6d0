"""Policies learn in environments of any spaces, by every trainer where that makes sense."""

import pytest

from tests import helpers
from training import bc, es
from training.io import checkpoint

DOT = "tests.training.dot_env:Dot-v0"


@pytest.fixture
def train(tmp_path):
    """Runs a trainer with a configuration; returns the run's rows."""

    def run(trainer, name="run", **job):
        made = helpers.train(trainer, {"workers": 1, **job}, tmp_path / name)
        return [{k: float(v) for k, v in row.items()} for row in helpers.metrics(made)]

    return run


ES = {"popsize": 16, "terrains": 1, "searcher": {"name": "cmaes", "sigma": 0.5}}


IMAGES = [
    {"kind": "colours"},
    {"kind": "first", "choices": 4},
    {"kind": "dict"},
    {"kind": "grey", "choices": 2},
]
# Policies with a dictionary's image are taught by training.ppo too.
CLONED = [IMAGES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in IMAGES[1:])]
FEWER = [IMAGES[0], pytest.param(IMAGES[1], marks=pytest.mark.slow)]  # choices: the pole's


@pytest.mark.records
@pytest.mark.parametrize("env", CLONED)
def test_cloning_learns_from_images(train, env, tmp_path):
    policy = {"hidden": [16], "patch": [4, 4], "keep": 0.4}
    rows = train(
        bc, env_id=DOT, env=env, policy=policy, iterations=2, expert_episodes=40, episodes=5,
        updates=200, batch_size=64, learning_rate=0.003, fit_after=100,
    )  # fmt: skip
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1]["val_accuracy"] > (0.3 if "choices" not in env else 1.5 / env["choices"])
    policy, _ = checkpoint.load_policy(tmp_path / "run")
    assert not any(parameter.requires_grad for parameter in policy.parameters())


@pytest.mark.records
@pytest.mark.parametrize("env", FEWER)
def test_evolution_strategies_learn_from_the_places_of_the_best_tokens(train, env):
    """Random actions and a random policy earn 4.6 of 12 (a quarter of 12 with four choices)."""
    policy = {"patch": [4, 4], "stride": [2, 2], "variant": "rank", "rank_with": "places",
              "keep_tokens": 2, "hidden": [], "score_step": 0.01}  # fmt: skip
    iterations = 25 if "choices" in env else 10
    rows = train(es, env_id=DOT, env=env, policy=policy, iterations=iterations, **ES)
    first, last = rows[0]["reward_mean"], sum(row["reward_mean"] for row in rows[-3:]) / 3
    assert last > first + 1.5


@pytest.mark.parametrize(
    "policy",
    [{"controller": "lstm"}, pytest.param({"last_action": True}, marks=pytest.mark.records)],
)
def test_cloning_teaches_to_remember(train, policy):
    """The dot is seen at the first step alone, and its columns are to be chosen at all twelve."""
    env = {"hidden": True, "choices": 2, "kind": "grey"}
    job = {"env_id": DOT, "env": env, "iterations": 1, "expert_episodes": 60, "episodes": 2,
           "updates": 300, "batch_size": 192, "sequence": 12, "learning_rate": 0.002,
           "disturbance": 0.0}  # fmt: skip
    settings = {"hidden": [16], "patch": [8, 10], "selection": "all"}
    rows = train(bc, name="remembers", policy={**settings, **policy}, **job)
    assert rows[-1]["val_accuracy"] > 0.9
    forgets = train(bc, name="forgets", policy=settings, **{**job, "updates": 50})
    assert forgets[-1]["val_accuracy"] < 0.75


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["policy.name=implicit_attention"], {"keep": 0.3}),
        (["policy.keep=0.7"], {"keep": 0.7}),
        (["policy.name=vision_performer"], {"form": "pooled", "patch": (4, 4)}),
        (["policy.name=vision_performer", "policy.form=pooled"], {"patch": (4, 4)}),
    ],
)
def test_what_a_file_says_of_its_policy_holds_for_no_other_kind(words, kept, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("policy: {keep: 0.3, patch: [2, 2]}\n")
    policy = es.load_config(path, words).policy
    assert {key: getattr(policy, key) for key in kept} == kept
    assert policy.patch == ((4, 4) if "vision" in policy.name else (2, 2))
