"""Modules that were built on the meta device, or emptied, hold what their constructor makes."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.testing import assert_close

import attention
from attention import RandomFeatureAttention
from attention.features import HyperbolicFeatures, PositiveFeatures, TrigFeatures
from attention.hybrid import (
    AngularCoefficient,
    BipolarGaussianCoefficient,
    GaussianCoefficient,
    HybridFeatures,
)
from tests.attention.cases import rejects

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "angular_hybrid": [{"base": ("oprf", "trig"), "shared_projections": False}],
    "clustered_hybrid": [{"coefficients": "gaussian"}, {"query_centers": torch.ones(2, 2, 4)}],
    "complex_exponential": [{"A": torch.tensor([1.0, 2j, -1.0, 1j])}],
    "gerf": [{"s": -1}, {"A": 0.1j}],
    "oprf": [{"A": [-0.1, -0.2]}],
    "poisson_plus": [{"shift": -torch.ones(4)}],
    "trig_phase": [{"phase": torch.ones(2, 6)}],
}
CASES = [(name, o) for name in attention.available() for o in ({}, *OPTIONS.get(name, []))]
INTEGERS = ("geometric", "geometric_plus", "poisson", "poisson_plus")


def couplings(name: str) -> tuple[str, ...]:
    return ("iid",) if name in INTEGERS else attention.available_projections()


def build(name: str, projection: Any = "orthogonal", **options: Any) -> attention.FeatureMap:
    """A map of seed 3 with 2 heads."""
    return attention.feature_map(name, 4, 6, projection=projection, heads=2, seed=3, **options)


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def assert_same(module: nn.Module, expected: nn.Module) -> None:
    ours, theirs = tensors(module), tensors(expected)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert not tensor.is_meta, name
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name


def dirty_memory() -> None:
    """Fill memory that is free with numbers, for `torch.empty` to find."""
    del [torch.full((n,), 7.5) for n in (1, 4, 16, 64, 256, 1024) for _ in range(20)][:]


def reset_one_by_one(module: nn.Module, *, parents_first: bool = True) -> None:
    """The recipe of fully sharded training: each module that holds tensors, for itself."""
    modules = list(module.modules())
    for part in modules if parents_first else reversed(modules):
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if own:
            part.to_empty(device="cpu", recurse=False)
            part.reset_parameters()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_map_leaves_the_meta_device_as_it_is_built_elsewhere(name, options):
    """Also by the recipes that reset every module."""
    known = couplings(name)
    for projection in {known[0], known[CASES.index((name, options)) % len(known)]}:
        expected = build(name, projection, **options)
        with torch.device("meta"):
            emptied = build(name, projection, **options)
        x = torch.ones(2, 5, 4, device="meta")
        assert emptied.token_scores(x, x).is_meta
        dirty_memory()
        assert_same(emptied.to_empty(device="cpu"), expected)
    expected = build(name, **options)
    emptied = build(name, device="meta", **options).to_empty(device="cpu")
    for part in emptied.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    assert_same(emptied, expected)
    for parents_first in (True, False):
        sharded = build(name, device="meta", **options)
        reset_one_by_one(sharded, parents_first=parents_first)
        assert_same(sharded, expected)
    assert_same(skip_init(type(expected), 4, 6, heads=2, seed=3, **options), expected)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_resetting_takes_back_fitting_drawing_and_emptying(name, options):
    """A state is assigned whole."""
    expected, fm = build(name, **options), build(name, **options)
    x = torch.rand(2, 20, 4, generator=torch.Generator().manual_seed(0)) + 1
    fm.fit(x, 0.5 * x)
    if "phase" not in options:
        fm.redraw(torch.Generator().manual_seed(9))
    fm.reset_parameters()
    assert_same(fm, expected)
    dirty_memory()
    assert_same(fm.to_empty(device="cpu"), expected)
    for same in (copy.deepcopy(fm), pickle.loads(pickle.dumps(fm))):
        assert_same(same.to("meta").to_empty(device="cpu"), expected)
    double = build(name, dtype=torch.float64, **options)
    fm.double().reset_parameters()
    assert_close(list(fm.buffers()), list(double.buffers()))
    source = build(name, **options)
    source.fit(x, 0.5 * x)
    with torch.device("meta"):
        fm = build(name, **options)
    fm.load_state_dict(source.state_dict(), assign=True)
    if name not in ("elu", "harmonic"):  # whose states are empty
        assert_same(fm, source)


def test_the_default_dtype_at_construction_counts():
    fm = build("gaussian_hybrid")
    expected = copy.deepcopy(fm)
    torch.set_default_dtype(torch.float64)
    try:
        fm.reset_parameters()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(fm, expected)


def test_given_tensors():
    """They do not change with the original."""
    omega = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    expected = build("positive", omega.clone())
    with torch.device("meta"):
        beside, moved = build("positive", omega), build("positive", omega, device="meta")
    omega.zero_()
    dirty_memory()
    assert_same(beside.to_empty(device="cpu"), expected)
    assert_same(moved.to_empty(device="cpu"), expected)
    # A tensor given on the meta device: nothing can be drawn, and nothing is made up.
    softmax = nn.MultiheadAttention(8, 2)

    def make() -> RandomFeatureAttention:
        with torch.device("meta"):
            return RandomFeatureAttention(8, 2, "positive", 6, projection=torch.ones(6, 4))

    layer = make().to_empty(device="cpu")
    assert layer.feature_map.omega.isnan().all()
    rejects("PositiveFeatures cannot reset omega, which was given", layer.reset_parameters)
    with pytest.raises(ValueError, match=r"the state must hold feature_map.omega, which was given"):
        layer.load_state_dict(softmax.state_dict())
    with pytest.raises(ValueError, match="the state must hold omega of PositiveFeatures"):
        make().load_state_dict(softmax.state_dict(), assign=True)
    whole = RandomFeatureAttention(8, 2, "positive", 6)
    layer.load_state_dict(whole.state_dict())
    assert_same(layer, whole)


def test_hybrids_of_modules_that_were_given():
    def make() -> nn.Module:
        bases = [PositiveFeatures(4, 6), TrigFeatures(4, 6), HyperbolicFeatures(4, 6, seed=1)]
        coefficients = [AngularCoefficient(4, 3), GaussianCoefficient(4, 3, M=2 * torch.eye(4))]
        return HybridFeatures(bases, coefficients)

    hybrid = make()
    hybrid.redraw(torch.Generator().manual_seed(5))
    hybrid.reset_parameters()
    assert_same(hybrid, make())
    dirty_memory()
    assert_same(hybrid.to("meta").to_empty(device="cpu"), make())
    coefficient = BipolarGaussianCoefficient(4, 3, radius=2.0).to("meta").to_empty(device="cpu")
    assert coefficient.radius == 2.0


def attention_layer(name: str, device: str | None = None) -> RandomFeatureAttention:
    projection = torch.full((6, 4), 0.3, device="cpu") if name == "positive" else "orthogonal"
    options = {"projection": projection, "batch_first": True, "device": device}
    return RandomFeatureAttention(8, 2, name, 6, **options)


@pytest.mark.parametrize(
    "name", ["clustered_hybrid", "oprf", "poisson_plus", "positive", "softmax"]
)
def test_softmax_weights_load_into_a_module_from_the_meta_device(name):
    softmax = nn.MultiheadAttention(8, 2, batch_first=True)
    expected = attention_layer(name)
    expected.load_state_dict(softmax.state_dict())
    layers = {}
    with torch.device("meta"):
        layers["emptied"], layers["assigned"] = attention_layer(name), attention_layer(name)
        inner = attention_layer(name)
    layers["inside"] = nn.Sequential(inner).to_empty(device="cpu")[0]
    layers["emptied"].to_empty(device="cpu")
    layers["sharded"] = attention_layer(name, "meta")
    reset_one_by_one(layers["sharded"])
    layers["emptied twice"] = attention_layer(name).to_empty(device="cpu")
    for how, layer in layers.items():
        layer.load_state_dict(softmax.state_dict(), strict=True, assign=how == "assigned")
        assert_same(layer, expected)


def test_resetting_a_module_resets_its_map():
    layer = RandomFeatureAttention(8, 2, "oprf", 6, batch_first=True)
    before = copy.deepcopy(layer)
    tokens = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    layer.fit(tokens, tokens).redraw(torch.Generator().manual_seed(1))
    layer.reset_parameters()
    assert_same(layer.feature_map, before.feature_map)
    assert not torch.equal(layer.in_proj_weight, before.in_proj_weight)
