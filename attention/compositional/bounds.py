"""Errors of compositional random features, exact and bounded.

Random Features for Compositional Kernels, section 3; the variance is derived, not in the paper.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attention.options import check_count, check_positive

if TYPE_CHECKING:
    from attention.compositional.activations import Floats
    from attention.compositional.arrays import ArrayLike
    from attention.compositional.skeleton import Skeleton


def variance(skeleton: Skeleton, x: ArrayLike, y: ArrayLike, num_features: int = 1) -> Floats:
    """Return the variance of k_hat(x, y) with `num_features` draws: (..., D), (..., D) -> (...).

    One feature has (k_abs + k_2) / 2 - k^2, where k_abs and k_2 are the skeleton's recurrence over
    E |psi psi'|^2 and E (psi conj psi')^2 of the bases; k_abs = 1 for norm-efficient ones. It is
    infinite if the series of an activation diverges at k_abs. The layout "phase" has a larger
    variance.
    """
    from attention.compositional.arrays import np  # the bounds below do not need it

    check_count("num_features", num_features)
    x, y = skeleton.check("x", x), skeleton.check("y", y)
    with np.errstate(invalid="ignore"):
        squared = skeleton.moment(lambda b: b.squared(x[..., b.columns], y[..., b.columns]))
        absolute = skeleton.moment(lambda b: b.absolute(x[..., b.columns], y[..., b.columns]))
        single = (absolute + squared) / 2 - np.square(skeleton.kernel(x, y))
    return np.where(np.isfinite(absolute), single, np.inf) / num_features


def sufficient_features(epsilon: float, delta: float, norm: float = 1.0) -> float:
    """Theorem 3 (Hoeffding): q >= 2 C^4 log(2 / delta) / epsilon^2 draws keep the error of
    k_hat(x, y) below epsilon with probability at least 1 - delta."""
    check_positive(epsilon=epsilon, norm=norm)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")
    return 2 * norm**4 * math.log(2 / delta) / epsilon**2


def function_error(radius: float, num_features: int, norm: float = 1.0) -> float:
    """Corollary 4: C |f| / sqrt(q) bounds the mean L2 distance of f from the random f_omega.

    radius is |f| in the kernel space.
    """
    check_positive(radius=radius, num_features=num_features, norm=norm)
    return norm * radius / math.sqrt(num_features)


def regularisation(lipschitz: float, radius: float, examples: int, norm: float = 1.0) -> float:
    """Theorem 5: lambda = sqrt2 rho C / (sqrt(m) B), B outside the root.

    lipschitz is rho, of the loss; radius B bounds the best function; examples is m.
    """
    check_positive(lipschitz=lipschitz, radius=radius, examples=examples, norm=norm)
    return math.sqrt(2) * lipschitz * norm / (math.sqrt(examples) * radius)


def excess_loss(
    lipschitz: float, radius: float, examples: int, num_features: int, norm: float = 1.0
) -> float:
    """Eq 8: sqrt8 rho B C / sqrt(m) + rho B C / sqrt(q), at the lambda of `regularisation`."""
    check_positive(lipschitz=lipschitz, radius=radius, examples=examples, norm=norm)
    learning = math.sqrt(8) * lipschitz * radius * norm / math.sqrt(examples)
    return learning + lipschitz * function_error(radius, num_features, norm)
