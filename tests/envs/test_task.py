"""Success rates of the oracle and the blind policy on evaluation terrains; training by another
library."""

import pytest

from policies import Blind, Oracle
from tests.envs.episodes import make
from training.collect.episode import run_episode

EVALUATION = 100_000


def success(agent: type[Oracle] | type[Blind], episodes: int) -> float:
    with make() as env:
        ends = [run_episode(env, agent(env), EVALUATION + i) for i in range(episodes)]
    assert all(
        end.success == (not end.outcomes["fell"] and end.outcomes["distance_m"] >= 3)
        for end in ends
    )
    return sum(end.success for end in ends) / episodes


def test_the_oracle_walks_and_the_blind_fall():
    """On a few fixed terrains; the slow test measures the rates."""
    assert success(Oracle, 1) == 1
    assert success(Blind, 2) == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ceiling_and_floor_over_100_terrains():
    assert success(Oracle, 100) >= 0.97
    assert success(Blind, 100) <= 0.10


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_stable_baselines3_trains_on_it():
    sb3 = pytest.importorskip("stable_baselines3", reason="the extra `rl` is not installed")
    with make() as env:
        model = sb3.PPO("MultiInputPolicy", env, n_steps=500, batch_size=100, seed=0)
        before = [p.detach().clone() for p in model.policy.parameters()]
        model.learn(2_000)
        assert model.num_timesteps == 2_000
        after = list(model.policy.parameters())
        assert all(p.isfinite().all() for p in after)
        assert any((p != q).any() for p, q in zip(before, after, strict=True))
