"""Mean squared errors by name of the map."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.kernels import check_kernel
from attention.options import check_count, check_options, check_positive
from attention.theory import base
from attention.theory.angular import angular_hybrid
from attention.theory.clustered import clustered_hybrid
from attention.theory.complex_exponential import complex_exponential
from attention.theory.discrete import geometric, geometric_plus, poisson, poisson_plus
from attention.theory.gaussian import gaussian_hybrid
from attention.theory.gerf import gerf, oprf
from attention.theory.quadratic import quadratic


def _of_lengths(
    error: Callable[[base.Lengths, int, str, int, str], Tensor],
) -> Callable[[Tensor, Tensor, int, str, str], Tensor]:
    def closed_form(x: Tensor, y: Tensor, m: int, projection: str, kernel: str) -> Tensor:
        return error(base.lengths(x, y), m, projection, x.shape[-1], kernel)

    return closed_form


_CLOSED_FORMS: dict[str, Callable[..., Tensor]] = {
    "angular_hybrid": angular_hybrid,
    "clustered_hybrid": clustered_hybrid,
    "complex_exponential": complex_exponential,
    "gaussian_hybrid": gaussian_hybrid,
    "geometric": geometric,
    "geometric_plus": geometric_plus,
    "gerf": gerf,
    "hyperbolic": _of_lengths(base.hyperbolic),
    "oprf": oprf,
    "poisson": poisson,
    "poisson_plus": poisson_plus,
    "positive": _of_lengths(base.positive),
    "quadratic": quadratic,
    "trig": _of_lengths(base.trig),
    "trig_phase": _of_lengths(base.trig_phase),
}
_FIXED = ("x", "y", "m", "projection", "kernel")
_TENSORS = ("A", "key_centers", "lam", "p", "pairs", "query_centers", "shift")
"""Options that may be lists or arrays."""


def mse(
    name: str,
    x: Numbers,
    y: Numbers,
    num_features: int,
    *,
    kernel: str = "softmax",
    projection: str | tuple[str, str] = "iid",
    sigma: float = 1.0,
    **options: Any,
) -> Tensor:
    """Return the mean squared error of the map's estimate of kernel(x, y): (..., d), (..., d) ->
    (...).

    Args:
        name: name of the map, as in `attention.feature_map`.
        num_features: m, the number of projections (m features for trig_phase, 2m for trig).
        kernel: "softmax" or "gaussian".
        projection: "iid", "orthogonal" or "simplex", in blocks for m > d. Discrete maps and some
            others support only "iid"; hybrids of two bases accept a name per base.
        sigma: bandwidth of the Gaussian kernel, exp(-|x-y|^2 / (2 sigma^2)): the unit kernel of x /
            sigma and y / sigma, to which the options apply too. For gaussian_hybrid and the softmax
            kernel, which has no bandwidth, it is an alias of `lambda_sigma`.
        options: A of gerf and oprf, s of gerf, lam of poisson, p of geometric, where the default is
            the optimum for each pair, and shift of the plus forms; A of complex_exponential; c and
            s of quadratic, whose error is that of its own kernel; and the options of the hybrids,
            see the functions of this package.

    Raises:
        ValueError: for a map, coupling or option without a closed form; the message names those
            that have one. Also if x and y differ in d.
    """
    x, y = as_vectors(x=x, y=y)
    if name not in _CLOSED_FORMS:
        known = ", ".join(sorted(_CLOSED_FORMS))
        raise ValueError(f"closed-form errors are known for {known}, got {name!r}")
    check_kernel(kernel)
    if x.shape[-1:] != y.shape[-1:]:
        raise ValueError(
            f"x and y must have the same last dimension, got shapes {tuple(x.shape)} "
            f"and {tuple(y.shape)}"
        )
    if name == "gaussian_hybrid" and kernel == "softmax" and "lambda_sigma" not in options:
        options["lambda_sigma"], sigma = sigma, 1.0
    check_count("num_features", num_features)
    check_positive(sigma=sigma)
    if sigma != 1 and kernel != "gaussian":
        raise ValueError(f"sigma must be 1 for the softmax kernel, got {sigma}")
    closed_form = _CLOSED_FORMS[name]
    check_options(name, closed_form, options, fixed=_FIXED)
    for parameter in inspect.signature(closed_form).parameters.values():
        required = parameter.default is parameter.empty and parameter.name not in _FIXED
        if required and parameter.name not in options:
            raise ValueError(f"{name} needs the option {parameter.name!r}, got {sorted(options)}")
    for option in _TENSORS:
        if option in options and not isinstance(options[option], int | float | complex | None):
            _, options[option] = as_numbers(x=x, **{option: options[option]})
    return closed_form(x / sigma, y / sigma, num_features, projection, kernel, **options)
