"""The policy that remembers where the ground has holes: its geometry, its state, what it costs."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from pydantic import ValidationError

import envs  # noqa: F401 - registers SteppingStones-v0
import policies
from envs.cameras import CameraConfig, DepthCameras
from policies import PlaceMemoryConfig
from policies.footholds.ground import lateral_cue, levelled
from policies.place_memory.localisation import way
from policies.place_memory.memories import PlaceGrid
from tests.policies.cases import assert_gradients
from tests.policies.walks import ARMS, build
from training.analysis.step_cost import count

CARRIES = [name for name in ARMS if name != "none"]


def test_pixels_are_where_their_rays_meet_the_plane_of_the_tops(stones):
    """A tilted base over a plane with one hole, met by exact rays."""
    policy = build(stones)
    camera = DepthCameras([CameraConfig(pitch_deg=45)], 5.0)
    roll, pitch, height_m = 0.1, -0.07, 0.45
    rotation = levelled(torch.tensor([[roll, pitch, 0.0]]))[0].double().numpy()
    low = np.array([[-5.0, -5, -1], [0.7, -5, -1]])
    high = np.array([[0.5, 5, 0], [5.0, 5, 0]])
    toe_m = policy.footholds.toe_radius_m
    base_m = np.array([0.0, 0.0, height_m + toe_m])
    depth = camera.render(base_m, rotation, low, high, -0.5)
    proprio = torch.zeros(1, 45)
    proprio[0, :3], proprio[0, 9] = torch.tensor([roll, pitch, 0.0]), height_m
    seen = policy.ground({"depth": torch.from_numpy(depth)[None], "proprio": proprio})
    here = (seen.near & (seen.lateral_m.abs() < 0.3))[0]
    forward_m = seen.forward_m[0]
    in_gap = (forward_m > 0.5) & (forward_m < 0.7)
    # Rays that meet the plane just before the gap's far side end at that side, not deep enough.
    sure = here & ((forward_m - 0.5).abs() > 1e-3) & ((forward_m < 0.62) | (forward_m > 0.701))
    assert in_gap[sure].sum() > 10
    assert torch.equal(seen.holes[0][sure] > 0.5, in_gap[sure])


def test_yaw_turns_places_to_the_path(stones):
    policy = build(stones)
    proprio = torch.zeros(2, 45)
    proprio[:, 9], proprio[1, 2] = 0.45, 0.3
    both = policy.ground({"depth": torch.full((2, 1, 24, 32), 0.6), "proprio": proprio})
    straight = torch.stack((both.forward_m[0], both.lateral_m[0]))
    turn = torch.tensor([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])
    found = torch.stack((both.forward_m[1], both.lateral_m[1]))
    torch.testing.assert_close(found, turn @ straight, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("error_deg", [-7, 5])
def test_a_wrong_pitch_is_found_in_the_plane_of_the_tops(error_deg):
    """The camera is mounted at 45 degrees, and the policy believes in another pitch."""
    told = gymnasium.make(
        "SteppingStones-v0", cameras=("front",), front_camera={"pitch_deg": 45 + error_deg}
    )
    policy = build(told, memory="grid", fit_pitch=True)
    true = gymnasium.make("SteppingStones-v0", cameras=("front",), front_camera={"pitch_deg": 45})
    observation, _ = true.reset(seed=5)
    for _ in range(12):
        policy.act(observation)
        observation = true.step(true.unwrapped.expert_action())[0]
    found = policy.ground.corrections[policy._memory.seen.in_plane.argmax(-1)].rad2deg()
    assert abs(float(found) + error_deg) <= 1
    told.close()
    true.close()


@pytest.mark.parametrize("arm", ["linear", "trig"])
def test_what_is_read_does_not_depend_on_the_order_of_sums(stones, arm):
    """An exported policy sums in another order."""
    places = build(stones, **ARMS[arm]).places
    generator = torch.Generator().manual_seed(2)
    at_m = 0.4 + 0.3 * torch.rand(1, 600, generator=generator)
    holes = torch.rand(1, 600, generator=generator).round()
    found = []
    for order in (torch.arange(600), torch.arange(599, -1, -1)):
        nothing = places.start(1, at_m)
        state = places.write(nothing, at_m[:, order], holes[:, order], torch.ones(1, 600))
        found.append(places.read(state, torch.linspace(0.8, 1.9, 40).unsqueeze(0)))
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(*found, rtol=0, atol=1e-7)


def test_odometry_integrates_velocity_and_begins_again_with_the_episode():
    speeds = torch.tensor([[0.4, 0.6, 0.2, 1.0, 1.0]])
    starts = torch.tensor([[False, False, False, True, False]])
    found = way(speeds, starts, torch.tensor([[0.3, 0.2]]), 0.1)
    torch.testing.assert_close(found, torch.tensor([[0.33, 0.38, 0.42, 0.05, 0.15]]))


def test_an_image_that_shows_nothing_is_not_written(stones, walk):
    policy = build(stones, memory="grid")
    dark = {**walk[0][0], "depth": np.full((1, 24, 32), 1.5, np.float32)}
    seen = policy.ground(policy._one(dark))
    assert not seen.weights.any()
    assert not lateral_cue(seen).any()


@pytest.mark.parametrize("arm", CARRIES)
def test_steps_one_by_one_are_the_same_as_prepared_ones(stones, walk, arm):
    """Two episodes: what the second recalls owes nothing to the first."""
    seen, parts, actions, starts = walk
    policy = build(stones, **ARMS[arm])
    assert policy.remembers
    policy.set_statistics(parts)
    found = []
    for observation, begins, action in zip(seen, starts, actions, strict=True):
        if begins:
            policy.reset()
        found.append(torch.as_tensor(policy.act(observation)))
        policy.took(action[None])
    begun = {key: part.unsqueeze(0) for key, part in parts.items()}
    ready = policy.prepared(parts, starts)
    for given in (begun, {key: part.unsqueeze(0) for key, part in ready.items()}):
        made, _ = policy.unroll(given, actions[None], starts[None], policy.start(1))
        torch.testing.assert_close(made.action(), torch.stack(found), atol=2e-4, rtol=1e-3)
    if not policy.unrolls:
        torch.testing.assert_close(policy.decide(ready).action(), made.action())
    assert ("depth" in ready) == arm.startswith("learned")
    made.loss(actions).backward()
    assert_gradients(policy)


@pytest.mark.parametrize("arm", ["linear", "grid", "delta"])
def test_a_decision_costs_the_same_however_long_the_episode(stones, walk, arm):
    policy = build(stones, **ARMS[arm])
    policy.reset()
    if arm == "linear":
        state = policy.places.start(1, torch.zeros(1))
        assert state.values.numel() + state.normaliser.numel() == 106
    costs = [count(lambda: policy.act(walk[0][0])).by_component["score"] for _ in range(6)]
    assert costs[1] > 0
    assert len(set(costs[1:])) == 1


def test_a_grid_keeps_its_cells_while_the_robot_walks_on():
    """A hole that was seen 30 cm ahead lies under the robot 30 cm later, on the same cell."""
    grid = PlaceGrid(2.0, 0.01, 0.95)
    state = grid.start(1, torch.zeros(1))
    at_m = torch.arange(0.2, 0.4, 0.01)[None] + 0.005
    holes = ((at_m > 0.3) & (at_m < 0.35)).float()
    state = grid.write(state, 1.9 + at_m, holes, torch.ones_like(at_m))  # beyond the seam
    for _ in range(5):
        state = grid.write(state, *(torch.zeros(1, 0) for _ in range(3)))
    read = grid.read(state, 1.9 + 0.3 + at_m - 0.3)
    torch.testing.assert_close(read, holes)
    assert not grid.read(state, 1.9 + at_m + 0.5).any()
    torch.testing.assert_close(state.counts.sum(), torch.tensor(20 * 0.95**5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "lstm"}, "memory"),
        ({"patch": (2, 2)}, "patch has no effect in place_memory"),
        ({"standardise": True}, "standardise has no effect in place_memory"),
        ({"memory": "gru", "controller": "lstm"}, "must be auto or mlp with memory gru"),
        ({"memory": "gru", "hidden": ()}, "hidden must have a width with memory gru"),
        ({"fit_pitch": True}, "fit_pitch must be false with memory linear and keys geometry"),
        ({"feature_map": "softmax"}, "memory exact is exact attention"),
        ({"feature_map": "geometric"}, "feature_map must be"),
        ({"width_m": 0.5}, "width_m must be at most"),
        ({"keys": "learned", "memory": "grid"}, "keys must be geometry with memory grid"),
        ({"key_stride": 5, "keys": "learned"}, "key_stride must be a divisor of 192, got 5"),
        ({"key_stride": 6}, "key_prior and key_stride have no effect with keys geometry"),
        ({"key_prior": (-0.8, 0.0)}, "key_prior and key_stride have no effect with keys geometry"),
        ({"key_stride": 0, "keys": "learned"}, "key_stride"),
        ({"rule": "delta", "memory": "grid"}, "rule must be sum with memory grid"),
        ({"write_choice": "random"}, "write_choice must be learned with write_tokens null"),
        ({"write_tokens": 0}, "write_tokens"),
        (
            {"write_tokens": 8, "memory": "grid"},
            "write_tokens must be null with memory grid",
        ),
        ({"write_tokens": 8, "keys": "learned"}, "write_tokens must be null with keys learned"),
        ({"write_tokens": 8, "pool_m": 0.02}, "write_tokens must be null with pool_m 0.02"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        PlaceMemoryConfig(**settings)


def test_votes_move_with_what_is_read_and_speed_turns_about_with_the_cue(stones):
    policy = build(stones, controller="vote")
    assert sum(parameter.numel() for parameter in policy.parameters()) == 23
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.normal_(generator=generator)
        policy.controller.prior.copy_(torch.tensor([0.0, -1.0]))  # no offset is preferred
        policy.controller.balance.zero_()
    given = torch.randn(2, 4 * 41 + 36 + 45, generator=generator)
    given[1, :164] = given[0, :164].view(4, 41).roll(1, -1).flatten()
    given[1, 164:182] = given[0, 164:182].flip(-1)
    votes = policy.controller(given)[:, :-1].view(2, 4, 25)
    torch.testing.assert_close(votes[1, :, 1:], votes[0, :, :-1])
    speed = policy.controller(given)[:, -1]
    torch.testing.assert_close(speed[1], -speed[0])
    with pytest.raises(ValueError, match=r"spacing_m must be 0\.01 and reach_m at least 0\.13"):
        build(stones, controller="vote", reach_m=0.12)


def test_learned_keys_take_one_camera():
    two = gymnasium.make("SteppingStones-v0")
    with pytest.raises(ValueError, match="keys must be geometry with 2 cameras, got learned"):
        build(two, keys="learned")
    assert build(two).act(two.reset(seed=1)[0]).shape == (9,)
    two.close()


def test_training_goes_through_other_pixels_at_each_decision_and_acting_through_all(stones, walk):
    keys = build(stones, keys="learned", key_stride=6).learned
    still = {key: part[:1].expand(6, *part.shape[1:]) for key, part in walk[1].items()}
    trained, _ = keys(still)
    with torch.no_grad():
        acted, _ = keys(still)
    for part, whole in zip(trained, acted, strict=True):
        assert part.shape == (6, 32)
        torch.testing.assert_close(part.mT.flatten(), whole[0])  # in six decisions each once


def test_a_robot_without_geometry_is_refused(stones):
    spaces = stones.observation_space, stones.action_space
    with pytest.raises(
        ValueError, match="poses of the cameras of depth, and the geometry has none"
    ):
        policies.build(PlaceMemoryConfig(), *spaces)
    cart = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="needs an environment whose geometry has"):
        policies.build_for(PlaceMemoryConfig(), cart)
