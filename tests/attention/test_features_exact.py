"""Expectations taken exactly: random vectors replaced by all the nodes of a quadrature or sum.

A map given the nodes as an explicit projection has one product of features a node; their weighted
sum is the kernel itself, to rounding, whatever the parameters.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map
from tests.attention.cases import DOUBLE, OMEGA, WEIGHT


def pair() -> tuple[Tensor, Tensor]:
    return torch.tensor([[0.6, -0.5], [0.3, 0.7]], dtype=torch.float64).unbind()


def grid(nodes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of nodes (n^2, 2) and the products of their weights (n^2,)."""
    return torch.cartesian_prod(nodes, nodes), torch.cartesian_prod(weights, weights).prod(-1)


def expectation(fm: attention.FeatureMap, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Mean of the estimate when node i has the probability weights[i] and not 1/m."""
    products = fm.queries(x) * fm.keys(y)
    products = products.unflatten(-1, (-1, fm.num_features)).sum(-2)
    return fm.num_features * (products * weights).sum(-1)


MATRICES = ([0.7, -1.4], [0.7j, 1.4], [[1.0, 0.3], [-0.5, 0.8]], 1.3)
GAUSSIAN: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("trig", "positive", "hyperbolic")),
    ("oprf", {"A": -0.3}),
    *(("gerf", {"A": A}) for A in (-0.3, 0.04)),
    *(("gerf", {"A": A, "s": -1}) for A in (0.05, -0.2, 0.03 + 0.06j, -0.1 - 0.05j)),
    ("gerf", {"A": -0.1 + 0.05j, "s": 1}),
    *(("complex_exponential", {"A": A}) for A in MATRICES),
    ("complex_exponential", {"A": [[1.0, 0.3j], [-0.5 + 0.2j, 0.8j]]}),
]


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize(("name", "options"), GAUSSIAN)
def test_expectation_over_gaussians(name, options, kernel):
    (x, y), m = pair(), len(OMEGA)
    fm = feature_map(name, 2, m, kernel=kernel, projection=OMEGA, **options)
    exact = getattr(attention.kernels, kernel)(x, y)
    assert_close(expectation(fm, x, y, WEIGHT), exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_expectation_over_phases_and_special_cases(kernel):
    # Eight equal steps of the offset integrate its harmonics away.
    (x, y), m = pair(), len(OMEGA)
    options, values = {"kernel": kernel, "projection": OMEGA}, []
    for b in torch.arange(8, dtype=torch.float64) * math.pi / 4 + 0.1:
        fm = feature_map("trig_phase", 2, m, phase=b.expand(m), **options)
        values.append(expectation(fm, x, y, WEIGHT))
    exact = getattr(attention.kernels, kernel)(x, y)
    assert_close(torch.stack(values).mean(), exact, rtol=1e-9, atol=0)
    x, y = pair()
    omega = attention.projection("iid", 5, 2, torch.Generator().manual_seed(0), torch.float64)

    def estimate(name: str, **options: Any) -> Tensor:
        fm = feature_map(name, 2, 5, kernel=kernel, projection=omega, **options)
        return (fm.queries(x) * fm.keys(y)).sum(-1)

    positive, trig = estimate("positive"), estimate("trig")
    eye = torch.eye(2, dtype=torch.float64)
    for same, name, options in (
        (positive, "oprf", {"A": 0.0}),
        (positive, "oprf", {}),
        (positive, "gerf", {}),
        (positive, "gerf", {"A": 0j}),
        (positive, "complex_exponential", {}),
        (positive, "complex_exponential", {"A": eye}),
        (trig, "gerf", {"s": -1}),
        (trig, "gerf", {"A": 0j, "s": -1}),
        (trig, "complex_exponential", {"A": 1j}),
        (trig, "complex_exponential", {"A": 1j * eye}),
        (estimate("oprf", A=-0.2), "gerf", {"A": -0.2}),
        (estimate("gerf", A=0.03, s=-1), "gerf", {"A": 0.03 + 0j, "s": -1}),
        (
            estimate("complex_exponential", A=torch.tensor([0.5, 2j])),
            "complex_exponential",
            {"A": torch.tensor([0.5, 2j]).diag()},
        ),
    ):
        assert_close(estimate(name, **options), same, rtol=1e-13, atol=0)


def masses(name: str, value: float, count: int) -> Tensor:
    k = torch.arange(count, dtype=torch.float64)
    if name.startswith("poisson"):
        return (k * math.log(value) - value - (k + 1).lgamma()).exp()
    return value * (1 - value) ** k


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("shift", [None, [-0.7, -0.6], [0.1, 0.9]])
@pytest.mark.parametrize(("name", "value"), [("poisson", 0.4), ("geometric", 0.7)])
def test_expectation_over_integers(name, value, shift, kernel):
    """Signed, positive above a shift, and of either sign below one."""
    x, y = pair()
    count = 40
    nodes, weights = grid(torch.arange(count), masses(name, value, count))
    option: dict[str, Any] = {"lam" if name == "poisson" else "p": value}
    if shift is not None:
        name, option = f"{name}_plus", {**option, "shift": torch.tensor(shift).double()}
    option |= {"kernel": kernel, "projection": nodes.long(), **DOUBLE}
    fm = feature_map(name, 2, len(nodes), **option)
    exact = getattr(attention.kernels, kernel)(x, y)
    assert_close(expectation(fm, x, y, weights), exact, rtol=1e-9, atol=0)


def test_formulas_of_comparisons():
    # The kernel that its docstring states, by quadrature in polar coordinates.
    x, y = pair()
    m, epsilon = 4096, 0.2
    turn = (torch.arange(m, dtype=torch.float64) + 0.5) * 2 * math.pi / m
    around = torch.stack((turn.cos(), turn.sin()), -1)
    fm = feature_map("relu", 2, m, projection=around, epsilon=epsilon)
    none = feature_map("relu", 2, m, projection=0 * around, epsilon=epsilon)
    theta = math.acos((x @ y / (x.norm() * y.norm())).item())
    lengths = (x.norm() * y.norm()).item()
    arc = lengths * (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / (2 * math.pi)
    # On the circle E|omega|^2 = 1 and not 2, E|omega| = 1 and not sqrt(pi/2).
    expected = arc / 2 + epsilon * (x.norm() + y.norm()).item() / math.pi + epsilon**2
    assert (fm.queries(x) * fm.keys(y)).sum(-1).item() == pytest.approx(expected, rel=1e-6)
    assert (none.queries(x) * none.keys(y)).sum().item() == pytest.approx(epsilon**2)
    fm = feature_map("elu", 3, 1, **DOUBLE)
    u = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    expected = torch.tensor([math.exp(-2), 1.0, 4.0], dtype=torch.float64)
    assert_close(fm.queries(u), expected, rtol=1e-15, atol=0)
    assert fm.output_dim == 3
    far = fm.scaled_queries(torch.full((2, 3), -1e4, dtype=torch.float64))
    assert torch.equal(far.mantissa, torch.ones(2, 3, dtype=torch.float64))
