"""Squared L2 error of trig and trig_phase features over a measure of pairs, Gaussian kernel.

These results are announced in On the Error of Random Fourier Features and derived here. With f =
estimate - kernel and a probability measure mu of pairs,

    E int f^2 dmu = int Var(estimate) dmu,

and changing one of the independent frequencies changes int f^2 dmu by at most 16/F (trig) or 24/F
(trig_phase), so McDiarmid's inequality bounds its deviation from the mean. F is the number of
feature rows, as in `attention.theory.uniform`.
"""

import math

from torch import Tensor

from attention.conversion import Numbers, as_vectors
from attention.options import check_positive
from attention.theory import base as errors
from attention.theory.uniform import check_name, projections


def expected_l2_error(name: str, x: Numbers, y: Numbers, rows: int, sigma: float = 1.0) -> Tensor:
    """Return the expected mean of f^2 over all pairs of points: (n, d), (k, d) -> ().

    For another measure, pass points drawn from it: the result is exact for their empirical measure.

    Raises ValueError for other names, an invalid number of rows, or a sigma that is not positive.
    """
    x, y = as_vectors(x=x, y=y)
    m = projections(name, rows)
    check_positive(sigma=sigma)
    error = errors.trig if name == "trig" else errors.trig_phase
    of = errors.lengths(x.unsqueeze(-2) / sigma, y / sigma)
    return error(of, m, "iid", x.shape[-1], "gaussian").mean()


def expected_gaussian_l2_error(
    name: str, dim: int, rows: int, spread: float, sigma: float = 1.0
) -> float:
    """Return E int f^2 dmu for independent x and y with distribution N(0, spread^2 I).

    With q(a) = E exp(-a |x-y|^2/2) = (1 + 2 a spread^2)^(-d/2), the mean variance of trig is (1 +
    q(4/sigma^2) - 2 q(2/sigma^2)) / F, and of trig_phase (1 + q(4/..)/2 - q(2/..)) / F.

    Raises ValueError for other names and arguments that are not positive.
    """
    projections(name, rows)
    check_positive(dim=dim, spread=spread, sigma=sigma)
    ratio = 2 * (spread / sigma) ** 2
    # Minus 1, which keeps more digits where the spread is small and terms of trig cancel.
    double, square = (math.expm1(-dim / 2 * math.log1p(a * ratio)) for a in (4, 2))
    if name == "trig":
        return (double - 2 * square) / rows
    return (1 + double - 2 * square) / (2 * rows)


def l2_concentration_bound(name: str, rows: int, epsilon: float) -> float:
    """Bound on P(|int f^2 dmu - its mean| >= epsilon), for any probability measure mu.

    2 exp(-F eps^2/64) for trig, 2 exp(-F eps^2/288) for trig_phase.

    Raises ValueError for other names and arguments that are not positive.
    """
    check_name(name)
    check_positive(rows=rows, epsilon=epsilon)
    return 2 * math.exp(-rows * epsilon**2 / (64 if name == "trig" else 288))
