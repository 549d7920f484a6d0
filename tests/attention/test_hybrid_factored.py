"""Hybrids' attention without outer products is their attention with them."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map, streaming
from attention.hybrid import outer
from tests.pairwise import pairwise

MAPS = [
    ("angular_hybrid", {"num_lambda_features": 1}),
    ("angular_hybrid", {"num_lambda_features": 8, "base": ("oprf", "trig")}),
    ("gaussian_hybrid", {"num_lambda_features": 3}),
]
LENGTH = 150  # three blocks of keys and queries, 64 at a time


SHORT, LONG = 5, 40
"""Numbers of a value, below T and above."""


def tokens(value_heads: int = 4, values: int = SHORT) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = ((4, 4, LENGTH, 16), (4, 4, LENGTH, 16), (4, value_heads, LENGTH, values))
    return [torch.randn(size, generator=generator, dtype=torch.float64) / 2 for size in sizes]


def hidden_keys() -> Tensor:
    """A mask (4, 1, LENGTH): the second block of the first sequence, single keys of others."""
    mask = torch.rand(4, 1, LENGTH, generator=torch.Generator().manual_seed(2)) > 0.2
    mask[0, :, 64:128] = False
    return mask


@pytest.mark.parametrize(("values", "masked", "case"), pairwise([SHORT, LONG], [False, True], MAPS))
def test_equals_attention_by_outer_products(case, masked, values, monkeypatch):
    name, options = case
    features = feature_map(name, 16, 8, heads=4, dtype=torch.float64, **options)
    mask = hidden_keys() if masked else None
    monkeypatch.setattr(streaming, "CPU_BLOCK", 1)
    outputs, gradients = [], []
    for bidirectional in (features.bidirectional, partial(streaming.bidirectional, features)):
        inputs = [t.requires_grad_() for t in tokens(values=values)]
        prepared = streaming.prepared(features, *inputs, causal=False, key_mask=mask)
        assert prepared is not None
        output = bidirectional(prepared)
        outputs.append(output.detach())
        gradients.append(torch.autograd.grad(output.square().sum(), inputs))
    assert_close(*outputs, rtol=1e-9, atol=1e-9)
    assert_close(*gradients, rtol=1e-8, atol=1e-7)
    with torch.no_grad():  # sums and outer products then have memory that is used again
        again = features.attend(*inputs, key_mask=mask)
        assert torch.equal(again, features.attend(*inputs, key_mask=mask))
    assert_close(again, outputs[0], rtol=1e-9, atol=1e-9)


def test_makes_no_outer_products(monkeypatch):
    """Where values are shorter than f; where they are not, outer products are fewer numbers, and
    are made block by block."""
    features = feature_map("angular_hybrid", 16, 8, num_lambda_features=1)
    x, y, v = torch.randn(3, 10, 16)
    expected = features.attend(x, y, v)

    def refuse(*_: object) -> None:
        raise AssertionError("outer products")

    monkeypatch.setattr(type(features), "scaled_keys", refuse, raising=False)
    monkeypatch.setattr(outer, "_Outer", refuse)
    assert_close(features.attend(x, y, v), expected)
    with pytest.raises(AssertionError, match="outer products"):
        features.attend(x, y, torch.randn(10, 32))


@pytest.mark.parametrize("values", [SHORT, LONG])
def test_values_may_be_shared_by_heads(values):
    features = feature_map("angular_hybrid", 16, 8, heads=4, dtype=torch.float64)
    x, y, v = tokens(value_heads=1, values=values)
    assert_close(features.attend(x, y, v), features.attend(x, y, v.expand(-1, 4, -1, -1)))


def test_denominators_below_their_floor_are_raised():
    """As with outer products: the output is bounded by the values."""
    features = feature_map("angular_hybrid", 16, 2, num_lambda_features=1)
    x, y = 3 * torch.randn(2, 200, 16, generator=torch.Generator().manual_seed(0))
    v = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    assert attention.diagnose(features, x, y).clamped_rows > 0.1
    output = features.attend(x, y, v)
    assert bool(output.isfinite().all())
    assert float(output.abs().max()) <= float(v.abs().max())


@pytest.mark.parametrize(("masked", "case"), pairwise([False, True], MAPS))
def test_long_sequences_one_after_the_other(case, masked, monkeypatch):
    """Outer products of one sequence at a time, in blocks, against those of all."""
    name, options = case
    features = feature_map(name, 16, 8, dtype=torch.float64, **options)
    mask = hidden_keys() if masked else None
    inputs = tokens(values=LONG)
    with torch.no_grad():
        monkeypatch.setattr(outer, "LEAST", 2**40)
        expected = features.attend(*inputs, key_mask=mask)
        monkeypatch.setattr(outer, "LEAST", 1)
        for block in (2**12, 2**30):
            monkeypatch.setattr(outer, "BLOCK", block)
            assert_close(features.attend(*inputs, key_mask=mask), expected, rtol=1e-9, atol=1e-9)
