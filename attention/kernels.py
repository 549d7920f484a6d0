"""Exact kernels: the ground truth that the feature maps estimate.

Conventions: there is no d**-0.5 scaling, and the Gaussian kernel has unit bandwidth, exp(-|x-y|^2 /
2). The two kernels are related by gaussian(x, y) = exp(-|x|^2/2) softmax(x, y) exp(-|y|^2/2)
(Hybrid Random Features, eq 1).
"""

import math
from typing import Literal, get_args

from torch import Tensor

from attention.options import check_positive, is_real

KernelName = Literal["softmax", "gaussian"]
KERNELS: tuple[str, ...] = get_args(KernelName)


def softmax(x: Tensor, y: Tensor) -> Tensor:
    """exp(x.y), shapes (..., d), (..., d) -> (...), leading ones broadcast."""
    return (x * y).sum(-1).exp()


def gaussian(x: Tensor, y: Tensor, sigma: float | Tensor = 1.0) -> Tensor:
    """exp(-|x-y|^2 / (2 sigma^2)), shapes (..., d), (..., d) -> (...), leading ones broadcast.

    The difference is taken before it is squared, so x = y gives exactly 1. A bandwidth sigma gives
    the unit kernel of x/sigma and y/sigma. Raises ValueError if a number sigma is not positive and
    finite.
    """
    if not isinstance(sigma, Tensor):
        check_positive(sigma=sigma)
    return ((x - y).square().sum(-1) * (-0.5 / sigma**2)).exp()


def von_mises(x: Tensor, y: Tensor, kappa: float, period: float = 2 * math.pi) -> Tensor:
    """exp(kappa sum_l (cos(2 pi (x_l - y_l) / period) - 1)), shapes (..., d), (..., d) -> (...).

    A Gaussian on a circle or torus, of bandwidth period / (2 pi sqrt(kappa)). Raises ValueError if
    kappa or period is not positive and finite.
    """
    check_positive(kappa=kappa, period=period)
    half_angles = (x - y) * (math.pi / period)
    return (-2 * kappa * half_angles.sin().square().sum(-1)).exp()


def quadratic(x: Tensor, y: Tensor, c: float = 1.0, s: float = 1.0) -> Tensor:
    """(c + s x.y)^2, shapes (..., d), (..., d) -> (...), leading ones broadcast.

    Raises ValueError if c is negative, s is not positive, or one is not finite.
    """
    check_quadratic(c, s)
    return (c + s * (x * y).sum(-1)).square()


def check_quadratic(c: float, s: float) -> None:
    """Raise ValueError unless c is at least 0 and s positive, both finite numbers."""
    if not is_real(c) or not 0 <= c < math.inf:
        raise ValueError(f"c must be a finite number of at least 0, got {c!r}")
    check_positive(s=s)


def check_kernel(kernel: str) -> None:
    """Raise ValueError unless `kernel` is the name of a kernel."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
