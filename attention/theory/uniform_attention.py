"""Largest error of OPRF for the softmax kernel over all queries and keys of a ball.

Chefs' Random Tables, Theorem 4.3, which gives an order without constants; the constants are derived
here. Rows of Q and K have length at most R, so x = d^(-1/4) q and y = d^(-1/4) k have at most r = R
d^(-1/4). With A < 0 one term g of the estimate, its variance and its gradient are bounded on that
ball:

    0 <= g <= G = (1-4A)^(d/2) exp(r^2 - r^2/(2A)),     Var g <= G E g <= G exp(r^2),
    |gradient of g| <= (1-4A)^(d/2) (s + r) exp(-a s^2 + 2 r s - r^2),    a = -2A/(1-4A),
    s = (r (1-a) + sqrt(r^2 (1+a)^2 + 2a)) / (2a).

The bound follows from nets of both balls, Bernstein's inequality at their points, and the gradient
between them. Due to the variance it grows with (1-4A)^(d/2), as in the theorem, and not with its
square, as from Hoeffding's inequality (Theorem 4.2).
"""

import math

from attention.options import check_count, check_positive


def uniform_attention_bound(
    dim: int, radius: float, num_features: int, epsilon: float, A: float
) -> float:
    """Bound on P(largest |estimate - exp(x.y)| >= epsilon) for independent rows; may exceed 1.

    2 (1 + 8 r L/eps)^(2d) exp(-m eps^2 / (2 G min(G, 4 exp(r^2) + 2 eps/3))), where L is the sum of
    the bounds on the gradients of a term and of the kernel, r exp(r^2).

    Args:
        dim: d.
        radius: R, the largest length of a row of Q or K before scaling by d^(-1/4).
        num_features: m.
        A: below 0.

    Raises ValueError for arguments out of range.
    """
    check_count("num_features", num_features)
    log_net, rate = _log_net_and_rate(dim, radius, epsilon, A)
    return math.exp(min(log_net - num_features * rate, 700.0))


def uniform_attention_features(
    dim: int, radius: float, epsilon: float, probability: float, A: float
) -> int:
    """Return the least m for which `uniform_attention_bound` is at most `probability`.

    Raises ValueError for arguments out of range.
    """
    check_positive(probability=probability)
    log_net, rate = _log_net_and_rate(dim, radius, epsilon, A)
    return max(1, math.ceil((log_net - math.log(probability)) / rate))


def largest_term(dim: int, r: float, A: float) -> float:
    """Return G, the largest term of an estimate of exp(x.y) for |x|, |y| <= r."""
    return (1 - 4 * A) ** (dim / 2) * math.exp(r * r - r * r / (2 * A))


def largest_gradient(dim: int, r: float, A: float) -> float:
    """Return the largest gradient of one term in x, over all omega and |x|, |y| <= r."""
    a = -2 * A / (1 - 4 * A)
    s = (r * (1 - a) + math.sqrt((r * (1 + a)) ** 2 + 2 * a)) / (2 * a)
    return (1 - 4 * A) ** (dim / 2) * (s + r) * math.exp(-a * s * s + 2 * r * s - r * r)


def _log_net_and_rate(dim: int, radius: float, epsilon: float, A: float) -> tuple[float, float]:
    """Return the log of twice the number of pairs of the net, and the factor of -m in the
    exponent."""
    check_count("dim", dim)
    check_positive(radius=radius, epsilon=epsilon)
    if not -math.inf < A < 0:
        raise ValueError(f"A must be negative and finite for a bounded feature, got {A}")
    r = radius * dim**-0.25
    top, mean = largest_term(dim, r, A), math.exp(r * r)
    slope = largest_gradient(dim, r, A) + r * mean
    log_net = math.log(2) + 2 * dim * math.log1p(8 * r * slope / epsilon)
    return log_net, epsilon**2 / (2 * top * min(top, 4 * mean + 2 * epsilon / 3))
