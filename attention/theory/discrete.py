"""Mean squared errors of Poisson and geometric features: Chefs' Random Tables eqs 11 and 13.

The map is f(omega, u) = exp(-|u|^2/2) prod_l u_l^omega_l / sqrt(omega_l! p(omega_l)) for integers
omega_l drawn from p; E[(f(x) f(y))^2] is a product over coordinates.
"""

import torch
from torch import Tensor

from attention.theory import base
from attention.theory.optimal import geometric_parameter, poisson_parameter
from attention.theory.special import log_bessel_i0


def poisson(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    lam: float | Tensor | None = None,
) -> Tensor:
    """KG^2 (exp(lam d + sum x_l^2 y_l^2 / lam - 2 x.y) - 1) / m for the Gaussian kernel.

    (..., d), (..., d) -> (...), any signs. lam: the rate, a number or (...); default: the optimum
    for each pair. Raises ValueError unless lam is positive.
    """
    _independent_only("poisson", projection)
    return _poisson(x, y, base.lengths(x, y), m, kernel, lam)


def poisson_plus(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    shift: Tensor,
    lam: float | Tensor | None = None,
) -> Tensor:
    """Error of Poisson features of x - shift and y - shift, shift (d,) or (..., d), for the same
    kernel."""
    _independent_only("poisson_plus", projection)
    return _poisson(x - shift, y - shift, base.lengths(x, y), m, kernel, lam)


def geometric(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    p: float | Tensor | None = None,
) -> Tensor:
    """KG^2 (p^-d exp(-2 x.y) prod_l I0(2|x_l y_l| / sqrt(1-p)) - 1) / m for the Gaussian kernel.

    (..., d), (..., d) -> (...), any signs. p: the probability of stopping, a number or (...);
    default: the optimum for each pair. Raises ValueError unless 0 < p < 1.
    """
    _independent_only("geometric", projection)
    return _geometric(x, y, base.lengths(x, y), m, kernel, p)


def geometric_plus(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    shift: Tensor,
    p: float | Tensor | None = None,
) -> Tensor:
    """Error of geometric features of x - shift and y - shift, shift (d,) or (..., d), for the same
    kernel."""
    _independent_only("geometric_plus", projection)
    return _geometric(x - shift, y - shift, base.lengths(x, y), m, kernel, p)


def _poisson(
    x: Tensor, y: Tensor, of: base.Lengths, m: int, kernel: str, lam: float | Tensor | None
) -> Tensor:
    products = x * y
    rate = poisson_parameter(products.square()) if lam is None else _like(x, lam)
    if not bool((rate > 0).all()):
        raise ValueError(f"lam must be positive, got {lam}")
    exponent = x.shape[-1] * rate + products.square().sum(-1) / rate - 2 * products.sum(-1)
    return _variance(exponent, of, m, kernel)


def _geometric(
    x: Tensor, y: Tensor, of: base.Lengths, m: int, kernel: str, p: float | Tensor | None
) -> Tensor:
    products = x * y
    stop = geometric_parameter(products.abs()) if p is None else _like(x, p)
    if not bool(((stop > 0) & (stop < 1)).all()):
        raise ValueError(f"p must be between 0 and 1, got {p}")
    t = 2 * products.abs() / (1 - stop).sqrt().unsqueeze(-1)
    exponent = log_bessel_i0(t).sum(-1) - x.shape[-1] * stop.log() - 2 * products.sum(-1)
    return _variance(exponent, of, m, kernel)


def _like(x: Tensor, value: float | Tensor) -> Tensor:
    """Convert to the dtype of x; numbers are not first rounded to the default dtype."""
    return torch.as_tensor(value, dtype=x.dtype, device=x.device)


def _variance(exponent: Tensor, of: base.Lengths, m: int, kernel: str) -> Tensor:
    """Return KG^2 (exp(exponent) - 1) / m, times the weight of the kernel."""
    # Non-negative up to rounding, by the Cauchy-Schwarz inequality.
    exponent = exponent.clamp(min=0)
    log_factor = base.log_weight(of, kernel) - of.minus + exponent
    return base.times_exp(-(-exponent).expm1() / m, log_factor)


def _independent_only(name: str, projection: str) -> None:
    if projection != "iid":
        raise ValueError(f"{name} has a closed form for projection='iid' only, got {projection!r}")
