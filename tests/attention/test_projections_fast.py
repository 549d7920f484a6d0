"""Couplings by Walsh-Hadamard transforms: against their matrices, and how far from exact they are.

Seeds are fixed. Where |z| < 4 is asked of k quantities, another seed would fail with probability
of about 6e-5 k.
"""

import itertools
import math

import pytest
import scipy.linalg
import torch
from torch.testing import assert_close

import attention
from attention.projections import FastProjection, fast_walsh_hadamard
from tests.attention.cases import rejects
from tests.attention.draws import FAST, blocks, cosines, draw, seeded, z_score
from tests.attention.golden import mean_over_signs


@pytest.mark.parametrize("d", [1, 2, 4, 8, 64])
def test_walsh_hadamard(d):
    x = torch.randn(3, d, generator=seeded(0), dtype=torch.float64)
    h = torch.tensor(scipy.linalg.hadamard(d), dtype=torch.float64) / math.sqrt(d)
    assert_close(fast_walsh_hadamard(x), x @ h, rtol=1e-12, atol=1e-14)
    assert_close(fast_walsh_hadamard(fast_walsh_hadamard(x)), x)
    assert fast_walsh_hadamard(x.float()).dtype == torch.float32


def test_walsh_hadamard_gradient():
    x = torch.randn(2, 8, generator=seeded(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fast_walsh_hadamard, (x,))


@pytest.mark.parametrize("d", [0, 3, 6])
def test_walsh_hadamard_needs_a_power_of_two(d):
    rejects(f"x must be a power of two, got {d}", fast_walsh_hadamard, torch.zeros(2, d))


@pytest.mark.parametrize(("m", "d"), [(3, 4), (4, 4), (11, 4), (13, 5), (7, 6), (5, 2)])
@pytest.mark.parametrize("name", FAST)
def test_fast_projection_is_its_matrix(name, m, d):
    fast = FastProjection(name, m, d, seeded(7), torch.float64)
    assert torch.equal(fast.matrix(), draw(name, m, d, seed=7))
    u = torch.randn(2, 3, d, generator=seeded(8), dtype=torch.float64, requires_grad=True)
    assert_close(fast(u), u @ fast.matrix().mT, rtol=1e-12, atol=1e-13)
    assert torch.autograd.gradcheck(fast, (u,))
    assert fast(u[:, :0]).shape == (2, 0, m)
    assert fast.signs.shape == (-(-m // d), 3, 1 << (d - 1).bit_length())
    assert torch.equal(fast.signs.square(), torch.ones_like(fast.signs))
    assert fast.norms.shape == (m,)


def test_fast_projection_in_chunks_and_its_state(monkeypatch):
    fast = FastProjection("hadamard", 9, 5, seeded(7))
    u = torch.randn(4, 6, 5, generator=seeded(8))
    whole = fast(u)
    monkeypatch.setattr("attention.projections.fast.CHUNK", 80)
    assert_close(fast(u), whole)
    monkeypatch.setattr("attention.projections.fast.CHUNK", 1)
    assert_close(fast(u), whole)
    fast, other = (FastProjection("fast_simplex", 6, 4, seeded(seed)) for seed in (1, 2))
    assert not torch.equal(fast.matrix(), other.matrix())
    other.load_state_dict(fast.state_dict())
    assert torch.equal(fast.matrix(), other.matrix())
    assert fast.matrix().dtype == torch.float32
    assert fast.double().matrix().dtype == torch.float64


@pytest.mark.parametrize("name", FAST)
def test_fast_directions_and_lengths(name):
    """Directions are exact at powers of two, lengths those of the padded dimension."""
    for block in draw(name, 22, 8).split(8):
        expected = -1 / 7 if name == "fast_simplex" else 0.0
        assert (cosines(block) - expected).abs().max() < 1e-12
    square = FastProjection(name, 8000, 5, seeded(9), torch.float64).norms.square()
    assert z_score(square, 8.0).abs() < 4
    assert z_score(square.square(), 80.0).abs() < 4


@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize("name", FAST)
def test_fast_rows_have_exact_second_moments(name, d):
    """Over all signs, padded to 4 or not: mean 0 and covariance I/4 at length 1, in each row."""
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=12)), dtype=torch.float64)
    fast = FastProjection(name, d * len(signs), d, dtype=torch.float64)
    fast.signs.copy_(signs.unflatten(-1, (3, 4)))
    fast.norms.fill_(1)
    rows = fast.matrix().reshape(-1, d, d)
    assert_close(rows.mean(0), torch.zeros_like(rows[0]), rtol=0, atol=1e-14)
    covariance = (rows.unsqueeze(-1) * rows.unsqueeze(-2)).mean(0)
    expected = (torch.eye(d, dtype=torch.float64) / 4).expand_as(covariance)
    assert_close(covariance, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("name", "mean"), [("hadamard", 0.395705), ("fast_simplex", 0.392891)])
def test_fast_bias(name, mean):
    """The sheet's example: the kernel is .393569. Sampled means agree with the enumerated ones."""
    x = torch.tensor([0.5, -0.25, 0.75, 0.1], dtype=torch.float64)
    y = torch.tensor([0.2, 0.4, -0.3, 0.6], dtype=torch.float64)
    enumerated = mean_over_signs(name, x, y).item()
    assert enumerated == pytest.approx(mean, abs=5e-7)
    assert attention.kernels.gaussian(x, y).item() == pytest.approx(0.393569, abs=5e-7)
    estimates = (blocks(name, 20_000, 4, seed=10) @ (x + y) - x @ x - y @ y).exp().mean(-1)
    assert z_score(estimates, enumerated).abs() < 4
