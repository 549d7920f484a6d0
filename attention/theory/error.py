"""Mean squared errors by the name of the map."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from attention.kernels import check_kernel
from attention.options import check_options
from attention.theory import base
from attention.theory.angular import angular_hybrid


def _of_lengths(
    error: Callable[[base.Lengths, int, str, int], Tensor],
) -> Callable[[Tensor, Tensor, int, str], Tensor]:
    def closed_form(x: Tensor, y: Tensor, m: int, projection: str) -> Tensor:
        return error(base.lengths(x, y), m, projection, x.shape[-1])

    return closed_form


_CLOSED_FORMS: dict[str, Callable[..., Tensor]] = {
    "angular_hybrid": angular_hybrid,
    "hyperbolic": _of_lengths(base.hyperbolic),
    "positive": _of_lengths(base.positive),
    "trig": _of_lengths(base.trig),
}


def mse(
    name: str,
    x: Tensor,
    y: Tensor,
    num_features: int,
    *,
    kernel: str = "softmax",
    projection: str = "iid",
    sigma: float = 1.0,
    **options: Any,
) -> Tensor:
    """Mean squared error of the map's estimate of kernel(x, y): (..., d), (..., d) -> (...).

    Args:
        name: map, as for `attention.feature_map`.
        num_features: m, the number of projections.
        kernel: "softmax" or "gaussian".
        projection: "iid" or, for trig, positive and hyperbolic, "orthogonal" (blocks for m > d).
        sigma: bandwidth of the Gaussian kernel, exp(-|x-y|^2 / (2 sigma^2)).
        options: `num_lambda_features`, `shared_projections` and `base` of angular_hybrid.

    Raises:
        ValueError: a map, coupling or option without a closed form; the message names those with.
    """
    if name not in _CLOSED_FORMS:
        known = ", ".join(sorted(_CLOSED_FORMS))
        raise ValueError(f"closed-form errors are known for {known}, got {name!r}")
    check_kernel(kernel)
    if num_features < 1:
        raise ValueError(f"num_features must be at least 1, got {num_features}")
    if sigma <= 0 or (sigma != 1.0 and kernel != "gaussian"):
        raise ValueError(
            f"sigma must be positive, and 1 for the softmax kernel, got {sigma} with {kernel}"
        )
    closed_form = _CLOSED_FORMS[name]
    check_options(name, closed_form, options, fixed=("x", "y", "m", "projection"))
    x, y = x / sigma, y / sigma
    error = closed_form(x, y, num_features, projection, **options)
    return error * (-base.lengths(x, y).norms).exp() if kernel == "gaussian" else error
