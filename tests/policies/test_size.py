"""A policy's size is known from its settings, and bounded before anything is built."""

from functools import cache

import gymnasium
import pytest
from gymnasium import spaces

import attention
import envs
from policies import (
    PlaceMemoryConfig,
    PolicyConfig,
    PooledPolicyConfig,
    VisionPolicyConfig,
    build,
)
from policies.common.limits import count_numbers
from tests.cheap import cheap

MAPS = attention.available(general=True)
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


@cache
def front():
    """Spaces and geometry of stepping stones seen by one camera."""
    with gymnasium.make(envs.STEPPING_STONES, cameras=("front",)) as env:
        return env.observation_space, env.action_space, env.unwrapped.geometry


def held(policy):
    return sum(tensor.numel() for tensor in policy.state_dict().values())


@pytest.mark.parametrize("config", [
    *(PolicyConfig(**settings) for settings in IMPLICIT),
    *(VisionPolicyConfig(**settings) for settings in VISION),
    *(PolicyConfig(feature_map=name, num_features=50) for name in MAPS[::4]),
    *(VisionPolicyConfig(feature_map=name, depth=1) for name in MAPS[1::4]),
    *(PooledPolicyConfig(controller=kind, patch=(8, 8)) for kind in ("mlp", "lstm", "gru")),
    *(PlaceMemoryConfig(memory=kind) for kind in ("none", "linear", "exact", "grid", "gru")),
    PlaceMemoryConfig(keys="learned"), PlaceMemoryConfig(write_tokens=32),
], ids=repr)  # fmt: skip
def test_the_size_of_a_policy_is_counted_without_memory(config):
    where = SWEEP if isinstance(config, VisionPolicyConfig) else STONES
    if isinstance(config, PlaceMemoryConfig):
        where = front()
    assert count_numbers(lambda: config.build(*where)) == held(config.build(*where))


def test_the_default_policy_has_353_numbers():
    assert count_numbers(lambda: PolicyConfig().build(*STONES)) == 353


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
    (VisionPolicyConfig, {"hidden": (HUGE, 2)}, "numbers for an action"),
    (VisionPolicyConfig, {"samples": 2**17, "hidden": (2000,)}, "numbers for an action"),
    (VisionPolicyConfig, {"patch_readout": 8192, "context_dim": 65536}, "its settings allocate"),
)


IMAGES = (
    ({"patch": (1, 1)}, (1000, 1000, 3), "makes 1000000 tokens of the image, where"),
    ({"patch": (200, 200), "stride": (2, 2)}, (512, 512, 3), "numbers in all$"),
    ({"controller": "mlp", "hidden": (10**4, 10**4)}, (64, 64, 3), "settings allocate"),
    ({"variant": "rank", "keep_tokens": 10**9, "patch": (2, 2), "hidden": (10**4,)},
     (256, 256, 3), "settings allocate"),
    ({"standardise": True, "patch": (999, 999), "selection": "all", "hidden": (1,)},
     (6000, 6000, 3), "settings allocate|numbers in all"),
    ({"controller": "gru", "hidden": (10**5, 10**5)}, (64, 64, 3), "settings allocate"),
)  # fmt: skip
LARGE_IMAGE = spaces.Dict({**SWEEP[0].spaces, "rgb": spaces.Box(0, 255, (1000, 1000, 3), "uint8")})
REFUSED = [
    *((kind(**given), *(SWEEP if kind is VisionPolicyConfig else STONES), sentence)
      for kind, given, sentence in TOO_LARGE),
    *((PolicyConfig(**given), spaces.Box(0, 255, shape, "uint8"), spaces.Box(-1, 1, (2,)), sentence)
      for given, shape, sentence in IMAGES),
    (VisionPolicyConfig(patch=(2, 2)), LARGE_IMAGE, SWEEP[1], "makes 250000 tokens of the image"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "observed", "acts", "sentence"), REFUSED)
def test_a_policy_that_is_too_large_is_refused_at_once(config, observed, acts, sentence):
    with cheap(1), pytest.raises(ValueError, match=sentence):
        build(config, observed, acts)


def test_what_a_file_holds_bounds_a_policy():
    config = PolicyConfig(controller="mlp", hidden=(1000,))
    size = held(build(config, *STONES))
    build(config, *STONES, most_numbers=size)
    with pytest.raises(ValueError, match=f"allocate {size} numbers or more, but at most"):
        build(config, *STONES, most_numbers=size - 1)


@pytest.mark.parametrize("field", ["depth", "heads", "mlp_ratio", "negatives", "samples", "rounds"])
def test_every_number_of_a_policy_has_a_bound(field):
    with pytest.raises(ValueError, match=f"{field}\n.*less than or equal to"):
        VisionPolicyConfig(**{field: HUGE})


def test_spaces_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="observation_space must be a Dict"):
        build(VisionPolicyConfig(), spaces.Discrete(3), spaces.Discrete(2))
