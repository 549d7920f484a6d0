"""The policy that learns underfoot which ground holds: what it feels, remembers and does."""

import gymnasium
import numpy as np
import pytest
import torch

import envs  # noqa: F401 - registers SteppingStones-v0
import policies
from envs.stepping_stones.kinematics import TOE_RADIUS_M, forward
from policies.felt_ground.feeling import Feeling
from policies.felt_ground.policy import _statistics, _with_products

FRONT = {"cameras": ("front",), "front_camera": {"pitch_deg": 45}}


@pytest.fixture(scope="module")
def env():
    with gymnasium.make("SteppingStones-v0", felt_ground={"world": "vectors"}, **FRONT) as env:
        yield env


def observed(env, friction=None):
    """Observations of a walk over the trial strip and beyond, and where the toes truly were."""
    own, seen, toes = env.unwrapped, [], []
    observation, _ = env.reset(seed=2)
    if friction is not None:
        for link in own._robot._toes:
            own._client.changeDynamics(own._robot._body, link, lateralFriction=friction)
    for _ in range(200):
        seen.append(observation)
        state = own._state
        toes.append(state.position_m + forward(state.joints_rad).toes_m @ state.rotation.T)
        action = own.expert_action()
        if state.position_m[0] < own._stones.strip_end_m - 0.6:
            action[:4] = 0  # so that feet sink
        observation, *_ = env.step(action)
    parts = {key: torch.from_numpy(np.stack([one[key] for one in seen])) for key in seen[0]}
    return seen, parts, np.array(toes)


@pytest.fixture(scope="module")
def walk(env):
    """A walk at the usual friction, 1."""
    return observed(env)


def test_without_a_distance_feet_try_ground_until_the_memory_tells(env, walk):
    """Then and from then on places differ in risk; a memory that tells nothing never does."""
    _, parts, _ = walk
    steps = {key: part[None] for key, part in parts.items()}
    starts = torch.zeros(1, len(parts["proprio"]), dtype=torch.bool)
    starts[0, 0] = True
    for kind, tells in (("linear", True), ("none", False)):
        own = {"name": "felt_ground", "careful_m": None, "felt": {"kind": kind}}
        policy = policies.build_for(own, env)
        risks = policy.recalled(steps, starts, None)[0]["recalled"][0, :, : policy.reads_m.shape[0]]
        differ = (risks.max(-1).values > -1).tolist()
        assert differ == sorted(differ)
        assert any(differ) == tells
        assert not differ[20]


@pytest.mark.parametrize("friction", [None, 0.5])
def test_feet_feel_how_deep_they_stand(env, walk, friction):
    """Also where feet slip."""
    _, parts, toes = walk if friction is None else observed(env, friction)
    feeling, proprio = Feeling(TOE_RADIUS_M, 0.05, 0.015), parts["proprio"]
    stance, found = feeling.start(proprio[:1], 4), []
    for now, truth in zip(proprio, toes, strict=True):
        now = now[None]
        heights = now[:, 10:22].unflatten(1, (4, 3))[..., 2]
        depth, judged, stance = feeling(stance, heights, now[:, 32:36], now[:, 8:9])
        legs = judged[0].nonzero().flatten().tolist()
        found += [(float(depth[0, leg]), TOE_RADIUS_M - truth[leg, 2]) for leg in legs]
    felt, true = np.array(found).T
    assert len(felt) > 60
    assert (true > 0.02).sum() > 10
    np.testing.assert_array_equal(felt > 0.015, true > 0.015)
    assert np.median(np.abs(felt - true)) < 0.003


def test_a_lost_plane_is_found_again():
    """All feet sink at once and rise again, as where the robot slips from one height to another."""
    feeling = Feeling(0.03, 0.05, 0.015)
    touches, still = torch.ones(1, 4), torch.zeros(1, 1)
    standing = torch.full((1, 4), -0.42)
    stance = feeling(feeling.start(still, 4), standing, touches, still)[2]

    def stand(stance, toes_m):
        stance = feeling(stance, toes_m, torch.zeros(1, 4), still)[2]
        for _ in range(3):
            depth, judged, stance = feeling(stance, toes_m, touches, still)
        assert bool(judged.all())
        return depth, stance

    depth, stance = stand(stance, standing)
    assert float(depth.abs().max()) < 1e-6
    depth, stance = stand(stance, standing - 0.03)
    torch.testing.assert_close(depth, torch.full((1, 4), 0.03))
    for _ in range(5):  # too often: that is where the ground is now
        depth, stance = stand(stance, standing - 0.03)
    assert float(depth.abs().max()) < 1e-6
    depth, stance = stand(stance, standing)  # above the plane: it was that of sunk feet
    assert float(depth.abs().max()) < 1e-6


@pytest.mark.parametrize("careful_m", [2.2, None])
def test_steps_at_once_are_steps_one_by_one(env, walk, careful_m):
    seen, parts, _ = walk
    policy = policies.build_for({"name": "felt_ground", "careful_m": careful_m}, env)
    steps = {key: part[:90].unsqueeze(0) for key, part in parts.items()}
    starts = torch.zeros(1, 90, dtype=torch.bool)
    starts[0, [0, 40]] = True
    at_once = policy.recalled(steps, starts, None)[0]["recalled"][0, [39, 89]]
    found = []
    for first, last in ((0, 40), (40, 90)):
        policy.reset()
        for observation in seen[first:last]:
            before = policy._memory
            policy.act(observation)
        one = {key: torch.from_numpy(part)[None, None] for key, part in observation.items()}
        later = torch.zeros(1, 1, dtype=torch.bool)
        found.append(policy.recalled(one, later, before.seen)[0]["recalled"][0, 0])
    torch.testing.assert_close(at_once, torch.stack(found), atol=1e-5, rtol=1e-4)


def test_what_feet_felt_decides_where_they_step(env):
    """The same walk with and without the memory of what was felt."""
    successes = []
    for felt in ("linear", "none"):
        policy = policies.build_for({"name": "felt_ground", "felt": {"kind": felt}}, env)
        observation, info = env.reset(seed=1)
        done = False
        while not done:
            observation, _, terminated, truncated, info = env.step(policy.act(observation))
            done = terminated or truncated
        successes.append(info["success"])
    assert successes == [True, False]


def test_ground_without_appearance_is_refused_in_one_sentence():
    with (
        gymnasium.make("SteppingStones-v0", **FRONT) as stones,
        pytest.raises(ValueError, match=r"felt_ground needs the appearance .*felt_ground.world"),
    ):
        policies.build_for({"name": "felt_ground"}, stones)


def test_textures_are_told_apart_by_mean_colour_and_contrast():
    colours = torch.rand(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    colours[:, 2] = 1 - colours[:, 0]
    found = _statistics(_with_products(colours).mean(0))
    spread = torch.cov(colours.T, correction=0)[*torch.triu_indices(3, 3)]
    torch.testing.assert_close(found[:3], colours.mean(0))
    torch.testing.assert_close(found[3:], 2 * spread.sign() * spread.abs().sqrt())
