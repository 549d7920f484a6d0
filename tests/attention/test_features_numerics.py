"""Large inputs, low precision, and gradients at awkward points."""

import copy
import math
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map
from attention.features.discrete import DiscreteFeatures
from tests.attention.cases import DOUBLE, doubles, rejects

PLAIN = ("trig_phase", "poisson", "geometric", "poisson_plus", "geometric_plus", "relu", "elu")
ALL: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PLAIN),
    ("oprf", {"A": -0.1}),
    ("gerf", {"A": -0.1}),
    ("gerf", {"A": 0.02, "s": -1}),
    ("gerf", {"A": 0.02 + 0.05j, "s": -1}),
    ("complex_exponential", {"A": 1j}),
    ("complex_exponential", {"complex_a": False}),
    ("harmonic", {"period": 3.0}),
    ("quadratic", {}),
]


def unit(*shape: int, seed: int = 0) -> Tensor:
    u = doubles(*shape, seed=seed)
    return u / u.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize(
    ("name", "options", "kernel"),
    [(*case, kernel) for case, kernel in zip(ALL, cycle(["softmax", "gaussian"]))],
)
def test_length_thirty_in_float32(name, options, kernel):
    x, y = 30 * unit(6, 64), 30 * unit(7, 64, seed=1)
    fm = feature_map(name, 64, 32, kernel=kernel, **options).fit(x.float(), y.float())
    exact = copy.deepcopy(fm).double()
    for function, u in (("scaled_queries", x), ("scaled_keys", y)):
        mantissa, log_scale = getattr(fm, function)(u.float())
        assert mantissa.abs().max() <= 1 + 1e-6
        assert mantissa.isfinite().all()
        expected = getattr(exact, function)(u)
        assert_close(log_scale.double(), expected.log_scale, rtol=1e-5, atol=1e-3)
        assert_close(mantissa.double(), expected.mantissa, rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("name", "options", "dtype"),
    [(*case, dtype) for case, dtype in zip(ALL, cycle([torch.float16, torch.bfloat16]))],
)
def test_low_precision_in_float32_inside(name, options, dtype):
    x, y = unit(6, 8).abs(), unit(7, 8, seed=1).abs()
    fm = feature_map(name, 8, 16, **options).fit(x.float(), y.float()).to(dtype)
    built = feature_map(name, 8, 16, dtype=dtype, **options)
    for low in (fm, built):
        features = low.queries(x.to(dtype))
        assert features.dtype == torch.float32
        exact = copy.deepcopy(low).double()
        assert_close(features.double(), exact.queries(x.to(dtype).double()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["poisson", "geometric", "poisson_plus"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_gradients_where_entries_are_zero(name, zero):
    """Powers 0, 1 and 2 of an entry at zero: slopes 0, that of the rest, and 0."""
    omega = torch.tensor([[0, 2, 1], [1, 1, 0], [2, 0, 1], [1, 0, 3]])
    x = torch.tensor([[zero, 0.5, -0.4], [zero, zero, 0.3]], dtype=torch.float64)
    fm = feature_map(name, 3, 4, projection=omega, **DOUBLE)
    features = fm.queries(x.requires_grad_())
    assert torch.equal(features[0] != 0, torch.tensor([True] * 4))
    assert (features[0, 1:].abs() < 1e-100).all()
    assert torch.autograd.gradcheck(fm.queries, (x,))
    assert torch.autograd.gradcheck(fm.token_scores, (x, x.detach().clone().requires_grad_()))


@pytest.mark.parametrize("name", ["poisson", "geometric"])
def test_negative_inputs_are_refused_in_attention_only(name):
    x, y, values = unit(4, 3).abs(), unit(5, 3, seed=1).abs(), unit(5, 2)
    fm = feature_map(name, 3, 4, **DOUBLE)
    assert fm.attend(x, y, values).isfinite().all()
    rejects(r"queries must not be negative .* the map's _plus form", fm.attend, -x, y, values)
    rejects(r"keys must not be negative .* got negative entries", fm.attend, x, -y, values)
    rejects("key_mask must be a bool tensor", fm.attend, x, y, values, key_mask=torch.ones(5))
    mask = torch.arange(5) < 4
    expected = fm.attend(x, y, values, key_mask=mask)
    y[4] = -1
    assert torch.equal(fm.attend(x, y, values, key_mask=mask), expected)
    assert fm.queries(-x).isfinite().all()
    plus = feature_map(f"{name}_plus", 3, 4, **DOUBLE).fit(-x, y[:4])
    assert plus.attend(-x, y[:4], values[:4]).isfinite().all()


def test_phases():
    """They fill the circle; given ones are not redrawn."""
    fm = feature_map("trig_phase", 2, 40_000, projection="iid", **DOUBLE)
    assert fm.phase.min() >= 0
    assert fm.phase.max() < 2 * math.pi
    assert fm.phase.mean().item() == pytest.approx(math.pi, abs=0.04)
    before, omega = fm.phase.clone(), fm.omega.clone()
    fm.redraw(torch.Generator().manual_seed(3))
    assert not torch.equal(fm.phase, before)
    assert not torch.equal(fm.omega, omega)
    # Independent of the vectors, though one generator draws both.
    together = torch.stack((*fm.omega.T, fm.phase)).corrcoef() - torch.eye(3)
    assert together.abs().max() < 0.02
    fm = feature_map("trig_phase", 3, 4, phase=torch.zeros(4))
    rejects("redraw needs a map that drew its phase", fm.redraw, torch.Generator())


def test_refused_arguments_and_zero_entries():
    assert issubclass(DiscreteFeatures, attention.FeatureMap)
    rejects(r"heads must be at least 1, got 0", feature_map, "poisson", 3, 4, heads=0)
    fm = feature_map("gerf", 3, 4, heads=2)
    rejects(r"shape \(..., 2, L, 3\) for a map with heads, got", fm.queries, torch.zeros(3, 4, 3))
    rejects(r"on the map's device cpu, got meta", fm.queries, torch.zeros(2, 4, 3, device="meta"))
    assert "s=1" in repr(fm)
    assert "projection='iid'" in repr(feature_map("poisson", 3, 4))
    assert "epsilon=0.001" in repr(feature_map("relu", 3, 4))
    u = torch.tensor([[-3.0, -0.5, 0.0], [2.0, -1.0, 0.5]], dtype=torch.float64)
    for name in ("relu", "elu"):
        fm = feature_map(name, 3, 4, **DOUBLE)
        mantissa, log_scale = fm.scaled_queries(u)
        assert_close(mantissa * log_scale.exp(), fm.queries(u), rtol=1e-14, atol=0)
        assert torch.equal(mantissa.amax(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("oprf", "A", torch.tensor(-0.1)),
        ("gerf", "A", torch.tensor(-0.1)),
        ("poisson", "lam", torch.tensor(0.1)),
        ("poisson_plus", "shift", torch.zeros(3)),
        ("trig_phase", "phase", torch.zeros(4)),
        ("complex_exponential", "A", torch.ones(3)),
    ],
)
def test_given_tensors_are_copied(name, option, value):
    value = value.requires_grad_()
    fm = feature_map(name, 3, 4, **{option: value})
    assert not any(buffer.requires_grad for buffer in fm.buffers())
    state = {key: buffer.clone() for key, buffer in fm.state_dict().items()}
    with torch.no_grad():
        value.add_(1)
    assert all(torch.equal(state[key], buffer) for key, buffer in fm.state_dict().items())
