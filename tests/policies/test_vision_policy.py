"""The Vision-Performer policy: every kind acts, learns, saves, loads and says what is wrong."""

from itertools import cycle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn.parallel import DistributedDataParallel

import attention
from policies import ImplicitAttentionPolicy, VisionPerformerPolicy, VisionPolicyConfig, build
from tests.pairwise import pairwise
from tests.policies import cases
from tests.policies.vision_cases import (
    ACTION_SPACE,
    HEIGHT,
    OBSERVATION_SPACE,
    POSE,
    SMALL,
    WIDTH,
    batch,
    generator,
    make,
    observation,
)
from training.analysis.step_cost import count

HEADS = [
    {"head": "autoregressive"},
    {"head": "joint"},
    {"head": "joint", "langevin_negatives": True},
    {"head": "joint", "optimiser": "derivative_free"},
    {"head": "explicit"},
]


@pytest.mark.parametrize(
    ("settings", "feature_map", "more"),
    [
        *zip(
            cycle(HEADS),
            ["softmax", *attention.available(general=True)],
            cycle([{}, {"patch_readout": 0, "pose_octaves": 0}]),
        ),
        *pairwise(HEADS, ["positive"], [{"attend": False}, {"patch_readout": 0}]),
    ],
)
def test_cloning_reaches_every_parameter(settings, feature_map, more):
    """But the constant of an energy, which a softmax over candidates leaves out."""
    policy = make(**settings, **more, feature_map=feature_map)
    policy.loss(*batch(4), generator()).backward()
    biases = [name for name, _ in policy.named_parameters() if "head.biases" in name]
    constant = None if settings["head"] == "explicit" else biases[-1]
    cases.assert_gradients(policy)
    for name, parameter in policy.named_parameters():
        assert (parameter.grad.abs().max() > 1e-6) == (name != constant), name


@pytest.mark.parametrize("settings", HEADS)
def test_every_head_acts_learns_and_is_counted(settings):
    policy = make(**settings)
    rgb, pose, actions = batch(4)
    loss = policy(rgb, pose, actions, generator())
    loss.backward()
    cases.assert_gradients(policy)
    assert torch.equal(policy.loss(rgb, pose, actions, generator()), loss)
    policy.requires_grad_(False)
    policy.reset()
    first, again = policy.act(observation(0)), policy.act(observation(0))
    # Noise is seeded by reset, not by act: the search goes on with new noise.
    assert (again == first).all() == (settings["head"] == "explicit")
    flops = count(lambda: policy.act(observation())).by_component
    assert set(flops) >= {"tokens", "encoder", "projection", "exponentials", "score", "controller"}


def test_the_encoder_runs_once_for_all_candidates():
    few, many = make(samples=16), make(samples=64)
    costs = [count(lambda p=p: p.act(observation())).by_component for p in (few, many)]
    assert costs[0]["encoder"] == costs[1]["encoder"] > 0
    assert costs[0]["score"] == costs[1]["score"] > 0
    assert 2 * costs[0]["controller"] < costs[1]["controller"]


@pytest.mark.parametrize("settings", HEADS)
def test_learns_under_autocast(settings):
    policy = make(**settings)
    with torch.autocast("cpu", torch.bfloat16):
        loss = policy.loss(*batch(4), generator())
    assert loss.dtype == torch.float32
    loss.backward()
    torch.testing.assert_close(policy.loss(*batch(4), generator()), loss, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("head", ["autoregressive", "joint"])
def test_autocast_does_not_blur_actions(head):
    """bfloat16 would round actions to 0.4 %: energies of near ones must still differ."""
    policy = make(head=head)
    context = policy.encode(*batch(1)[:2]).detach()
    near = torch.tensor([0.5, 0.5002])
    losses = []
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for value in near:
            actions = torch.full((1, 3), float(value))
            losses.append(policy.head.loss(context, actions, generator()))
    assert losses[0] != losses[1]


def test_learns_under_data_parallel(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        policy, alone = make(), make()
        parallel = DistributedDataParallel(policy)
        parallel(*batch(4), generator()).backward()
        alone(*batch(4), generator()).backward()
        for ours, theirs in zip(policy.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
    finally:
        torch.distributed.destroy_process_group()


def test_statistics_normalise_poses_and_actions():
    policy = make()
    _, pose, actions = batch(50)
    actions[:, 1] = 0.01
    policy.set_statistics(pose * 3 + 1, actions.numpy())
    normal = policy.normaliser(pose * 3 + 1)
    torch.testing.assert_close(normal.mean(0), torch.zeros(POSE), rtol=0, atol=1e-5)
    torch.testing.assert_close(normal.std(0, correction=0), torch.ones(POSE))
    units = policy.normalised(actions)
    expected = torch.tensor([1 / 1.1, 0.0, 1 / 1.1])  # the range widened by 5 % on either side
    torch.testing.assert_close(units.amax(0), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(units.amin(0), -expected, rtol=0, atol=1e-5)
    width = policy.action_high - policy.action_low
    assert float(width[1]) == pytest.approx(0.02 * 0.08)
    # Whatever the head prefers, an action lies in the data's range, and in the space.
    for seed in range(5):
        action = torch.from_numpy(policy.act(observation(seed)))
        assert (action >= policy.action_low).all()
        assert (action <= policy.action_high).all()
        assert ACTION_SPACE.contains(action.numpy())


@pytest.mark.parametrize(
    ("pose", "actions", "message"),
    [
        (np.zeros((3, 4)), np.zeros((3, 3)), r"pose must have shape \(N, 5\), .*, got \(3, 4\)"),
        (np.zeros((3, 5)), np.zeros((0, 3)), r"actions must have shape \(N, 3\), N above 0"),
        (np.zeros((3, 5)), np.full((3, 3), np.nan), r"actions must be finite, got 9 others"),
    ],
)
def test_bad_statistics_change_nothing(pose, actions, message):
    policy = make()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        policy.set_statistics(pose, actions)
    for name, value in policy.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_attention_map_follows_what_keys_say():
    """A patch unlike all others, where keys read its colour and queries match it."""
    policy = make(feature_map="softmax", qk_length=None, depth=1, heads=1)
    seen = observation()
    seen["rgb"][:] = 60
    seen["rgb"][6:12, 12:18] = 255
    with torch.no_grad():
        policy.encoder.patches.weight.fill_(0)
        policy.encoder.patches.positions.fill_(0)
        policy.encoder.patches.weight[0].fill_(1)
        block = policy.encoder.blocks[0]
        block.attention.in_proj_weight.fill_(0)
        block.attention.in_proj_bias.fill_(0)
        block.attention.in_proj_bias[0] = 1  # every query
        block.attention.in_proj_weight[16, 0] = 3  # keys grow with what the patch shows
    shown = policy.attention_map(seen)
    assert shown.shape == (HEIGHT, WIDTH)
    assert shown.dtype == np.float32
    assert shown[::6, ::6].sum() == pytest.approx(1)
    assert set(zip(*np.nonzero(shown == shown.max()), strict=True)) == {
        (row, column) for row in range(6, 12) for column in range(12, 18)
    }


def test_diagnoses_tell_sound_from_broken():
    rgb, pose, _ = batch(2)
    for feature_map, signed in (("positive", False), ("angular_hybrid", True), ("softmax", False)):
        found = make(feature_map=feature_map, num_features=2).diagnose(rgb, pose)
        assert found["parameters"] == []
        assert found["pose"] == found["context"] == 0
        places = [(entry["block"], entry["head"]) for entry in found["attention"]]
        assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
        for entry in found["attention"]:
            assert entry["non_finite"] == 0
            assert entry["negative_share"] == 0 or signed
            assert entry["smallest_denominator"] == pytest.approx(1) or signed
    policy = make()
    with torch.no_grad():
        policy.encoder.blocks[1].attention.in_proj_weight[0, 0] = torch.nan
    found = policy.diagnose(rgb, pose)
    assert found["parameters"] == ["encoder.blocks.1.attention.in_proj_weight"]
    broken = [entry["non_finite"] > 0 for entry in found["attention"]]
    assert broken == [False, False, True, False]
    assert found["context"] > 0
    assert make().diagnose(rgb, torch.full_like(pose, torch.nan))["pose"] == 2 * POSE


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "newton"}, "'autoregressive', 'derivative_free' or 'langevin'"),
        ({"optimiser": "langevin"}, "optimiser must be null or autoregressive with the head auto"),
        (
            {"head": "joint", "optimiser": "autoregressive"},
            "optimiser must be null or derivative_free or langevin with the head joint, got auto",
        ),
        ({"head": "explicit", "optimiser": "langevin"}, "optimiser must be null with the head exp"),
        ({"langevin_negatives": True}, "langevin_negatives must be false with the head autoreg"),
        ({"feature_map": "poisson"}, "feature_map must be one of softmax, .*, got 'poisson'"),
        ({"embed_dim": 18}, "embed_dim must be a multiple of 4 and of heads = 2, got 18"),
        ({"hidden": ()}, r"hidden must be widths of at least 1, got \[\]"),
        ({"patch": (0, 6)}, r"patch must be \[rows, columns\] of at least 1, got \[0, 6\]"),
        ({"patch": (5, 6)}, r"patch must be .* divide the 24 x 36 image, got \[5, 6\]"),
        ({"image_scale": 5}, "image_scale must divide the 24 x 36 image, got 5"),
        ({"patch_readout": -1}, "patch_readout = -1, but input should be greater than or equal"),
        ({"temperature": -0.1}, "temperature = -0.1, but input should be greater than or equal"),
        ({"qk_length": 0.0}, "qk_length = 0.0, but input should be greater than 0"),
        ({"tokens": 3}, "unknown key tokens; the keys known there are action_noise, attend, con"),
    ],
)
def test_settings_out_of_range_are_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message):
        build({"name": "vision_performer", **SMALL, **settings}, OBSERVATION_SPACE, ACTION_SPACE)


def test_build_picks_the_policy_by_name():
    settings = {"name": "vision_performer", **SMALL}
    run = {"policy": settings, "feature_map": "positive", "name": "a run", "seed": 3}
    assert isinstance(build(settings, OBSERVATION_SPACE, ACTION_SPACE), VisionPerformerPolicy)
    built = build(run, OBSERVATION_SPACE, ACTION_SPACE)
    assert built.config == VisionPolicyConfig(**{**SMALL, "feature_map": "positive"})
    for legged in ({}, {"name": "implicit_attention"}):
        policy = build(legged, cases.OBSERVATIONS, cases.ACTIONS)
        assert isinstance(policy, ImplicitAttentionPolicy)
    with pytest.raises(
        ValueError, match="must be one of implicit_attention, place_memory, felt_ground, vi"
    ):
        build({"name": "resnet"}, OBSERVATION_SPACE, ACTION_SPACE)


@pytest.mark.parametrize(
    ("key", "space", "message"),
    [
        ("rgb", spaces.Box(0, 1, (24, 36, 3), np.float32), "'rgb' is .* of uint8"),
        ("rgb", spaces.Box(0, 255, (24, 36), np.uint8), "'rgb' is .* of uint8"),
        ("pose", spaces.Box(0, 1, (2, 6), np.float32), r"'pose' is \(k,\)"),
        ("action", spaces.Box(-np.inf, np.inf, (3,), np.float32), "a bounded Box of shape"),
        ("action", spaces.Discrete(3), "a bounded Box of shape"),
    ],
)
def test_other_spaces_are_refused(key, space, message):
    observations = dict(OBSERVATION_SPACE.spaces)
    actions = space if key == "action" else ACTION_SPACE
    if key != "action":
        observations[key] = space
    with pytest.raises(ValueError, match=message):
        build(VisionPolicyConfig(**SMALL), spaces.Dict(observations), actions)


def test_observations_may_be_read_only_or_views():
    policy, seen = make(), observation()
    expected = policy.act(seen)
    padded = np.zeros((HEIGHT, 2 * WIDTH, 3), np.uint8)
    padded[:, ::2] = seen["rgb"]
    frozen = {key: value.copy() for key, value in seen.items()}
    for value in frozen.values():
        value.flags.writeable = False
    for same in (frozen, {**seen, "rgb": padded[:, ::2]}):
        policy.reset()
        np.testing.assert_array_equal(policy.act(same), expected)


def test_other_images_are_refused():
    policy = make()
    rgb, pose, actions = batch(2)
    for wrong in (rgb.float(), rgb[:, :12], rgb[..., :1]):
        with pytest.raises(ValueError, match=r"rgb must be uint8 images of shape \(24, 36, 3\)"):
            policy.loss(wrong, pose, actions, generator())
    with pytest.raises(ValueError, match="rgb must be uint8 images"):
        policy.act({**observation(), "rgb": np.zeros((24, 36, 4), np.uint8)})
