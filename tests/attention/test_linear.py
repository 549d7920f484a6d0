"""Linear attention against the quadratic form on the same features."""

import pytest
import torch
from torch import Tensor

from attention import ExactSoftmax, linear_attention
from attention.linear import CHUNK


def features(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def quadratic(phi_q: Tensor, phi_k: Tensor, v: Tensor, causal: bool) -> Tensor:
    weights = phi_q @ phi_k.mT
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_equals_the_quadratic_form(causal: bool, dtype: torch.dtype, tolerance: float) -> None:
    length = 2 * CHUNK + 17
    phi_q, phi_k = (features(2, 3, length, 6, seed=s, dtype=dtype) for s in (0, 1))
    v = features(2, 3, length, 5, seed=2, dtype=dtype) - 0.5
    computed = linear_attention(phi_q, phi_k, v, causal=causal)
    torch.testing.assert_close(
        computed, quadratic(phi_q, phi_k, v, causal), rtol=tolerance, atol=tolerance
    )


def test_heads_may_share_keys() -> None:
    phi_q, phi_k, v = features(2, 3, 5, 4), features(7, 4, seed=1), features(7, 2, seed=2)
    computed = linear_attention(phi_q, phi_k, v)
    torch.testing.assert_close(computed, quadratic(phi_q, phi_k, v, False))


@pytest.mark.parametrize("causal", [False, True])
def test_masked_equals_truncated(causal: bool) -> None:
    phi_q, phi_k, v = (features(2, 9, 4, seed=s) for s in range(3))
    mask = torch.arange(9).expand(2, 9) < 6
    expected = linear_attention(phi_q[:, :6], phi_k[:, :6], v[:, :6], causal=causal)
    phi_k[:, 6:], v[:, 6:] = torch.nan, 1e9
    computed = linear_attention(phi_q, phi_k, v, causal=causal, key_mask=mask)
    torch.testing.assert_close(computed[:, :6], expected)


def test_causal_reference_and_no_leak() -> None:
    one = torch.ones(3, 1)
    v = torch.tensor([[1.0], [0.0], [0.0]])
    computed = linear_attention(one, one, v, causal=True)
    torch.testing.assert_close(computed, torch.tensor([[1.0], [1 / 2], [1 / 3]]))
    phi_q, phi_k, v = (features(CHUNK + 9, 4, seed=s) for s in range(3))
    before = linear_attention(phi_q, phi_k, v, causal=True)
    phi_k[-1] *= 3
    after = linear_attention(phi_q, phi_k, v, causal=True)
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])
    torch.testing.assert_close(before[0], v[0])


def test_scales_cancel() -> None:
    phi_q, phi_k, v = (features(5, 4, seed=s) for s in range(3))
    expected = linear_attention(phi_q, phi_k, v)
    scaled = linear_attention(phi_q * 1e-30 * features(5, 1, seed=4), phi_k * 1e20, v)
    torch.testing.assert_close(scaled, expected)


def test_exact_softmax_attends() -> None:
    x, y, v = (features(2, 5, 4, seed=s) - 0.5 for s in range(3))
    mask = torch.tensor([True, True, False, True, True])
    expected = ((x @ y.mT).masked_fill(~mask, -torch.inf)).softmax(-1) @ v
    torch.testing.assert_close(
        ExactSoftmax(4).attend(x, y, v, key_mask=mask.expand(2, 5)), expected
    )


def test_errors() -> None:
    phi, v = torch.ones(3, 2), torch.ones(3, 1)
    with pytest.raises(ValueError, match="same last dimension F, got 2 and 1"):
        linear_attention(phi, torch.ones(3, 1), v)
    with pytest.raises(ValueError, match="v must have as many tokens as phi_k, 3, got 2"):
        linear_attention(phi, phi, v[:2])
    with pytest.raises(ValueError, match="as many queries as keys, got 2 and 3"):
        linear_attention(phi[:2], phi, v, causal=True)
    with pytest.raises(ValueError, match=r"key_mask must be a bool tensor .* got torch.float32"):
        linear_attention(phi, phi, v, key_mask=torch.ones(3))
    with pytest.raises(ValueError, match="must leave at least one key"):
        linear_attention(phi, phi, v, key_mask=torch.zeros(3, dtype=torch.bool))
