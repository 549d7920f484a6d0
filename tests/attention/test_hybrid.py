"""The angular hybrid: where it is exact, what it equals, what it rejects."""

import pytest
import torch
from torch import Tensor

import attention

OPTIONS = [
    {},
    {"shared_projections": False},
    {"num_lambda_features": 1},
    {"lambda_projection": "iid"},
    {"base": ("positive", "trig")},
]


def estimate(fm: attention.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    return (fm.queries(x) * fm.keys(y)).sum(-1)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("options", OPTIONS)
def test_no_error_at_angles_zero_and_pi(options: dict[str, object], kernel: str) -> None:
    """Swapped weights would leave an error of order 10 at angle 0.

    At angle pi the trig terms, of size exp(|x|^2), cancel to rounding: lengths stay moderate.
    """
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = 1.5 * torch.nn.functional.normalize(x, dim=-1)
    fm = attention.feature_map(
        "angular_hybrid", 8, 4, kernel=kernel, dtype=torch.float64, **options
    )
    for y in (x, -x):
        exact = getattr(attention.kernels, kernel)(x, y)
        torch.testing.assert_close(estimate(fm, x, y), exact, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("shared", [True, False])
def test_equals_its_definition(shared: bool) -> None:
    """L S1 + (1 - L) S2 from the two base maps and explicit signs (eq 8)."""
    generator = torch.Generator().manual_seed(2)
    x, y, omega, tau = (
        torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (6, 6, 8, 5)
    )
    first, second = (omega[:4], omega[:4]) if shared else (omega[:4], omega[4:])
    fm = attention.feature_map(
        "angular_hybrid",
        3,
        4,
        projection=first if shared else omega,
        shared_projections=shared,
        num_lambda_features=5,
        lambda_projection=tau,
    )
    assert fm.output_dim == 4 * 4 * (5 + 1)
    weight = 0.5 - 0.5 * ((x @ tau.T).sign() * (y @ tau.T).sign()).mean(-1)
    hyperbolic = attention.feature_map("hyperbolic", 3, 4, projection=first)
    trig = attention.feature_map("trig", 3, 4, projection=second)
    expected = weight * estimate(hyperbolic, x, y) + (1 - weight) * estimate(trig, x, y)
    torch.testing.assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)


def test_one_sided_base_is_shorter() -> None:
    fm = attention.feature_map("angular_hybrid", 3, 4, base=("positive", "trig"))
    assert fm.output_dim == 3 * 4 * (8 + 1)


def test_float64_projection_decides_the_dtype() -> None:
    omega = torch.ones(4, 3, dtype=torch.float64)
    fm = attention.feature_map("angular_hybrid", 3, 4, projection=omega)
    assert {buffer.dtype for buffer in fm.buffers()} == {torch.float64}


def test_errors() -> None:
    with pytest.raises(ValueError, match="num_lambda_features must be at least 1, got 0"):
        attention.feature_map("angular_hybrid", 3, 4, num_lambda_features=0)
    with pytest.raises(ValueError, match="base must be two of hyperbolic, positive, trig, got"):
        attention.feature_map("angular_hybrid", 3, 4, base=("trig", "relu"))
    with pytest.raises(ValueError, match=r"lambda_projection must have shape \(8, 3\)"):
        attention.feature_map("angular_hybrid", 3, 4, lambda_projection=torch.zeros(7, 3))
