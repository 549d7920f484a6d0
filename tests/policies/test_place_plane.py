"""Places in two dimensions, where the path turns, and the way back on a straight row."""

import math

import gymnasium
import pytest
import torch

import envs  # noqa: F401 - registers SteppingStones-v0
from policies.footholds.ground import SeenGround
from policies.footholds.head import OFFSETS
from policies.place_memory.localisation import banded_cue, on_plane
from policies.place_memory.memories import PlaceGrid
from tests.policies.cases import assert_gradients
from tests.policies.walks import FRONT, build, walked

ARMS = {
    "linear": {"num_features": 300, "width_m": 0.04},
    "grid": {"memory": "grid", "cell_m": 0.02, "fit_pitch": True},
}


@pytest.fixture(scope="module")
def walk(turning):
    """Observations and actions of an expert's walk over two terrains, and where each begins."""
    return walked(turning)


def stand(policy, x_m, y_m, yaw):
    """An observation of a robot there, its feet where they stand in the middle of a walk."""
    footholds = policy.footholds
    proprio = torch.zeros(1, 51)
    proprio[0, footholds.odometry] = torch.tensor([x_m, y_m])
    proprio[0, footholds.heading] = torch.tensor([math.sin(yaw), math.cos(yaw)])
    proprio[0, footholds.nominal] = torch.tensor(footholds.stance_m).flatten()
    return {"proprio": proprio}


@pytest.mark.parametrize("arm", ARMS)
def test_a_hole_is_where_it_was_when_the_robot_has_turned(turning, arm):
    """Seen 0.5 m ahead, it lies under the front right foot a turn and a step later."""
    policy = build(turning, **ARMS[arm])
    forward_m, lateral_m = torch.meshgrid(
        torch.arange(0.2, 0.8, 0.01), torch.arange(-0.3, 0.3, 0.01), indexing="ij"
    )
    pixels_m = torch.stack((forward_m, lateral_m), -1).view(1, -1, 2)
    hole_m = torch.tensor([0.5, -0.1])
    holes = ((pixels_m - hole_m).norm(dim=-1) < 0.035).float()
    # Seen from (1.9, 0.3), heading left, across the torus' seam.
    before = stand(policy, 1.9, 0.3, math.pi / 2)
    _, at_m, _ = on_plane(before, policy.footholds, pixels_m, policy.reads_m, 2.0)
    state = policy.places.start(1, torch.zeros(1))
    state = policy.places.write(state, at_m, holes, torch.ones_like(holes))
    # The hole is at (2.0, 0.8); the foot at (0.3, -0.115) from the base is there.
    yaw, (foot_x, foot_y) = 0.7, policy.footholds.stance_m[0]
    x_m = 2.0 - (math.cos(yaw) * foot_x - math.sin(yaw) * foot_y)
    y_m = 0.8 - (math.sin(yaw) * foot_x + math.cos(yaw) * foot_y)
    after = stand(policy, x_m, y_m, yaw)
    _, _, asked_m = on_plane(after, policy.footholds, pixels_m, policy.reads_m, 2.0)
    read = policy.places.read(state, asked_m).view(4, 3, 41)
    assert read[0, 1, 20] > 0.25
    assert read[0, 1, 20] > read[0, 0, 20]  # 4 cm to the right
    assert read[0, 1, 20] > read[0, 2, 20]
    assert read[0, 1, 10] < 0.1  # 10 cm behind
    assert read[1:, 1, 20].abs().max() < 0.1


def test_squares_of_a_grid_tell_both_axes_apart():
    grid = PlaceGrid(2.0, 0.02, 0.95, axes=2)
    state = grid.start(1, torch.zeros(1))
    at_m = torch.tensor([[[1.99, 0.01], [0.01, 1.99], [0.51, 0.71]]])
    state = grid.write(state, at_m, torch.tensor([[1.0, 0.0, 1.0]]), torch.ones(1, 3))
    asked_m = torch.tensor([[[-0.01, 2.01], [0.01, 1.99], [0.51, 0.71], [0.71, 0.51]]])
    torch.testing.assert_close(grid.read(state, asked_m), torch.tensor([[1.0, 0.0, 1.0, 0.0]]))


def test_the_cue_tells_how_far_ahead_the_sides_are():
    forward_m = torch.tensor([[0.3, 0.5, 0.7, 0.9]])
    lateral_m = torch.tensor([[0.3, 0.2, 0.1, 0.0]])
    seen = SeenGround(forward_m, lateral_m, torch.ones(1, 4), torch.ones(1, 4, dtype=torch.bool))
    cue = banded_cue(seen).view(3, 2, 18)
    for band, metres in enumerate((0.3, 0.2, 0.1)):
        assert cue[band, 1].nonzero().flatten().tolist() == [int((metres + 0.36) / 0.04)]
        assert cue[band, 0].max() == 0.5


@pytest.mark.parametrize("arm", ARMS)
def test_steps_one_by_one_are_the_same_as_prepared_ones(turning, walk, arm):
    seen, parts, actions, starts = walk
    policy = build(turning, **ARMS[arm])
    policy.set_statistics(parts)
    found = []
    for observation, begins in zip(seen, starts, strict=True):
        if begins:
            policy.reset()
        found.append(torch.as_tensor(policy.act(observation)))
    made = policy.decide(policy.prepared(parts, starts))
    torch.testing.assert_close(made.action(), torch.stack(found), atol=2e-4, rtol=1e-3)
    assert torch.stack(found).shape == (len(seen), 10)
    made.loss(actions).backward()
    assert_gradients(policy)


def test_yaw_rate_and_lateral_offsets_are_regressed_beside_the_votes(turning, walk):
    head = build(turning).head
    assert head.size == 4 * OFFSETS + 1 + 5
    numbers = torch.zeros(2, head.size)
    numbers[:, -6:] = torch.tensor([0.3, 2.0, 0.1, 0.2, -0.4, -3.0])  # speed, yaw rate, four legs
    decision = head(numbers)
    expected = torch.tensor([0.1, 0.2, -0.4, -1.0, 0.3, 1.0])
    torch.testing.assert_close(decision.action()[:, 4:], expected.expand(2, 6))
    torch.testing.assert_close(decision.means(), numbers[:, -6:])
    actions = torch.zeros(2, 10)
    actions[:, 4:] = expected
    actions[:, 9] = 0.5
    gained = decision.loss(actions, 2.0) - decision.loss(actions, 1.0)
    torch.testing.assert_close(gained, torch.tensor(1.5**2 + 2.0**2))
    chosen = torch.full((2, 4), (OFFSETS - 1) // 2)
    explored = head.explored(chosen, decision.means())
    torch.testing.assert_close(explored[:, 4:], decision.action()[:, 4:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "exact"}, "memory must be none or linear or grid or gru where the path turns"),
        ({"keys": "learned"}, "keys must be geometry where the path turns"),
        ({"feature_map": "trig"}, "feature_map must be harmonic where the path turns"),
        ({"pool_m": 0.02}, "pool_m must be null where the path turns"),
        ({"controller": "vote"}, "vote has no yaw rate"),
    ],
)
def test_what_a_path_that_turns_does_not_take_is_refused(turning, settings, message):
    with pytest.raises(ValueError, match=message):
        build(turning, **settings)


def test_on_the_way_back_places_are_those_that_odometry_tells():
    back = gymnasium.make("SteppingStones-v0", walk_back=True, episode_s=18.0, **FRONT)
    _, parts, _, starts = walked(back)
    policy = build(back, circle_m=5.0, num_features=65, forgetting=1.0)
    odometry, speed = policy.footholds.odometry, policy.footholds.velocity
    proprio = parts["proprio"]

    def outputs(proprio):
        return policy.prepared({**parts, "proprio": proprio}, starts)["recalled"]

    usual = outputs(proprio)
    around, other, faster = proprio.clone(), proprio.clone(), proprio.clone()
    around[:, odometry.start] += 5.0
    other[2:, odometry.start] += 0.1
    faster[:, speed] *= 3
    torch.testing.assert_close(outputs(around), usual, atol=1e-3, rtol=0)
    assert (outputs(other) - usual).abs().max() > 0.1
    torch.testing.assert_close(outputs(faster), usual)
    back.close()
