"""Errors of phase, generalised exponential and discrete features, and of coupled rows.

Each against its definition: sums and integrals in one or two dimensions, or drawn estimates.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import theory
from tests.attention.cases import doubles, gaussian_nodes

KERNELS = ("softmax", "gaussian")
COUPLINGS = ("iid", "orthogonal", "simplex")
ALL_DISCRETE = ("geometric", "geometric_plus", "poisson", "poisson_plus")


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def weight(x: Tensor, y: Tensor, kernel: str) -> Tensor:
    """The kernel's estimate over that of the Gaussian kernel."""
    return ((x.square() + y.square()).sum(-1) / 2).exp() if kernel == "softmax" else vector(1.0)[0]


def gerf_term(omega: Tensor, x: Tensor, y: Tensor, A: complex, s: int) -> Tensor:
    """One projection's estimate of the Gaussian kernel, as the paper's eq 4 has it."""
    a = torch.tensor(A, dtype=torch.complex128)
    b = (s * (1 - 4 * a)).sqrt()
    norms = (x.square() + y.square()).sum(-1)
    exponent = 2 * a * omega.square().sum(-1) + b * (omega * (x + s * y)).sum(-1)
    exponent = exponent - (s + 1) / 2 * norms
    return ((1 - 4 * a) ** (x.shape[-1] / 2) * exponent.exp()).real


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("A", "s"), [(-0.2, 1), (0.03, -1), (-0.1 + 0.05j, 1), (0.02 + 0.05j, -1)])
def test_gerf_against_quadrature(A, s, kernel):
    """Mean and error in two dimensions on a grid of Gauss-Hermite nodes."""
    x, y = vector(0.3, -0.5), vector(0.7, 0.2)
    nodes, weights = gaussian_nodes(120)
    omega = torch.cartesian_prod(nodes, nodes)
    probability = (weights.unsqueeze(-1) * weights).flatten()
    terms = gerf_term(omega, x, y, A, s) * weight(x, y, kernel)
    exact = getattr(attention.kernels, kernel)(x, y)
    assert (probability * terms).sum().item() == pytest.approx(exact.item(), rel=1e-10)
    expected = (probability * (terms - exact).square()).sum() / 5
    computed = theory.mse("gerf", x, y, 5, kernel=kernel, A=A, s=s)
    assert computed.item() == pytest.approx(expected.item(), rel=1e-9)
    dtype = torch.complex128 if isinstance(A, complex) else torch.float64
    given = torch.tensor(A, dtype=dtype)
    assert theory.mse("gerf", x, y, 5, kernel=kernel, A=given, s=s) == computed


@pytest.mark.parametrize("kernel", KERNELS)
def test_phase_against_quadrature(kernel):
    """One dimension; the offset's mean by equal steps, exact for a trigonometric polynomial."""
    x, y = vector(0.6), vector(-0.5)
    nodes, weights = gaussian_nodes(120)
    offset = torch.arange(16, dtype=torch.float64) * (2 * math.pi / 16)
    phases = [nodes.unsqueeze(-1) * u + offset for u in (x, y)]
    terms = 2 * phases[0].cos() * phases[1].cos() * weight(x, y, kernel)
    exact = getattr(attention.kernels, kernel)(x, y)
    expected = (weights.unsqueeze(-1) * (terms - exact).square()).sum() / 16 / 7
    computed = theory.mse("trig_phase", x, y, 7, kernel=kernel)
    assert computed.item() == pytest.approx(expected.item(), rel=1e-12)


def discrete_moments(x: Tensor, y: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean square of one estimate, summed over counts up to len(log_p)."""
    k = torch.arange(len(log_p), dtype=torch.float64)
    # f(x) f(y) = exp(-norms/2) prod (x_l y_l)^k / (k! p_k), one factor a coordinate.
    log_size = k * (x * y).abs().log().unsqueeze(-1) - torch.lgamma(k + 1) - log_p
    signs = (x * y).sign().unsqueeze(-1) ** k
    scale = (-(x.square() + y.square()).sum() / 2).exp()
    mean = scale * (signs * (log_size + log_p).exp()).sum(-1).prod()
    return mean, scale**2 * (2 * log_size + log_p).exp().sum(-1).prod()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["poisson", "geometric"])
def test_discrete_against_direct_sums(name, kernel):
    x, y = vector(0.4, -0.9, 0.3), vector(0.6, 0.3, 1.1)
    k = torch.arange(150, dtype=torch.float64)
    if name == "poisson":
        options, log_p = {"lam": 0.45}, k * math.log(0.45) - 0.45 - torch.lgamma(k + 1)
    else:
        options, log_p = {"p": 0.55}, math.log(0.55) + k * math.log(0.45)
    mean, square = discrete_moments(x, y, log_p)
    exact = attention.kernels.gaussian(x, y)
    assert mean.item() == pytest.approx(exact.item(), rel=1e-13)
    expected = (square - exact**2) / 3 * weight(x, y, kernel) ** 2
    computed = theory.mse(name, x, y, 3, kernel=kernel, **options)
    assert computed.item() == pytest.approx(expected.item(), rel=1e-12)
    # Moved vectors have the same kernel, so the plus form is the plain one of x - c and y - c.
    shift = vector(0.1, -1.0, 0.2)
    moved = theory.mse(name, x - shift, y - shift, 3, kernel="gaussian", **options)
    plus = theory.mse(f"{name}_plus", x, y, 3, kernel=kernel, shift=shift, **options)
    assert plus.item() == pytest.approx((moved * weight(x, y, kernel) ** 2).item(), rel=1e-12)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("cosine", [-1.0, -0.5, 0.0, 0.4, 1.0])
def test_conformity_at_an_angle_against_its_definition(d, cosine):
    """E over both lengths of 0F1(; d/2; v^2 |omega_i + omega_j|^2 / 4) (Definition 3.1)."""
    nodes, weights = np.polynomial.legendre.leggauss(160)
    r = torch.tensor((nodes + 1) / 2 * 13)
    density = torch.tensor(weights) * r ** (d - 1) * (-r.square() / 2).exp()
    density = density / density.sum()
    square = r.square()[:, None] + r.square() + 2 * cosine * r[:, None] * r
    length = square.clamp(min=0).sqrt()
    for v in (0.5, 1.5, 2.5):
        z = v * length
        # 0F1(; 1; z^2/4) = I0(z) and 0F1(; 3/2; z^2/4) = sinh(z)/z.
        grown = torch.i0(z) if d == 2 else torch.where(z > 0, z.sinh() / z, torch.ones_like(z))
        expected = (density[:, None] * density * grown).sum().item()
        computed = theory.conformity_at_angle(cosine, vector(v), d).item()
        assert computed == pytest.approx(expected, rel=1e-10)
        if cosine == -1 / (d - 1):
            assert theory.rf_conformity("simplex", vector(v), d).item() == computed


def test_conformity_at_the_named_angles():
    v = vector(0.0, 1e-3, 0.5, 2.0, 5.0)
    for d in (2, 5, 64):
        for name, cosine in (("orthogonal", 0.0), ("simplex", -1 / (d - 1))):
            expected = theory.conformity_at_angle(cosine, v, d)
            assert_close(theory.rf_conformity(name, v, d), expected, rtol=0, atol=0)
        iid, orthogonal, simplex = (theory.rf_conformity(name, v, d) for name in COUPLINGS)
        assert_close(iid, v.square().exp(), rtol=1e-14, atol=0)
        assert iid[0] == orthogonal[0] == simplex[0] == 1
        assert (simplex[1:] < orthogonal[1:]).all()
        assert (orthogonal[2:] < iid[2:]).all()
    # d = 2: 1F1(2; 1; z) = (1 + z) exp(z), far beyond where exp(v^2) overflows.
    v = vector(20.0, 30.0, 36.0)
    computed = theory.rf_conformity("orthogonal", v, 2).log()
    half = v.square() / 2
    assert_close(computed, half.log1p() + half, rtol=1e-13, atol=0)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gerf_contains_positive_and_trig(coupling, kernel):
    x, y = doubles(2, 6, 4, seed=2) / 2
    for name, s in (("positive", 1), ("trig", -1)):
        general = theory.mse("gerf", x, y, 6, kernel=kernel, projection=coupling, A=0, s=s)
        special = theory.mse(name, x, y, 6, kernel=kernel, projection=coupling)
        assert_close(general, special, rtol=1e-12, atol=0)
    given = theory.oprf_parameter((x + y).square().sum(-1), 4)
    optimum = theory.mse("oprf", x, y, 6, kernel=kernel, projection=coupling)
    for name, options in (("oprf", {"A": given}), ("gerf", {"A": given}), ("gerf", {})):
        same = theory.mse(name, x, y, 6, kernel=kernel, projection=coupling, **options)
        assert_close(same, optimum, rtol=1e-14, atol=0)


OPTIMA = {
    "oprf": ("A", lambda x, y: theory.oprf_parameter((x + y).square().sum(-1), x.shape[-1])),
    "gerf": ("A", lambda x, y: theory.gerf_parameter((x - y).square().sum(-1), x.shape[-1])),
    "poisson": ("lam", lambda x, y: theory.poisson_parameter((x * y).square())),
    "geometric": ("p", lambda x, y: theory.geometric_parameter((x * y).abs())),
}


@pytest.mark.parametrize("name", sorted(OPTIMA))
def test_optimal_parameters(name):
    """At the optimum the error's derivative is zero and its neighbours are worse."""
    (parameter, optimum), options = OPTIMA[name], {"s": -1} if name == "gerf" else {}
    generator = torch.Generator().manual_seed(4)
    for d, length in ((2, 0.7), (3, 0.3), (3, 1.5), (16, 0.5), (16, 1.5)):
        drawn = torch.randn(2, 5, d, generator=generator, dtype=torch.float64)
        x, y = length * drawn / drawn.norm(dim=-1, keepdim=True)
        best = optimum(x, y)
        variable = best.clone().requires_grad_()
        least = theory.mse(name, x, y, 2, **{parameter: variable}, **options)
        assert_close(theory.mse(name, x, y, 2, **options), least, rtol=1e-12, atol=0)
        (slope,) = torch.autograd.grad(least.log().sum(), variable)
        # Relative to the curvature, which finite differences of the slope give.
        step = 1e-4 * best
        slopes = []
        for near in (best - step, best + step):
            variable = near.clone().requires_grad_()
            error = theory.mse(name, x, y, 2, **{parameter: variable}, **options)
            slopes.append(torch.autograd.grad(error.log().sum(), variable)[0])
        assert (slopes[0] * step < 0).all()
        assert (slopes[1] * step > 0).all()
        assert (slope.abs() < 1e-5 * (slopes[1] - slopes[0]).abs()).all()
        for factor in (0.7, 1.3):
            near = best * factor if name != "geometric" else 1 - (1 - best) * factor
            assert (theory.mse(name, x, y, 2, **{parameter: near}, **options) > least).all()
        if parameter == "A":
            turned = torch.complex(best, torch.full_like(best, 0.02))
            assert (theory.mse("gerf", x, y, 2, **{"A": turned, **options}) > least).all()


def test_limits_of_the_parameters():
    for d in (1, 7, 64):
        tiny, large = vector(1e-9), vector(1e9)
        for function in (theory.oprf_parameter, theory.gerf_parameter):
            assert function(vector(0.0), d) == 0
        # 1 - rho -> 2 v2/d for small sums, rho -> d/(2 v2) for large ones.
        assert_close(theory.oprf_parameter(tiny, d), -tiny / (2 * d), rtol=1e-7, atol=0)
        assert_close(theory.oprf_parameter(large, d), -large / (4 * d), rtol=1e-6, atol=0)
        v2 = vector(0.0, 0.1, d / 2, d / 2 + 1e-9, 40.0)
        rho = theory.oprf_rho(v2, d)
        assert_close(
            2 * v2 * rho**2 + (2 * v2 + d) * rho, torch.full_like(v2, d), rtol=1e-14, atol=0
        )
        assert_close(1 / (1 - 8 * theory.oprf_parameter(v2, d)), rho, rtol=1e-14, atol=0)
    # e = rho - 1 of s = -1: d e/4 -> z2/2 near 0, d e/4 -> z2 exp(-2 z2) far away.
    assert_close(theory.gerf_parameter(vector(1e-8), 3), vector(2e-8 / 3 / 8), rtol=1e-6, atol=0)
    far = theory.gerf_parameter(vector(60.0), 3)
    assert_close(far, vector(4 * 60 * math.exp(-120) / 3 / 8), rtol=1e-10, atol=0)
    # Small products: d/p = sum |x_l y_l|^2 / (1-p)^2, so 1 - p -> their root mean square.
    assert theory.geometric_parameter(vector(0.0, 0.0)).item() == 1 - 1e-6
    products = vector(1e-4, 3e-4, 2e-4)
    rest = 1 - theory.geometric_parameter(products)
    assert rest.item() == pytest.approx(products.square().mean().sqrt().item(), rel=1e-3)
    # Large products: p sum 2 |x_l y_l| = 2 d.
    large = theory.geometric_parameter(vector(2e6, 4e6))
    assert large.item() == pytest.approx(2 / 6e6, rel=1e-5)
    assert theory.poisson_parameter(vector(0.0, 0.0)).item() == pytest.approx(1e-6, rel=1e-12)
    assert theory.geometric_parameter(torch.rand(3, 5, 2)).shape == (3, 5)
    # Chefs' Random Tables, Figure 1: at d = 64, |x+y|^2 = 100 more than e^60 below positive.
    x = torch.full((64,), 5 / 8, dtype=torch.float64)
    ratio = theory.mse("oprf", x, x, 1) / theory.mse("positive", x, x, 1)
    assert ratio.log().item() == pytest.approx(-61.22, abs=0.005)


def test_tail_bound():
    # For x = y the bound is met at the omega that maximises f1 f2, found on a fine grid.
    x, a, m, error = vector(0.8), -0.15, 40, 0.3
    omega = torch.linspace(-20, 20, 400_001, dtype=torch.float64).unsqueeze(-1)
    expected = 2 * (-2 * m * error**2 / gerf_term(omega, x, x, a, 1).max() ** 2).exp()
    bound = theory.oprf_tail_bound(x, x, m, error, a, kernel="gaussian")
    assert bound.item() == pytest.approx(expected.item(), rel=1e-8)
    softmax = theory.oprf_tail_bound(x, x, m, error * math.exp(0.64), a)
    assert softmax.item() == pytest.approx(bound.item(), rel=1e-12)
    # d = 2, x = y = 0, M = 1, A = -24.75, error 49: the probability is 6.98e-3.
    zero = torch.zeros(2, dtype=torch.float64)
    # f1 f2 = 100 exp(-49.5 chi^2) >= 50, and chi^2 of two degrees is exponential.
    probability = 1 - math.exp(-math.log(100 / 50) / 99)
    assert probability == pytest.approx(6.98e-3, rel=1e-3)
    bound = theory.oprf_tail_bound(zero, zero, 1, 49.0, -24.75, kernel="gaussian")
    assert bound.item() == pytest.approx(2 * math.exp(-2 * 49**2 / 100**2), rel=1e-12)
    assert bound > probability


@pytest.mark.parametrize("kernel", KERNELS)
def test_gap_and_its_bound(kernel):
    x, y = doubles(2, 6, 4, seed=6) / 2
    for name in ("gerf", "hyperbolic", "oprf", "positive", "trig", "trig_phase"):
        for coupling in COUPLINGS:
            independent = theory.mse(name, x, y, 6, kernel=kernel)
            coupled = theory.mse(name, x, y, 6, kernel=kernel, projection=coupling)
            gap = theory.coupling_gap(name, x, y, 6, coupling, kernel=kernel)
            assert_close(gap, independent - coupled, rtol=1e-9, atol=1e-12)
    # Theorem 4.1 holds, and with equality to leading order in |x+y|^2.
    for d in (2, 3, 8, 64):
        lengths = vector(0.02, 0.3, 1.0, 3.0, 6.0)
        x = lengths.unsqueeze(-1) * torch.ones(d, dtype=torch.float64) / math.sqrt(d)
        for m in (1, 2, d):
            # Long vectors with a short sum, so that their lengths count too.
            far = torch.linspace(0.1, 1.0, d, dtype=torch.float64)
            bound = theory.orthogonality_gap_bound(x + far, x / 2 - far, m, kernel=kernel)
            gap = theory.coupling_gap("oprf", x + far, x / 2 - far, m, kernel=kernel)
            assert (bound <= gap * (1 + 1e-9)).all()
            if m > 1:
                assert bound[0] > 0.99 * gap[0]


def test_orthogonal_rows():
    # Corollary 4.4: positive for exponentials; Theorem 4.5: of either sign for cosines. Crossings
    # are roots of exp(-z^2) = 1F1(d; d/2; -z^2/2), from mpmath.
    for d, crossing in ((3, 3.3111), (4, 3.0812), (8, 2.9597), (16, 3.2625)):
        x = torch.zeros(2, d, dtype=torch.float64)
        x[:, 0] = vector(crossing - 0.001, crossing + 0.001)
        below, above = theory.coupling_gap("trig", x, 0 * x, d, kernel="gaussian")
        assert below > 0 > above
        assert (theory.coupling_gap("positive", x, 0 * x, d) > 0).all()
    # The remainder falls as 1/d^2: doubling d divides it by about four.
    for square in (0.0, 0.5, 2.0):
        remainders = []
        for d in (400, 800):
            x = torch.zeros(d, dtype=torch.float64)
            x[0] = math.sqrt(square)
            ratio = theory.trig_asymptotic_ratio(x, 0 * x, 3)
            if square == 0:
                assert ratio.item() == pytest.approx(1 - 2 / d, rel=1e-12)
                continue
            orthogonal = theory.mse("trig", x, 0 * x, 3, projection="orthogonal")
            remainders.append((orthogonal / theory.mse("trig", x, 0 * x, 3) - ratio).item())
            assert abs(remainders[-1]) < 0.05 * abs(1 - ratio.item())
        if remainders:
            assert remainders[0] / remainders[1] == pytest.approx(4, rel=0.1)
    near = vector(0.0141, 0.0), vector(0.01415, 0.0)
    values = [theory.trig_asymptotic_ratio(x, 0 * x, 2).item() for x in near]
    assert values[0] == pytest.approx(values[1], rel=1e-8)


@pytest.mark.parametrize(("m", "d"), [(1, 5), (3, 5), (5, 5), (13, 5), (64, 64), (2, 2), (3, 3)])
def test_small_sums(m, d):
    """kappa is the slope of m exp(2|x|^2+2|y|^2) MSE at |x+y|^2 = 0."""
    x = doubles(d, seed=7) / d
    step = torch.zeros(d, dtype=torch.float64)
    step[0] = 1e-4
    for name in COUPLINGS:
        error = theory.mse("positive", x, step - x, m, kernel="gaussian", projection=name)
        norms = x.square().sum() + (step - x).square().sum()
        slope = (m * (2 * norms).exp() * error / step.square().sum()).item()
        kappa = theory.small_sum_factor(name, m, d, dtype=torch.float64).item()
        assert kappa == pytest.approx(slope, rel=1e-4 if name == "simplex" else 1e-6)
        assert (kappa == 1) == (name != "simplex" or m == 1)
