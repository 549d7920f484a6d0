"""Attention of a batch in parts that fit the cache is attention of all at once."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
import attention.linear
from attention import streaming
from attention.relative import relative_gradient
from tests.attention.cases import tokens

BATCH, HEADS, LENGTH, DIM = 3, 2, 70, 4
MASKS = {
    "none": None,
    "of each sequence": (BATCH, 1, LENGTH),
    "of the same for all": (1, 1, LENGTH),
    "of keys": (LENGTH,),
}


def attended(
    features: attention.FeatureMap, mask: Tensor | None, block: int, patch: pytest.MonkeyPatch
) -> tuple[Tensor, tuple[Tensor, ...], int]:
    """Outputs, gradients, and how many parts there were, with blocks of `block` features."""
    counted: list[int] = []

    def count(*given: object) -> Tensor:
        counted.append(1)
        return bidirectional_blocks(*given)  # type: ignore[arg-type]

    generator = torch.Generator().manual_seed(1)
    shape = (3, BATCH, HEADS, LENGTH, DIM)
    x, y, v = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    patch.setattr(streaming, "CPU_BLOCK", block)
    bidirectional_blocks = attention.linear.bidirectional_blocks
    patch.setattr(streaming, "bidirectional_blocks", count)
    output = features.attend(x, y, v, key_mask=mask)
    return output.detach(), torch.autograd.grad(output.square().sum(), (x, y, v)), len(counted)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["positive", "oprf", "trig", "elu"])
def test_parts_of_a_batch_are_attended_alike(name, mask, monkeypatch):
    features = attention.feature_map(name, DIM, 8, heads=HEADS, dtype=torch.float64)
    shape = MASKS[mask]
    hidden = None
    if shape is not None:
        hidden = torch.rand(shape, generator=torch.Generator().manual_seed(2)) > 0.3
    with monkeypatch.context() as patch:
        whole, of_whole, parts = attended(features, hidden, 2**40, patch)
        assert parts == 1
    with monkeypatch.context() as patch:
        blocks, of_blocks, parts = attended(features, hidden, 1, patch)
        assert parts == BATCH
    assert_close(blocks, whole)
    for ours, theirs in zip(of_blocks, of_whole, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("size", [1.0, 1e20, 1e-30])
def test_gradients_are_the_same_in_range_and_out_of_it(size):
    """1e20 times 1e30 is out of float32's range, times a mantissa of 1e-25 it is not."""
    left = size * torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    right = 1e30 * torch.randn(7, 3, generator=torch.Generator().manual_seed(2))
    mantissa = torch.full((5, 7), 1e-25)
    expected = (left.double() @ right.double().mT * mantissa.double()).float()
    with torch.no_grad():
        assert_close(relative_gradient(left, right, mantissa), expected)
    assert_close(relative_gradient(left, right, mantissa), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["positive", "trig", "angular_hybrid"])
def test_traces_hold_for_other_tokens(name, causal, monkeypatch):
    """Where keys are largest decides what sums are rescaled by, and differs from input to input."""
    monkeypatch.setattr(streaming, "CPU_BLOCK", 2**9)
    fm = attention.feature_map(name, DIM, 8)
    x = tokens(130, DIM)
    growing = x * torch.linspace(0.1, 3, 130).unsqueeze(-1)
    v = tokens(130, 40, seed=1)

    def run(y: torch.Tensor) -> torch.Tensor:
        return fm.attend(x, y, v, causal=causal)

    with torch.no_grad():
        traced = torch.jit.trace(run, growing.flip(0))
        for other in (growing, growing.flip(0)):
            assert_close(traced(other), run(other))
