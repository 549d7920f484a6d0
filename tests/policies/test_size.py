"""A policy's size is known from its settings, and bounded before anything is built."""

import pytest
from gymnasium import spaces

from policies import PolicyConfig, VisionPolicyConfig, build
from policies.common.size import MOST_NUMBERS, check_size, numbers
from policies.implicit_attention.config import FEATURE_MAPS
from tests.cheap import cheap

STONES = (
    spaces.Dict({"depth": spaces.Box(0, 2, (2, 24, 32)), "proprio": spaces.Box(-9, 9, (45,))}),
    spaces.Box(-1, 1, (9,)),
)
SWEEP = (
    spaces.Dict({"rgb": spaces.Box(0, 255, (100, 100, 3), "uint8"),
                 "pose": spaces.Box(-9, 9, (12,))}),
    spaces.Box(-1, 1, (12,)),
)  # fmt: skip
IMPLICIT = (
    {}, {"controller": "mlp"}, {"controller": "mlp", "variant": "rank"}, {"selection": "random"},
    {"selection": "all", "controller": "mlp", "hidden": (100, 50)}, {"patch": (2, 2)},
    {"num_features": 1000, "qk_dim": 16},
)  # fmt: skip
VISION = (
    {}, {"head": "joint"}, {"head": "explicit"}, {"attend": False}, {"patch_readout": 0},
    {"num_features": 1000}, {"depth": 3, "heads": 8}, {"hidden": (500,)}, {"patch": (10, 10)},
    {"context_dim": 1000, "mlp_ratio": 3.0, "image_scale": 2},
)  # fmt: skip


def check(config):
    where = SWEEP if isinstance(config, VisionPolicyConfig) else STONES
    built = sum(tensor.numel() for tensor in build(config, *where).state_dict().values())
    foreseen = numbers(config, *where)
    doubled = config.feature_map in ("geometric_plus", "poisson_plus")  # they keep their draws too
    assert foreseen <= built <= (2.25 if doubled else 1.25) * foreseen + 250, config


@pytest.mark.parametrize("settings", IMPLICIT)
def test_hardly_less_is_foreseen_than_an_implicit_policy_is(settings):
    check(PolicyConfig(**settings))


@pytest.mark.parametrize("settings", VISION)
def test_hardly_less_is_foreseen_than_a_vision_performer_is(settings):
    check(VisionPolicyConfig(**settings))


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_hardly_less_is_foreseen_with_any_feature_map(name):
    check(PolicyConfig(feature_map=name, num_features=500, qk_dim=16))
    check(VisionPolicyConfig(feature_map=name, num_features=500, depth=1))


HUGE = 10**12
TOO_LARGE = (
    (
        PolicyConfig,
        {"num_features": 20_000_000},
        "num_features must be at most 4096, got 2",
    ),
    (PolicyConfig, {"num_lambda_features": HUGE}, "num_features times num_lambda_features must be"),
    (PolicyConfig, {"controller": "mlp", "hidden": (HUGE,)}, "its settings allocate"),
    (PolicyConfig, {"controller": "mlp", "hidden": (10**5, 10**5)}, "its settings allocate"),
    (
        PolicyConfig,
        {"controller": "mlp", "hidden": (1,) * 10**5},
        "hidden must be at most 64 w",
    ),
    (PolicyConfig, {"feature_map": "clustered_hybrid", "num_clusters": 10**6}, "num_clusters squ"),
    (VisionPolicyConfig, {"num_features": HUGE}, "num_features must be at most 4096"),
    (VisionPolicyConfig, {"embed_dim": 4 * HUGE}, "its settings allocate"),
    (VisionPolicyConfig, {"embed_dim": 4096, "depth": 256}, "its settings allocate"),
    (VisionPolicyConfig, {"hidden": (HUGE, 2)}, "its settings allocate"),
    (VisionPolicyConfig, {"samples": 2**17, "hidden": (2000,)}, "numbers for an action"),
    (VisionPolicyConfig, {"patch_readout": 8192, "context_dim": 65536}, "its settings allocate"),
)


@pytest.mark.parametrize(("kind", "settings", "sentence"), TOO_LARGE)
def test_a_policy_that_is_too_large_is_refused_at_once(kind, settings, sentence):
    with cheap(1), pytest.raises(ValueError, match=sentence):
        build(kind(**settings), *(SWEEP if kind is VisionPolicyConfig else STONES))


def test_an_image_of_too_many_tokens_is_refused():
    image = spaces.Dict({**SWEEP[0].spaces, "rgb": spaces.Box(0, 255, (1000, 1000, 3), "uint8")})
    with pytest.raises(ValueError, match="makes 250000 tokens of the image, where there can be at"):
        build(VisionPolicyConfig(patch=(2, 2)), image, SWEEP[1])


def test_what_a_file_holds_bounds_a_policy():
    config = PolicyConfig(controller="mlp", hidden=(1000,))
    size = numbers(config, *STONES)
    check_size(config, *STONES, most=size)
    with pytest.raises(ValueError, match=f"allocate {size} numbers, where there can be at most"):
        build(config, *STONES, most_numbers=size - 1)


@pytest.mark.parametrize("field", ["depth", "heads", "mlp_ratio", "negatives", "samples", "rounds"])
def test_every_number_of_a_policy_has_a_bound(field):
    with pytest.raises(ValueError, match=f"{field}\n.*less than or equal to"):
        VisionPolicyConfig(**{field: HUGE})


def test_spaces_that_do_not_fit_are_told_of_by_the_policy():
    assert numbers(VisionPolicyConfig(), spaces.Discrete(3), spaces.Discrete(2)) == 0
    with pytest.raises(ValueError, match="observation_space must be a Dict"):
        build(VisionPolicyConfig(), spaces.Discrete(3), spaces.Discrete(2))
    assert 100 * numbers(VisionPolicyConfig(), *SWEEP) < MOST_NUMBERS
