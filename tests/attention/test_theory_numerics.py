"""Closed-form errors in floating point: no overflow, no lost digits, dtypes and gradients."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from attention import theory
from tests.attention.cases import doubles
from tests.attention.test_theory_maps import ALL_DISCRETE, KERNELS, vector
from tests.pairwise import pairwise

ALL_COUPLED = ("gerf", "hyperbolic", "oprf", "positive", "trig", "trig_phase")


def test_large_inputs_and_zero_vectors():
    # Orthogonal vectors of length 20 and opposite ones: factors overflow, errors do not.
    x = torch.zeros(2, 64, dtype=torch.float64)
    y = torch.zeros(2, 64, dtype=torch.float64)
    x[:, 0] = 20
    y[0, 1], y[1, 0] = 20, -20
    for name in ALL_COUPLED:
        for coupling in ("iid", "orthogonal", "simplex"):
            error = theory.mse(name, x, y, 64, kernel="gaussian", projection=coupling)
            assert error.isfinite().all(), (name, coupling)
            assert (error >= 0).all(), (name, coupling)
    assert (theory.mse("positive", x, y, 64, kernel="gaussian")[0] * 64).item() == pytest.approx(1)
    # sgn(0) = 1: the coefficient's signs differ from any other vector's half of the time.
    zero, y = vector(0.0, 0.0, 0.0), vector(0.3, -0.4, 0.2)
    for pair in ((zero, y), (y, zero)):
        assert theory.angle(*pair).item() == pytest.approx(math.pi / 2, rel=1e-15)
    assert theory.angle(zero, zero) == 0
    first, second, mixed = 0.25 + 0.25 / 3, 0.25 + 0.25 / 3, 0.25 - 0.25 / 3
    hyperbolic, trig = (theory.mse(name, zero, y, 5) for name in ("hyperbolic", "trig"))
    shared = theory.shared_covariance("hyperbolic", "trig", zero, y) / 5
    expected = first * hyperbolic + second * trig + 2 * mixed * shared
    computed = theory.mse("angular_hybrid", zero, y, 5, num_lambda_features=3)
    assert computed.item() == pytest.approx(expected.item(), rel=1e-12)
    # Both bases are exact at two zero vectors.
    assert theory.mse("angular_hybrid", zero, zero, 5) == 0


def test_terms_out_of_range_and_digits():
    # y = x + e: MSE = exp(2|x|^2 + 2 x.e) (1 - exp(-|e|^2))^2 / 2m, finite in float32.
    x, y = torch.tensor([7.0, 0.0]), torch.tensor([7.0, 2.0**-20])
    log_error = 98 + 2 * math.log(2.0**-40) - math.log(16)
    assert theory.mse("trig", x, y, 8).log().item() == pytest.approx(log_error, rel=1e-5)
    # For opposite signs, Gaussian: exp(-4|x|^2) (1 - exp(-|x+y|^2))^2 / 2m.
    computed = theory.mse("hyperbolic", x.double(), -y.double(), 8, kernel="gaussian").log()
    log_error = -4 * 49 + 2 * math.log(2.0**-40) - math.log(16)
    assert computed.item() == pytest.approx(log_error, rel=1e-9)
    inf = math.inf
    weights, errors = vector(1.0, 0.0, 0.0, 0.0), vector(2.0, inf, inf, inf)
    assert theory.hybrid_mse(weights.view(2, 2), errors.view(2, 2)) == 2
    assert theory.hybrid_mse(errors.view(2, 2), weights.view(2, 2)) == 2
    weights, errors = vector(inf, -inf, -inf, inf), vector(1.0, 1.0, 1.0, 3.0)
    assert theory.hybrid_mse(weights.view(2, 2), errors.view(2, 2)) == inf
    # In float32, where p and q of Theorem 3.2 all but cancel for s = -1.
    x, y = 1e-4 * doubles(2, 1000, 4)
    expected = theory.mse("gerf", x, y, 8, s=-1)
    computed = theory.mse("gerf", x.float(), y.float(), 8, s=-1)
    assert_close(computed.double(), expected, rtol=1e-4, atol=0)


OPPOSITE: list[tuple[str, dict[str, Any]]] = [
    *((name, {"projection": c}) for name in ALL_COUPLED for c in ("iid", "orthogonal", "simplex")),
    *(("gerf", {"s": -1, "projection": c}) for c in ("iid", "orthogonal", "simplex")),
    ("gerf", {"A": 0.02 + 0.05j, "s": -1}),
    ("gerf", {"A": -0.1 + 0.05j}),
    ("complex_exponential", {"A": 1j}),
    ("complex_exponential", {"A": 1.0}),
    ("geometric", {}),
    ("poisson", {}),
    *(
        (name, {"base": base, "shared_projections": shared, **options})
        for name, options in (
            ("angular_hybrid", {}),
            ("gaussian_hybrid", {}),
            ("gaussian_hybrid", {"lambda_features": "positive"}),
        )
        for base in (("hyperbolic", "trig"), ("oprf", "trig"), ("positive", "oprf"))
        for shared in (True, False)
    ),
]


@pytest.mark.parametrize(
    ("case", "kernel", "dtype"), pairwise(OPPOSITE, KERNELS, (torch.float32, torch.float64))
)
def test_no_error_is_undefined(case, kernel, dtype):
    """Factors overflow and vanish together at y = x and y = -x, for lengths up to 40."""
    name, options = case
    drawn = doubles(40, 4, seed=9)
    lengths = torch.arange(1.0, 41.0, dtype=torch.float64).unsqueeze(-1)
    x = (lengths * drawn / drawn.norm(dim=-1, keepdim=True)).to(dtype)
    y = torch.stack((x, -x))
    error = theory.mse(name, x.expand_as(y), y, 6, kernel=kernel, **options)
    assert error.shape == (2, 40)
    assert not error.isnan().any()
    assert (error >= 0).all()


@pytest.mark.parametrize("coupling", ["iid", "orthogonal", "simplex"])
def test_zero_stays_zero_and_overflow_is_infinite(coupling):
    for x in (torch.full((16,), 1.75), vector(20.0, 0.0)):
        for name, sign in (("trig", 1), ("positive", -1), ("hyperbolic", -1), ("oprf", -1)):
            assert theory.mse(name, x, sign * x, 8, projection=coupling) == 0, name
    x = vector(*[40.0] * 4)
    for name, sign in (("trig", 1), ("positive", -1), ("hyperbolic", -1)):
        y = torch.stack((sign * x, -sign * x))
        error = theory.mse(name, x.expand(2, 4), y, 8, projection=coupling)
        assert error.tolist() == [0, math.inf], name
    assert theory.mse("oprf", x, -x, 8, projection=coupling) == 0
    assert theory.mse("trig_phase", x, x, 8, projection=coupling) == math.inf


def test_dtype_and_gradients():
    for dtype in (torch.float32, torch.float64):
        x = torch.full((3, 4), 0.5, dtype=dtype, requires_grad=True)
        for name in (*ALL_COUPLED, *ALL_DISCRETE):
            options = {"shift": torch.full((4,), -0.1, dtype=dtype)} if "plus" in name else {}
            error = theory.mse(name, x, 0.6 * x, 4, **options)
            assert error.shape == (3,)
            assert error.dtype == dtype
            (gradient,) = torch.autograd.grad(error.sum(), x)
            assert gradient.isfinite().all()
    x = vector(0.4, -0.1, 0.3).requires_grad_()
    y = vector(0.2, 0.5, -0.3).requires_grad_()
    for name in ("positive", "trig"):
        for coupling in ("orthogonal", "simplex"):
            error = partial(theory.mse, name, num_features=3, projection=coupling)
            assert torch.autograd.gradcheck(error, (x, y))
