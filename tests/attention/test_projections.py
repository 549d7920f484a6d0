"""Couplings: shapes, orthogonality, the Haar distribution, reproducibility."""

import math

import pytest
import torch

import attention
from attention.projections.orthogonal import haar


def test_orthogonal_within_blocks_with_gaussian_lengths() -> None:
    generator = torch.Generator().manual_seed(0)
    omega = attention.projection("orthogonal", 10, 4, generator, dtype=torch.float64)
    assert omega.shape == (10, 4)
    for block in (omega[:4], omega[4:8], omega[8:]):
        gram = block @ block.T
        torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)
    lengths = attention.projection("orthogonal", 40_000, 4, generator, dtype=torch.float64).norm(
        dim=1
    )
    # chi_4^2 has mean 4 and variance 8.
    assert abs(lengths.square().mean().item() - 4) < 4 * math.sqrt(8 / 40_000)
    assert lengths.square().var().item() == pytest.approx(8, rel=0.05)


def test_haar_is_symmetric_about_zero() -> None:
    """E Q = 0 and E Q_ij^2 = 1/d; uncorrected QR leaves diag(Q) with a definite sign."""
    d, n = 3, 20_000
    q = haar(n, d, torch.Generator().manual_seed(1))
    z = q.mean(0) * math.sqrt(n) / q.std(0)
    assert z.abs().max() < 4
    torch.testing.assert_close(
        q.square().mean(0), torch.full((d, d), 1 / d, dtype=torch.float64), rtol=0.05, atol=0
    )
    identity = torch.eye(d, dtype=torch.float64).expand_as(q)
    torch.testing.assert_close(q @ q.mT, identity, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", attention.available_projections())
def test_seed_decides(name: str) -> None:
    def draw(seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return attention.projection(name, 5, 3, torch.Generator().manual_seed(seed), dtype)

    before = torch.random.get_rng_state()
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
    assert torch.equal(draw(3).float(), draw(3, torch.float32))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert attention.projection(name, 2, 1).shape == (2, 1)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"a tensor or one of iid, orthogonal, got 'sobol'"):
        attention.projection("sobol", 2, 2)
    with pytest.raises(ValueError, match="m must be at least 1, got 0"):
        attention.projection("iid", 0, 2)
    with pytest.raises(ValueError, match="d must be at least 1, got -1"):
        attention.projection("iid", 1, -1)
    with pytest.raises(ValueError, match=r"projection must have shape \(4, 3\), got .*\(3, 4\)"):
        attention.feature_map("trig", 3, 4, projection=torch.zeros(3, 4))
