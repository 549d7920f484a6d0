"""The Implicit Attention Policy: masks, gradients, and settings that are refused."""

from itertools import cycle

import numpy as np
import pytest
import torch
from gymnasium import spaces

import attention
from policies import PolicyConfig, build
from policies.common.settings import EXACT
from tests.attention.cases import LargestTensor
from tests.pairwise import pairwise
from tests.policies.cases import (
    ACTIONS,
    OBSERVATIONS,
    assert_gradients,
    make,
    observation,
    tensors,
)

MAPS = (EXACT, *attention.available(general=True))
KINDS = [
    {"selection": "learned"}, {"selection": "random"}, {"selection": "all"},
    {"variant": "rank"}, {"variant": "trans"},
]  # fmt: skip


def test_build_takes_a_config_its_fields_or_a_whole_run():
    fields = {"keep": 0.25, "controller": "mlp", "feature_map": "trig"}
    config = PolicyConfig(keep=0.25, controller="mlp", feature_map="trig")
    run = {"policy": {"keep": 0.25, "controller": "mlp"}, "feature_map": "trig", "popsize": 7}
    unset = {"policy": fields, "feature_map": None, "env": {}}
    actions = [
        build(given, OBSERVATIONS, ACTIONS).act(observation())
        for given in (config, fields, run, unset)
    ]
    for action in actions[1:]:
        np.testing.assert_array_equal(action, actions[0])


@pytest.mark.parametrize(
    ("selection", "patch", "keep"),
    pairwise(["learned", "random"], [(4, 4), (1, 1)], [0.01, 0.1, 0.5, 1.0]),
)
def test_the_mask_shows_the_share_kept(selection, patch, keep):
    policy = make(selection=selection, patch=patch, keep=keep)
    if selection == "random":
        masks = [policy.attention_mask(observation(seed)) for seed in (0, 1)]
        np.testing.assert_array_equal(*masks)
    mask = policy.attention_mask(observation())
    tokens, size = 2 * 24 * 32 // (patch[0] * patch[1]), patch[0] * patch[1]
    assert mask.shape == (2, 24, 32)
    assert mask.dtype == bool
    assert mask.sum() == max(1, round(keep * tokens)) * size
    blocks = mask.reshape(2, 24 // patch[0], patch[0], 32 // patch[1], patch[1])
    assert (blocks == blocks[:, :, :1, :, :1]).all()


@pytest.mark.parametrize("settings", [{"selection": "all"}, {"variant": "trans"}])
def test_without_a_choice_the_mask_keeps_everything(settings):
    assert make(**settings).attention_mask(observation()).all()


@pytest.mark.parametrize("controller", ["vote", "mlp"])
def test_masked_pixels_have_no_say(controller):
    """Where attention does not depend on the image, what it hides cannot change the action."""
    policy = make(selection="random", controller=controller, keep=0.3)
    seen = observation()
    changed = {**seen, "depth": seen["depth"].copy()}
    mask = policy.attention_mask(seen)
    changed["depth"][~mask] += 0.3
    np.testing.assert_array_equal(policy.act(changed), policy.act(seen))
    changed["depth"][mask] += 0.3 * np.random.default_rng(0).random(mask.sum())
    assert (policy.act(changed) != policy.act(seen)).any()


@pytest.mark.parametrize(
    ("kind", "controller", "feature_map", "keep"),
    [
        *zip(cycle(KINDS), cycle(["vote", "mlp"]), MAPS, cycle([0.001, 0.3, 1.0])),
        *pairwise(KINDS, ["vote", "mlp"], ["positive"], [0.001, 0.3, 1.0]),
    ],
)
def test_cloning_reaches_every_parameter(kind, controller, feature_map, keep):
    """All parameters are drawn: at its start a policy's template of votes is zero."""
    policy = make(**kind, controller=controller, feature_map=feature_map, keep=keep, patch=(8, 8))
    seen = [tensors(observation(seed)) for seed in range(4)]
    votes = policy(*(torch.cat(parts) for parts in zip(*seen, strict=True)))
    actions = torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) * 2 - 1
    votes.loss(actions, 5.0).backward()
    assert_gradients(policy)
    for name, parameter in policy.named_parameters():
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    "settings",
    [{}, *({"variant": "rank", "controller": "mlp", "keep": keep} for keep in (0.001, 0.3, 1.0))],
)
def test_decisions_are_the_same_with_gradients(settings):
    """A straight-through gate may round; ranked tokens are equal to the bit."""
    policy, tolerance = make(**settings), 0.0 if settings else 1e-5
    depth, proprio = tensors(observation())
    with torch.no_grad():
        hard = policy(depth, proprio)
    soft = policy(depth, proprio)
    assert soft.offsets.requires_grad
    for ours, expected in ((soft.offsets, hard.offsets), (soft.speed, hard.speed)):
        torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


def near_token(count, seed):
    """Depths, proprioception and actions: the tilt of the one token that is nearer decides.

    All 24 tokens are tilted, each one way or the other at random.
    """
    generator = torch.Generator().manual_seed(seed)
    depth = 0.5 + 0.03 * torch.randn(count, 2, 3, 8, 4, 8, generator=generator)
    tilt = 2.0 * torch.randint(2, (count, 2, 3, 4), generator=generator) - 1
    depth += tilt[:, :, :, None, :, None] * torch.linspace(-0.1, 0.1, 8).view(8, 1, 1)
    every = torch.arange(count)
    place = [torch.randint(n, (count,), generator=generator) for n in (2, 3, 4)]
    depth[every, place[0], place[1], :, place[2]] -= 0.05
    actions = torch.zeros(count, 9)
    actions[:, :8] = 0.5 * tilt[every, *place].unsqueeze(-1)
    return depth.reshape(count, 2, 24, 32), torch.zeros(count, 45), actions


def test_rank_learns_to_attend_where_that_is_needed():
    """With the initial queries and keys the loss stays near log 2, that of not knowing the tilt."""
    policy = make(drawn=False, variant="rank", controller="mlp", patch=(8, 8), keep=0.25,
                  feature_map=EXACT)  # fmt: skip
    optimiser = torch.optim.Adam(policy.parameters(), 0.006)
    depth, proprio, actions = near_token(2048, 0)
    batches = torch.randint(2048, (200, 64), generator=torch.Generator().manual_seed(0))
    for index in batches:
        optimiser.zero_grad()
        policy(depth[index], proprio[index]).loss(actions[index], 0.0).backward()
        optimiser.step()
    depth, proprio, actions = near_token(512, 1)
    with torch.no_grad():
        loss = float(policy(depth, proprio).loss(actions, 0.0))
    assert loss < 0.1


def test_learned_selection_needs_a_choice():
    parts = dict(OBSERVATIONS.spaces) | {"depth": spaces.Box(0.0, 1.5, (1, 24, 32), np.float32)}
    settings = {"controller": "mlp", "patch": (24, 32)}
    with pytest.raises(ValueError, match="selection must be random or all where the patch"):
        build(settings, spaces.Dict(parts), ACTIONS)
    build({**settings, "selection": "all"}, spaces.Dict(parts), ACTIONS)


@pytest.mark.parametrize(
    ("feature_map", "variant"),
    list(
        zip(
            ["angular_hybrid", "clustered_hybrid", "oprf"],
            ["masking", "rank", "trans"],
            strict=True,
        )
    ),
)
def test_pixel_tokens_never_meet_in_a_square_matrix(feature_map, variant):
    tokens = 2 * 24 * 32
    policy = make(patch=(1, 1), feature_map=feature_map, variant=variant, controller="mlp")
    seen = observation()
    with LargestTensor() as largest:
        policy.act(seen)
    assert largest.entries < tokens**2 / 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"depth": None}, "controller vote needs a geometry that tells of footholds, and this"),
        ({"depth": (24, 32)}, "controller vote needs a geometry"),
        ({"proprio": (4, 5)}, "controller vote needs a geometry"),
        ({"depth": (3, 24, 32)}, "controller vote needs the rays and the place of each camera of"),
        ({"proprio": (28,)}, "controller vote needs .* at least 30 numbers, got 28; mlp takes any"),
    ],
)
def test_observations_that_do_not_fit_votes(changes, sentence):
    parts = dict(OBSERVATIONS.spaces)
    for key, shape in changes.items():
        del parts[key]
        if shape is not None:
            parts[key] = spaces.Box(-1.0, 1.0, shape, np.float32)
    with pytest.raises(ValueError, match=sentence):
        build({"controller": "vote"}, spaces.Dict(parts), ACTIONS)
    build({}, spaces.Dict(parts), ACTIONS)


def test_spaces_of_another_kind():
    with pytest.raises(ValueError, match="observation_space must be a Box of at most 4 dimensions"):
        build({}, spaces.Text(3), ACTIONS)
    with pytest.raises(
        ValueError,
        match="action_space must be a Box that holds numbers, Discrete, MultiDiscrete or",
    ):
        build({}, OBSERVATIONS, spaces.Text(3))
    with pytest.raises(ValueError, match="observation_space must not be empty"):
        build({}, spaces.Dict({}), ACTIONS)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"feature_map": "magic"}, "feature_map must be one of .*angular_hybrid.*got 'magic'"),
        ({"patch": (0, 4)}, r"patch must be \[rows, columns\] of at least 1, got \[0, 4\]"),
        ({"stride": (1, 0)}, r"stride must be \[rows, columns\] of at least 1, got \[1, 0\]"),
        ({"rank_with": "places"}, "rank_with must be both with the variant masking, got places"),
        ({"image_scaling": (1.0, 0.0)}, r"image_scaling must have units above 0, got \[1.0, 0.0\]"),
        ({"variant": "rank", "selection": "all"}, "variant rank .* selection must be learned"),
        ({"keep": 0.0}, r"^keep = 0.0, but input should be greater than 0$"),
        ({"keep": float("nan")}, r"^keep = nan, but input should be a finite number$"),
        ({"num_features": 0}, r"^num_features = 0, but input should be .*equal to 1$"),
        ({"patch": (4, "x")}, r"^patch.1 = 'x', but input should be a valid integer[^\n]*$"),
        ({"patch": (4,)}, r"^patch.1 is missing$"),
        ({"hidden": (32, 0)}, r"^hidden must be widths of at least 1, got \[32, 0\]$"),
        ({"variant": "best"}, r"^variant = 'best', but input should be 'masking'[^\n]*$"),
        (
            {"standardise": True, "controller": "vote"},
            "^standardise must be false with the controller vote, which",
        ),
        ({"last_action": True, "controller": "vote"}, "last_action must be false with the control"),
        (
            {"init_output": 0, "controller": "vote"},
            "init_output must be 1 with the controller vote",
        ),
        ({"hidden": (), "controller": "gru"}, "hidden must have a width with the controller gru"),
        ({"feature_map": "trig", "hybrid_base": "oprf"}, "must be hyperbolic with the feature map"),
        *(
            ({"feature_map": name}, "feature_map must be one of softmax, angular_hybrid")
            for name in ("geometric", "poisson", "harmonic")
        ),
        ({"num_clusters": 0}, r"^num_clusters = 0, but input should be .*equal to 1$"),
        ({"projection": "random"}, "^projection = 'random', but input should be 'fast_simplex'"),
        ({"policy": 5}, r"^policy = 5, where `key: value` pairs are needed$"),
        ({"policy": "x"}, r"^policy = 'x', where `key: value` pairs are needed$"),
        (
            {"name": ["a"]},
            r"^policy name must be one of implicit_attention, .*, got \['a'\]; module:Class",
        ),
        ({"qk_dims": 4}, r"^unknown key qk_dims; the keys known there are bins, [^\n]*$"),
    ],
)
def test_wrong_settings(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(settings, OBSERVATIONS, ACTIONS)


# --- means of images ---

STONES = {
    "depth": spaces.Box(0.0, 1.5, (2, 24, 32), np.float32),
    "proprio": spaces.Box(-50.0, 50.0, (39,), np.float32),
}


@pytest.mark.parametrize("selection", ["all", "learned"])
@pytest.mark.parametrize(
    ("means", "controller", "inputs"),
    [("lines", "mlp", 2 * (24 + 32)), ("patches", "mlp", 96), ("lines", "conv", 2 * (24 + 32))],
)
def test_controllers_on_means_of_images(selection, means, controller, inputs):
    """Their inputs are the means of the masked image, and gradients reach attention and images."""
    config = PolicyConfig(
        selection=selection, image_means=means, controller=controller, hidden=(6, 5), keep=0.5,
        layout={"depth": "NHW"},
    )  # fmt: skip
    space = spaces.Dict(STONES)
    policy = build(config, space, spaces.Box(-1.0, 1.0, (3,), np.float32))
    space.seed(0)
    seen = {key: torch.from_numpy(part).unsqueeze(0) for key, part in space.sample().items()}
    given = policy.given(seen)
    assert given.shape == (1, inputs + 39)
    image = (seen["depth"] - 0.75) / 0.75  # the middle and half of the space's bounds
    if selection == "learned":
        image = image * torch.from_numpy(policy.attention_mask(
            {key: part[0].numpy() for key, part in seen.items()}
        ))  # fmt: skip
    wanted = torch.cat([image.mean(-1).flatten(1), image.mean(-2).flatten(1)], -1)
    if means == "patches":
        wanted = image.view(1, 2, 6, 4, 8, 4).mean((3, 5)).flatten(1)
    assert given[:, :inputs].detach().numpy() == pytest.approx(wanted.numpy(), abs=1e-5)
    assert np.isfinite(policy.act(space.sample())).all()
    policy.decide(seen).action().square().sum().backward()
    assert all(p.grad is not None for p in policy.controller.parameters())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"image_means": "lines", "variant": "rank"}, "image_means must be none"),
        ({"controller": "conv"}, "controller conv needs image_means = lines"),
        ({"image_means": "lines", "controller": "conv", "hidden": ()}, "at least one width"),
    ],
)
def test_means_that_do_not_fit_are_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        PolicyConfig(**settings)
