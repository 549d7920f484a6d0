"""Error of nested hybrids, whose Gaussian coefficient is estimated by another hybrid.

Nested hybrids are mentioned in Hybrid Random Features, appendix F. The formula is Theorem 3.1 with
the moments of `attention.theory.gaussian`, where the variance is the error of the inner hybrid.
"""

from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.kernels import check_kernel
from attention.options import check_count
from attention.theory.gaussian import moments_at
from attention.theory.hybrid import bipolar_mse


def nested_hybrid_mse(
    x: Numbers,
    y: Numbers,
    num_features: int,
    inner_error: Numbers,
    *,
    kernel: str = "softmax",
    projection: str | tuple[str, str] = "iid",
    lambda_sigma: float = 1.0,
    radius: float = 1.0,
    shared_projections: bool = True,
    base: tuple[str, str] = ("hyperbolic", "trig"),
    A: float | Tensor | None = None,
) -> Tensor:
    """Return the mean squared error of a nested hybrid: (..., d), (..., d), (...) -> (...).

    L = (1 - G)/rho, where G is an unbiased estimate of exp(-sigma^2 |x-y|^2/2). For |x| = |y| =
    radius and an angular inner hybrid the error is 0 both at x = y and at x = -y, unlike for a
    Gaussian hybrid.

    Args:
        num_features: m of the two bases.
        inner_error: mean squared error of G, such as `mse("angular_hybrid", sigma x, sigma y, ...,
            kernel="gaussian")`, or of this function for another level.
        lambda_sigma, radius: of the coefficient, as in `bipolar_coefficient`.
        kernel, projection, shared_projections, base, A: of the outer hybrid, as in `mse`.

    Raises ValueError if there is no closed form.
    """
    x, y = as_vectors(x=x, y=y)
    _, inner_error = as_numbers(x=x, inner_error=inner_error)
    check_kernel(kernel)
    check_count("num_features", num_features)
    return bipolar_mse(
        "nested_hybrid",
        moments_at(x, y, inner_error, lambda_sigma, radius),
        x,
        y,
        num_features,
        projection,
        kernel,
        base=base,
        shared_projections=shared_projections,
        A=A,
    )
