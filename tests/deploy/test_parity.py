"""Exported policies decide as the policies do."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import envs  # noqa: F401 - registers SteppingStones-v0
from deploy import formats
from deploy.contract import contract
from deploy.contract_file import OUTSIDE, Port
from deploy.parity import LARGEST, compare, ties
from deploy.search_noise import SearchNoise
from deploy.steps import step_of
from policies import build
from tests.deploy.folders import ACTIONS, SPACE, Still, noise_of, program_of, remembering, searching
from tests.policies.test_place_memory import ARMS
from tests.policies.walks import FRONT
from tests.policies.walks import build as build_for
from training.io import checkpoint

CHOICES = spaces.MultiDiscrete([3, 2], start=[1, -1])
OTHERS = {
    "pooled": {"name": "vision_performer", "form": "pooled", "patch": (2, 2)},
    "lstm": {"controller": "lstm", "last_action": True, "patch": (2, 2)},
    "attended": {"variant": "trans", "patch": (2, 2), "feature_map": "positive"},
    "overlapping": {"patch": (4, 4), "stride": (2, 2), "feature_map": "softmax"},
    "running": {"image_scaling": "running", "score_step": 0.01, "patch": (2, 2)},
    "random": {"selection": "random", "patch": (2, 2)},
}
GROWS = [name for name in ARMS if "exact" in name]


@pytest.fixture(scope="module")
def stones():
    with gymnasium.make("SteppingStones-v0", disable_env_checker=True, **FRONT) as env:
        yield env


def compared(policy, env, decisions=6):
    step = step_of(policy, env.observation_space, env.action_space)
    run = program_of(step, env.reset(seed=0)[0])
    return step, compare(env, policy, step, run, decisions, 0)


def test_a_search_is_inside_the_graph_and_its_noise_outside():
    policy, env = searching()
    step, found = compared(policy, env)
    assert step.plan[:2] == [("uniform", 16), ("uniform", 16)]
    assert found.passed, found.action
    seen = env.reset(seed=0)[0]
    drawn = torch.from_numpy(SearchNoise(step.plan, step.seed).next())
    torch.testing.assert_close(drawn, noise_of(policy, step, seen), rtol=1e-5, atol=1e-6)


@pytest.mark.records
def test_a_place_memory_is_a_state_of_the_graph(stones):
    step, found = compared(build_for(stones), stones)
    assert {"state_seen_odometry", "state_seen_written_values"} <= step.initial.keys()
    assert found.passed, (found.action, found.state)


def test_a_difference_is_found():
    policy, env = remembering()
    step = step_of(policy, env.observation_space, env.action_space)

    def wrong(inputs):
        after = dict(zip(step.outputs, step(*inputs.values()), strict=True))
        return after | {"action": after["action"] + 3 * LARGEST}

    found = compare(env, policy, step, wrong, 5, 0)
    assert (found.decisions, found.beyond, found.episodes) == (5, 5, [True])
    assert found.action == pytest.approx(3 * LARGEST, rel=0.1)
    assert (found.state, found.ties) == (0, 0)


@pytest.mark.parametrize(
    ("low", "high", "allowed"),
    [
        (-1, 1, 1e-5),
        (-0.04, 0.04, 1e-5),
        (-1e-4, 1e-4, 1e-7),
        (-np.inf, np.inf, 1e-5),
    ],
)
def test_an_action_may_differ_by_a_share_of_its_range(low, high, allowed):
    space = spaces.Box(low, high, (2,), np.float32)
    policy, env = build({"patch": (2, 2)}, SPACE, space), Still(SPACE, space)
    step = step_of(policy, SPACE, space)

    def off(difference):
        def run(inputs):
            (action,) = step(*inputs.values())
            return {"action": action.double() + difference}

        found = compare(env, policy, step, run, 1, 0)
        return found.passed and not found.ties

    assert off(0.5 * allowed)
    assert not off(40 * allowed)


class Leaves(Still):
    """An environment whose observations leave their bounds, in float64 at each reset."""

    def reset(self, **options):
        observation, info = super().reset(**options)
        observation["proprio"] = observation["proprio"].astype(np.float64)
        observation["proprio"][0] = 9.5
        return observation, info


@pytest.mark.parametrize("outside", OUTSIDE)
def test_observations_pass_the_checks_of_the_contract(outside):
    env = Leaves(SPACE, ACTIONS)
    policy, _ = remembering()
    step = step_of(policy, SPACE, ACTIONS)
    given = contract(step, env, 20.0, outside)["inputs"]
    ports = [Port(one["name"], tuple(one["shape"]), np.dtype(one["dtype"]), np.float64(one["low"]),
                  np.float64(one["high"]), one["outside"]) for one in given]  # fmt: skip
    seen = []

    def run(inputs):
        seen.append(inputs["proprio"][0].item())
        return dict(zip(step.outputs, step(*inputs.values()), strict=True))

    found = compare(env, policy, step, run, 6, 0, ports)
    assert found.passed, (found.action, found.state)
    assert found.outside == 2
    assert found.first_outside == "proprio must be at most 9.0, got 9.5 at [0], 1 of 3 such numbers"
    assert seen[0] == (9.0 if outside == "clip" else 9.5)
    env.reset = lambda **_: ({"depth": np.zeros((6, 8)), "proprio": np.zeros(3, np.uint8)}, {})
    with pytest.raises(ValueError, match="proprio must be float32, got uint8"):
        compare(env, policy, step, run, 6, 0, ports)


class Jumps(nn.Module):
    """One action up to a number, another above it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, x):
        return (x[:, -1:] > 0.5).float().expand(-1, self.outputs) * 0.5


@pytest.mark.parametrize(("last", "roundings"), [(0.5, 1), (0.5 - 5e-7, None)])
def test_a_tie_is_not_a_difference(last, roundings):
    """A model that jumps, where the policy does not but would an observation nearby."""
    policy = build({"controller": Jumps, "patch": (2, 2)}, SPACE, ACTIONS)
    env = Still(SPACE, ACTIONS)
    observation = env.reset(seed=0)[0]
    observation["proprio"][-1] = last
    env.reset = lambda **_: (observation, {})
    step = step_of(policy, SPACE, ACTIONS)
    above = torch.full((2,), 0.5).tanh()
    found = compare(env, policy, step, lambda _: {"action": above}, 1, 0)
    assert (found.passed, found.ties) == (roundings is not None, int(roundings is not None))
    if roundings:
        assert (found.tie, found.action, found.roundings) == (above[0], 0, roundings)
        assert "1 is a tie" in ties(found)
        assert "1 roundings off" in ties(found)
    else:
        assert (found.beyond, found.action) == (1, above[0])


@pytest.mark.parametrize("count", [16, 40, 128])
def test_noise_is_that_of_pytorch(count):
    generator = torch.Generator().manual_seed(5)
    wanted = [torch.rand(count, generator=generator), torch.randn(count, generator=generator)]
    noise = SearchNoise([("uniform", count), ("normal", count)], 5)
    found = torch.from_numpy(noise.next())
    assert torch.equal(found[:count], wanted[0])
    torch.testing.assert_close(found[count:], wanted[1], rtol=1e-5, atol=1e-6)
    noise.reset()
    assert torch.equal(torch.from_numpy(noise.next()), found)


@pytest.mark.parametrize("name", GROWS)
def test_a_memory_that_grows_is_refused(stones, name):
    with pytest.raises(ValueError, match="got exact, whose state grows"):
        step_of(build_for(stones, **ARMS[name]), stones.observation_space, stones.action_space)


def test_repair_by_opencv_is_refused():
    policy = build({"repair": "holes"}, SPACE, ACTIONS)
    with pytest.raises(ValueError, match="repair must be none in an export, got holes"):
        step_of(policy, SPACE, ACTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("action_space", [ACTIONS, CHOICES], ids=["numbers", "choices"])
@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_other_kinds_become_onnx(tmp_path, settings, action_space):
    policy, env = build(settings, SPACE, action_space), Still(SPACE, action_space)
    step = step_of(policy, SPACE, action_space)
    example = step.example(env.reset(seed=0)[0])
    run = formats.write("onnx", step, example, tmp_path / "model.onnx")
    found = compare(env, policy, step, run, 20, 0)
    assert found.passed, (found.action, found.state)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ARMS if name not in GROWS])
def test_memories_of_places_become_onnx(stones, tmp_path, name):
    policy = build_for(stones, **ARMS[name])
    step = step_of(policy, stones.observation_space, stones.action_space)
    example = step.example(stones.reset(seed=0)[0])
    run = formats.write("onnx", step, example, tmp_path / "model.onnx")
    found = compare(stones, policy, step, run, 60, 0)
    assert found.passed, (found.action, found.state)


@pytest.mark.slow
@pytest.mark.parametrize("name", checkpoint.shipped())
def test_shipped_policies_become_onnx(name, tmp_path):
    from deploy.export import main

    arguments = [name, "--out", str(tmp_path / "out"), "--observations", "150"]
    assert main(arguments) == 0
