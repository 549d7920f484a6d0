"""What votes see by other cameras: the same ground, in the same pixels."""

from itertools import cycle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.cameras import CameraConfig, DepthCameras, ray_directions
from policies import build
from policies.common.geometry import PUBLISHED_POSITIONS_M, Geometry, published_rays
from tests.policies.cases import ACTIONS, OBSERVATIONS

FRONT, BELLY = (0.197, 0.0, -0.115), (-0.092, 0.0, -0.105)


def geometry(*cameras):
    rays = np.stack([ray_directions(camera) for camera in cameras])
    places = np.array([camera.position_m for camera in cameras])
    return Geometry({"depth": rays}, {"depth": places})


def observations(*shape):
    depth = spaces.Box(0.0, 1.5, shape, np.float32)
    return spaces.Dict({"depth": depth, "proprio": OBSERVATIONS["proprio"]})


def policy_with(*cameras, **settings):
    settings = {"controller": "vote", **settings}
    return build(settings, observations(len(cameras), 24, 32), ACTIONS, geometry=geometry(*cameras))


def scene(cameras, seed):
    """What cameras at a level base see of the same stones: depth (cameras, 24, 32)."""
    rng = np.random.default_rng(seed)
    low, high, x = [], [], -1.5
    while x < 1.5:
        length = rng.uniform(0.3, 0.5)
        low.append([x, -0.25 + rng.uniform(-0.04, 0.04), -0.6])
        high.append([x + length, low[-1][1] + 0.5, 0.0])
        x += length + rng.uniform(0.1, 0.2)
    base = np.array([0.0, 0.0, 0.493])
    return DepthCameras(cameras, 1.5).render(base, np.eye(3), np.array(low), np.array(high), -0.47)


def moved(dx=0.0, dy=0.0, dz=0.0, **settings):
    shift = np.array([dx, dy, dz])
    return tuple(CameraConfig(tuple(np.array(p) + shift), **settings) for p in (FRONT, BELLY))


POSES = {
    "forward": moved(0.05),
    "back": moved(-0.05),
    "up": moved(dz=0.05),
    "aside": moved(dy=0.04),
    "pitched by 10 degrees": moved(pitch_deg=80.0),
    "pitched by 20 degrees": moved(pitch_deg=70.0),
    "a quarter turned": moved(width_along="lateral"),
    "wider": moved(fov_deg=90.0),
    "one, wide": moved(fov_deg=110.0)[:1],
    "three": (*moved(fov_deg=80.0), CameraConfig((0.0, 0.1, -0.1))),
    "other order": moved()[::-1],
}


@pytest.mark.parametrize("name", POSES)
def test_the_view_is_what_the_published_cameras_see(name):
    """But for pixels on an edge, and for what the stones' sides hide from one and not the other."""
    policy = policy_with(*POSES[name], keep=0.4, patch=(4, 4))
    mask = policy.attention_mask(
        {"depth": scene(POSES[name], 0), "proprio": np.zeros(45, np.float32)}
    )
    assert mask.shape == (len(POSES[name]), 24, 32)  # of the cameras' own pixels
    assert 0.1 < mask.mean() < 0.75
    view = policy.inputs.votes.view
    same, stone = [], []
    for seed in range(6):
        theirs = torch.from_numpy(scene(POSES[name], seed))[None, :, None]
        expected = torch.from_numpy(scene(moved(), seed))
        seen = view([theirs])[0, :, 0]
        same.append((seen - expected).abs() < 0.06)
        stone.append(expected < 0.45)
    shares = torch.stack(same)[:, torch.from_numpy(view._seen).view(view.shape)]
    assert shares.float().mean() > {"other order": 0.99, "one, wide": 0.75}.get(name, 0.85)
    assert torch.stack(same)[torch.stack(stone)].float().mean() > 0.85


@pytest.mark.parametrize(
    ("name", "selection"), list(zip(list(POSES)[::3], cycle(("all", "learned"))))
)
def test_a_policy_acts_on_other_cameras_much_as_on_the_published(name, selection):
    """A template that likes stones to gaps; chance would differ by about 0.7."""
    policy, before = (
        policy_with(*cameras, selection=selection, patch=(1, 1))
        for cameras in (POSES[name], moved())
    )
    generator = torch.Generator().manual_seed(0)
    for parameter in before.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    with torch.no_grad():
        before.controller.template.copy_(torch.linspace(-1, 0.2, 11))
    policy.load_state_dict(before.state_dict())
    proprio = np.zeros(45, np.float32)
    proprio[9] = 0.463
    proprio[22:30] = [0.3, -0.115, 0.3, 0.115, -0.135, -0.115, -0.135, 0.115]
    apart = []
    for seed in range(8):
        actions = [
            one.act({"depth": scene(cameras, seed), "proprio": proprio})
            for one, cameras in ((policy, POSES[name]), (before, moved()))
        ]
        apart.append(np.abs(actions[0] - actions[1])[:4])
    assert np.mean(apart) < 0.2


@pytest.mark.parametrize(("factor", "shape"), [(2, (48, 64)), (4, (96, 128))])
def test_the_published_cameras_at_any_resolution_are_read_as_they_are(factor, shape):
    rays = np.stack([published_rays(*shape)] * 2)
    known = Geometry({"depth": rays}, {"depth": np.array(PUBLISHED_POSITIONS_M)})
    policy = build({"controller": "vote"}, observations(2, *shape), ACTIONS, geometry=known)
    assert policy.inputs.votes.view.is_theirs
    assert policy.tokens.count == 96 * factor**2
    depth = torch.rand(1, 2, *shape)
    assert torch.equal(policy.inputs.votes.view([depth.unsqueeze(2)])[:, :, 0], depth)


def test_cameras_of_their_own_keys_are_the_same_cameras():
    both = geometry(*moved())
    apart = Geometry(
        {
            f"depth_{k}": rays
            for k, rays in zip(("front", "belly"), both.rays["depth"], strict=True)
        },
        {"depth_front": np.array(FRONT), "depth_belly": np.array(BELLY)},
        {"depth_front": (0.5, 0.3), "depth_belly": (0.5, 0.3)},
    )
    one = observations(2, 24, 32)
    depth = spaces.Box(0.0, 1.5, (24, 32), np.float32)
    two = spaces.Dict({"depth_front": depth, "depth_belly": depth, "proprio": one["proprio"]})
    policies = [
        build({"controller": "vote"}, space, ACTIONS, geometry=known)
        for space, known in ((one, both), (two, apart))
    ]
    with torch.no_grad():
        for parameter in policies[0].parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
    policies[1].load_state_dict(policies[0].state_dict())
    seen = one.sample()
    front, belly = seen["depth"]
    split = {"depth_front": front, "depth_belly": belly, "proprio": seen["proprio"]}
    np.testing.assert_array_equal(policies[1].act(split), policies[0].act(seen))
    masks = policies[1].attention_masks(split)
    both_masks = policies[0].attention_mask(seen)
    np.testing.assert_array_equal(masks["depth_front"], both_masks[0])
    np.testing.assert_array_equal(masks["depth_belly"], both_masks[1])


REFUSED = [
    (moved(0.4), "cameras that see the ground from -0.26 to 0.42 m ahead of the base and 0.26 m"),
    (moved(fov_deg=50.0), "cameras that see the ground"),
    (moved()[:1], "cameras that see the ground .* of a foot's part"),
    (moved()[1:], "cameras that see the ground .* of a foot's part"),
    (moved(pitch_deg=30.0), "cameras that see the ground"),
    (moved(pitch_deg=-60.0), "cameras that see the ground"),
]


@pytest.mark.parametrize(("cameras", "sentence"), REFUSED)
def test_cameras_that_do_not_see_the_ground_are_refused(cameras, sentence):
    with pytest.raises(ValueError, match=f"controller vote needs {sentence}.*; mlp takes any"):
        policy_with(*cameras)
    assert policy_with(*cameras, controller="auto").inputs.votes is None


def test_cameras_that_are_no_pinholes_are_refused():
    bent = geometry(*moved())
    bent.rays["depth"][:, :12, :, 0] *= 1.1
    with pytest.raises(ValueError, match="vote needs depth to be of pinhole cameras"):
        build({"controller": "vote"}, observations(2, 24, 32), ACTIONS, geometry=bent)
