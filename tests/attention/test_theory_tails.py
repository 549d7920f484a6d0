"""Tails of bounded positive features, and densities of |omega_i + omega_j|."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import theory
from attention.theory.uniform_attention import largest_gradient, largest_term
from tests.attention.cases import OMEGA, WEIGHT, X, Y, blocks


def terms(omega: Tensor, x: Tensor, y: Tensor, A: float) -> Tensor:
    """One estimate of the Gaussian kernel for each row of omega."""
    exponent = 2 * A * omega.square().sum(-1) + (1 - 4 * A) ** 0.5 * (omega @ (x + y))
    return (1 - 4 * A) ** (x.shape[-1] / 2) * (exponent - (x.square() + y.square()).sum()).exp()


@pytest.mark.parametrize(("A", "error"), [(-0.05, 0.1), (-0.05, 1.5), (-0.3, 0.02), (-0.3, 0.6)])
def test_the_upper_tail_has_the_legendre_transform(A, error):
    """sup over theta of theta (K + error) - log E exp(theta Z), on a grid of theta, by quadrature
    in two dimensions."""
    Z = terms(OMEGA, X, Y, A)
    level = attention.kernels.gaussian(X, Y) + error
    theta = torch.linspace(-6, 5, 4001, dtype=torch.float64).exp()
    keep = WEIGHT > 1e-18
    log_mgf = (theta.unsqueeze(-1) * Z[keep] + WEIGHT[keep].log()).logsumexp(-1)
    rate = (theta * level - log_mgf).max()
    bound = theory.oprf_upper_tail_bound(X, Y, 5, error, A, kernel="gaussian")
    assert -bound.log().item() / 5 == pytest.approx(rate.item(), rel=2e-4)


@pytest.mark.parametrize("coupling", ["iid", "orthogonal", "simplex"])
def test_the_upper_tail_of_drawn_estimates(coupling):
    """A whole block of three rows and one cut to two: no more estimates in the tail than bound.

    Of 20,000; by chance a share at its bound would exceed it by 4 deviations in 1 of 30,000.
    """
    x = torch.tensor([0.5, -0.3, 0.2], dtype=torch.float64)
    y = torch.tensor([0.4, 0.3, 0.1], dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    rows = attention.projection(coupling, 6 * 20_000, 3, generator, dtype=torch.float64)
    omega = rows.view(20_000, 6, 3)[:, :5]
    for A in (-0.03, -0.2):
        estimates = terms(omega, x, y, A).mean(-1)
        exact = attention.kernels.gaussian(x, y)
        for error in (0.1, 0.3, 0.6):
            bound = theory.oprf_upper_tail_bound(x, y, 5, error, A, kernel="gaussian").item()
            share = (estimates >= exact + error).double().mean().item()
            assert share <= bound + 4 * math.sqrt(bound / 20_000)
            assert bound < 1  # L > 0
            hoeffding = theory.oprf_tail_bound(x, y, 5, error, A, kernel="gaussian").item()
            assert bound < hoeffding / 2


def test_scales_and_ends_of_the_upper_tail():
    norms = (X.square() + Y.square()).sum()
    gaussian = theory.oprf_upper_tail_bound(X, Y, 4, 0.3, -0.2, kernel="gaussian")
    scaled = theory.oprf_upper_tail_bound(X, Y, 4, 0.3 * (norms / 2).exp().item(), -0.2)
    assert_close(scaled, gaussian, rtol=1e-10, atol=0)
    # Terms end at top: with x = y = 0 at (1-4A)^(d/2) = 1.8, and nothing is above.
    zero = torch.zeros(2, dtype=torch.float64)
    for error, above in ((0.79, False), (0.81, True)):
        bound = theory.oprf_upper_tail_bound(zero, zero, 1, error, -0.2, kernel="gaussian")
        assert (bound == 0) == above
    # U = exp(-0.4 W) with W/2 exponential, so that P(U <= u) = u^(1/0.8).
    share = 1 - (1.7 / 1.8) ** (1 / 0.8)
    bound = theory.oprf_upper_tail_bound(zero, zero, 1, 0.7, -0.2, kernel="gaussian")
    assert share < bound < 5 * share


@pytest.mark.parametrize(("r", "A"), [(0.4, -0.3), (1.0, -0.05), (0.8, -2.0)])
def test_largest_term_and_gradient(r, A):
    """In one dimension, over a grid of omega, x and y: the term reaches its bound, the gradient
    half of it at least."""
    side = torch.linspace(-r, r, 11, dtype=torch.float64)
    omega = torch.linspace(-25, 25, 5001, dtype=torch.float64)[:, None, None]
    x, y = side[:, None], side
    B = (1 - 4 * A) ** 0.5
    exponent = 2 * A * omega**2 + B * omega * (x + y) - (x**2 + y**2) / 2
    g = (1 - 4 * A) ** 0.5 * exponent.exp()
    assert g.max().item() == pytest.approx(largest_term(1, r, A), rel=1e-5)
    gradient = (g * (B * omega - x)).abs().max().item()
    assert gradient <= largest_gradient(1, r, A) < 3 * gradient


def test_the_uniform_bound_and_its_features():
    # With as many features as it asks for, the largest error on a grid is above epsilon in none of
    # 40 draws; half of them would be allowed.
    dim, radius, epsilon, A = 1, 0.5, 0.3, -0.3
    m = theory.uniform_attention_features(dim, radius, epsilon, 0.5, A)
    grid = torch.linspace(-radius, radius, 15, dtype=torch.float64).unsqueeze(-1)
    fm = attention.feature_map("oprf", 1, m, A=A, projection="iid", dtype=torch.float64)
    exact = (grid @ grid.mT).exp()
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        fm.redraw(generator)
        assert (fm.queries(grid) @ fm.keys(grid).mT - exact).abs().max() < epsilon
    # With (1-4A)^(d/2) but for a logarithm, and not with its square; and d/eps^2 log.
    few, many = (theory.uniform_attention_features(6, 0.1, 0.2, 0.1, A) for A in (-50.0, -5e5))
    assert 3 <= (math.log(many / few) / math.log((1 + 2e6) / 201)) < 3.5
    coarse, fine = (theory.uniform_attention_features(6, 1.0, e, 0.1, -0.1) for e in (0.02, 0.002))
    assert 100 < fine / coarse < 200


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_parts_of_the_uniform_bound(epsilon):
    """Twice the pairs of a net's points, by the better of two inequalities at epsilon / 2."""
    dim, radius, A, m = 3, 1.2, -0.2, 700
    r = radius / 3**0.25
    slope = largest_gradient(dim, r, A) + r * math.exp(r * r)
    points = (1 + 2 * r / (epsilon / (4 * slope))) ** dim
    top, t = largest_term(dim, r, A), epsilon / 2
    hoeffding = 2 * m * t**2 / top**2
    bernstein = m * t**2 / (2 * (top * math.exp(r * r) + top * t / 3))
    expected = 2 * points**2 * math.exp(-max(hoeffding, bernstein))
    bound = theory.uniform_attention_bound(dim, radius, m, epsilon, A)
    assert bound == pytest.approx(expected, rel=1e-10)
    for probability in (0.5, 1e-6):
        least = theory.uniform_attention_features(dim, radius, epsilon, probability, A)
        reached = theory.uniform_attention_bound(dim, radius, least, epsilon, A)
        missed = theory.uniform_attention_bound(dim, radius, least - 1, epsilon, A)
        assert reached <= probability * (1 + 1e-9) < missed * (1 + 2e-9)


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
    rows = blocks(coupling, 20_000, 4, seed=1)
    drawn = (rows[:, 0] + rows[:, 1]).norm(dim=-1).sort().values
    distribution = torch.cumulative_trapezoid(theory.resultant_density(coupling, W, 4), dx=STEP)
    at = distribution[(drawn / STEP).long().clamp(max=len(W) - 2)]
    steps = torch.arange(1, len(drawn) + 1, dtype=torch.float64) / len(drawn)
    assert (at - steps).abs().max() < 1.95 / math.sqrt(len(drawn))
