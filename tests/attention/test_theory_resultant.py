"""Densities of |omega_i + omega_j|: their definitions, their moments, drawn rows."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import theory

W = torch.linspace(0, 14, 7001, dtype=torch.float64)
STEP = 2e-3


def integral(values: Tensor) -> float:
    return torch.trapezoid(values, dx=STEP).item()


@pytest.mark.parametrize(("dim", "cosine"), [(1, 0.5), (3, -0.5), (3, 0.0), (6, -0.2), (6, 0.9)])
def test_the_density_is_that_of_lemma_4_2(dim, cosine):
    """Eq 20's integral over phi by 4,000 equal steps, whose ends count nothing for d > 1."""
    phi = (torch.arange(4000, dtype=torch.float64) + 0.5) * (math.pi / 2 / 4000)
    w = torch.tensor([0.4, 1.5, 3.0, 5.0], dtype=torch.float64).unsqueeze(-1)
    q = 1 + (2 * phi).sin() * cosine
    inside = (phi.sin() * phi.cos()) ** (dim - 1) * (-w.square() / (2 * q)).exp() / q**dim
    constant = w.squeeze(-1) ** (2 * dim - 1) / (2.0 ** (dim - 2) * math.gamma(dim / 2) ** 2)
    expected = constant * inside.mean(-1) * math.pi / 2
    computed = theory.resultant_density_at_angle(cosine, w.squeeze(-1), dim)
    assert_close(computed, expected, rtol=2e-7, atol=0)


@pytest.mark.parametrize("coupling", ["iid", "orthogonal", "simplex"])
@pytest.mark.parametrize("dim", [2, 3, 9])
def test_mass_moment_and_conformity(coupling, dim):
    """All mass; E w^2 = 2 d + 2 cos (E|omega|)^2; in three dimensions E 0F1 is conformity."""
    density = theory.resultant_density(coupling, W, dim)
    assert integral(density) == pytest.approx(1, abs=1e-6)
    length = math.sqrt(2) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    expected = 2 * dim + 2 * (-1 / (dim - 1) if coupling == "simplex" else 0.0) * length**2
    assert integral(density * W.square()) == pytest.approx(expected, rel=1e-6)
    if dim == 3:
        for v in (0.5, 1.5):
            # 0F1(; 3/2; z^2/4) = sinh(z)/z.
            grown = torch.where(W > 0, (v * W).sinh() / (v * W).clamp(min=1e-9), torch.ones_like(W))
            expected = theory.rf_conformity(coupling, v, 3).item()
            assert integral(density * grown) == pytest.approx(expected, rel=1e-6)


def test_opposite_rows_and_ends():
    # The difference of two lengths is where rows nearly opposite come to; sqrt(pi)/2 at 0.
    at_zero = theory.resultant_density("simplex", 0.0, 2).item()
    assert at_zero == pytest.approx(math.sqrt(math.pi) / 2, rel=1e-12)
    w = torch.tensor([0.1, 0.7, 2.0], dtype=torch.float64)
    for dim in (1, 2, 5):
        exact = theory.resultant_density_at_angle(-1.0, w, dim)
        near = theory.resultant_density_at_angle(-1 + 1e-9, w, dim)
        assert_close(near, exact, rtol=1e-5, atol=0)
    ends = torch.tensor([-1.0, 0.0])
    for coupling in ("iid", "orthogonal", "simplex"):
        assert theory.resultant_density(coupling, ends, 4).tolist() == [0.0, 0.0]
    assert theory.resultant_density("simplex", -1.0, 2) == 0
    assert theory.resultant_density("iid", 0.0, 1).item() == pytest.approx(1 / math.sqrt(math.pi))


@pytest.mark.parametrize("coupling", ["iid", "orthogonal", "simplex"])
def test_drawn_rows(coupling):
    """Kolmogorov's distance of 20,000 pairs; by chance above 1.95/sqrt(n) once in 1,000 tries."""
    rows = attention.projection(
        coupling, 4 * 20_000, 4, torch.Generator().manual_seed(1), dtype=torch.float64
    ).view(-1, 4, 4)
    drawn = (rows[:, 0] + rows[:, 1]).norm(dim=-1).sort().values
    distribution = torch.cumulative_trapezoid(theory.resultant_density(coupling, W, 4), dx=STEP)
    at = distribution[(drawn / STEP).long().clamp(max=len(W) - 2)]
    steps = torch.arange(1, len(drawn) + 1, dtype=torch.float64) / len(drawn)
    assert (at - steps).abs().max() < 1.95 / math.sqrt(len(drawn))
