"""Error of the clustered hybrid, with one complex exponential base per pair of clusters.

Hybrid Random Features, appendix H. With zero-one coefficients (Definition H.2) the estimate is that
of the pair's clusters, so the error is that of their base, or of the default base if the pair has
none. With Gaussian ones (Definition H.1) it is sum_ij L_ij S_ij + (1 - sum L_ij) S_0, where all
bases share their projections and all coefficients share theirs. The covariances (derived here) are
those of exponentials.
"""

import torch
from torch import Tensor

from attention.kernels import gaussian
from attention.options import check_count, check_positive
from attention.theory.complex_exponential import (
    A_CAP,
    A_FLOOR,
    complex_exponential,
    complex_exponential_covariance,
    optimal_diagonal,
)
from attention.theory.gaussian import LAMBDA_FEATURES
from attention.theory.hybrid import base_mse, hybrid_mse
from attention.theory.special import scaled_expm1

COEFFICIENTS = ("gaussian", "zero_one")
_DEFAULT_BASES: dict[str, tuple[complex, ...]] = {
    "hyperbolic": (1.0, -1.0),
    "positive": (1.0,),
    "trig": (1j,),
}
"""Default bases as means of complex exponentials with these multiples of the identity."""


def clustered_hybrid(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    query_centers: Tensor,
    key_centers: Tensor,
    complex_a: bool = True,
    a_limits: tuple[float, float] = (A_FLOOR, A_CAP),
    pairs: Tensor | None = None,
    coefficients: str = "zero_one",
    num_lambda_features: int = 8,
    lambda_scale: float = 1.0,
    lambda_features: str = "positive",
    lambda_projection: str = "iid",
    default_base: str = "trig",
) -> Tensor:
    """Mean squared error of the clustered hybrid with independent rows: (..., d), (..., d) ->
    (...).

    The computation is in float64, since large terms of Gaussian coefficients cancel. Several widths
    away from all centres the cancellation exceeds the precision of float64, and the result is
    meaningless.

    Args:
        query_centers: (nq, d); a query belongs to the nearest centre. Like x and y, in units of the
            bandwidth of a Gaussian kernel.
        key_centers: (nk, d), the same for keys.
        complex_a: whether A of each pair of centres is the complex optimum, else the real optimum.
        a_limits: least and largest |A_k|.
        pairs: (p, 2), clusters i and j of the pairs with a base, as in the buffer `pairs` of a map
            with `num_pairs`. Default: all pairs.
        coefficients: "zero_one" or "gaussian"; the options below apply to "gaussian" only.
        num_lambda_features: n, number of vectors for the coefficients.
        lambda_scale: t, width of the regions around the centres.
        lambda_features: features that estimate the coefficients, "positive" or "trig".
        lambda_projection: "iid".
        default_base: S_0, one of hyperbolic, positive and trig.

    Raises ValueError if there is no closed form or centres have another shape.
    """
    dim = x.shape[-1]
    for argument, centers in (("query_centers", query_centers), ("key_centers", key_centers)):
        if centers.dim() != 2 or centers.shape[-1] != dim or len(centers) == 0:
            raise ValueError(
                f"{argument} must be (clusters, {dim}), got shape {tuple(centers.shape)}"
            )
    if (projection, lambda_projection) != ("iid", "iid"):
        raise ValueError(
            "clustered_hybrid has a closed form for projection='iid' and lambda_projection='iid' "
            f"only, got {projection!r} and {lambda_projection!r}"
        )
    for argument, value, known in (
        ("coefficients", coefficients, COEFFICIENTS),
        ("lambda_features", lambda_features, LAMBDA_FEATURES),
        ("default_base", default_base, tuple(_DEFAULT_BASES)),
    ):
        if value not in known:
            raise ValueError(f"{argument} must be one of {', '.join(known)}, got {value!r}")
    kept = _pairs(pairs, len(query_centers), len(key_centers))
    dtype = x.dtype
    x, y, query_centers, key_centers = (t.double() for t in (x, y, query_centers, key_centers))
    x, y = torch.broadcast_tensors(x, y)
    if coefficients == "zero_one":
        error = base_mse(default_base, x, y, m, "iid", kernel)
        x_cluster, y_cluster = _nearest(x, query_centers), _nearest(y, key_centers)
        for i, j in kept:
            member = (x_cluster == i) & (y_cluster == j)
            A = _diagonal(query_centers[i], key_centers[j], complex_a, a_limits)
            own = complex_exponential(x[member], y[member], m, "iid", kernel, A=A)
            error = error.masked_scatter(member, own)
        return error.to(dtype)
    check_count("num_lambda_features", num_lambda_features)
    check_positive(lambda_scale=lambda_scale)
    diagonals = [_diagonal(query_centers[i], key_centers[j], complex_a, a_limits) for i, j in kept]
    moments = _weight_moments(
        x, y, torch.stack(diagonals), num_lambda_features, lambda_scale, lambda_features
    )
    return hybrid_mse(moments, _covariances(x, y, diagonals, default_base, kernel) / m).to(dtype)


def _pairs(pairs: Tensor | None, nq: int, nk: int) -> list[tuple[int, int]]:
    """Return clusters (i, j) of the pairs with bases. Raises ValueError for invalid pairs."""
    every = [(i, j) for i in range(nq) for j in range(nk)]
    if pairs is None:
        return every
    kept = [tuple(row) for row in pairs.tolist()] if pairs.ndim == 2 else []
    if not kept or not set(kept) <= set(every) or len(set(kept)) < len(kept):
        raise ValueError(
            f"pairs must be (p, 2), distinct pairs of {nq} query and {nk} key clusters, got "
            f"{pairs.tolist()}"
        )
    return [pair for pair in every if pair in kept]


def _diagonal(
    query_center: Tensor, key_center: Tensor, complex_a: bool, a_limits: tuple[float, float]
) -> Tensor:
    """Return A (d,) of a pair of centres."""
    floor, cap = a_limits
    return optimal_diagonal(query_center, key_center, complex_a=complex_a, floor=floor, cap=cap)


def _nearest(u: Tensor, centers: Tensor) -> Tensor:
    """Return the index of the nearest centre: (..., d) -> (...)."""
    return (u.unsqueeze(-2) - centers).square().sum(-1).argmin(-1)


def _weight_moments(
    x: Tensor, y: Tensor, diagonals: Tensor, n: int, scale: float, features: str
) -> Tensor:
    """Return E[w_k w_l] of p coefficients with shared vectors and of the remaining weight: (...,
    p+1, p+1).

    L_k estimates K_k = exp(-|u_k - w_k|^2/2) with u = B x/t and w = -S B^-1 y/t, B = |A| and S the
    signs of A^2. Cov(L_k, L_l) is K_k K_l (exp(z_k.z_l) - 1)/n with z = u + w for positive
    features, and K_k K_l (cosh(z_k.z_l) - 1)/n with z = u - w for trig ones.
    """
    modulus = diagonals.abs().to(x)
    sign = torch.where(diagonals.imag != 0, -1.0, 1.0) if diagonals.is_complex() else 1.0
    u = x.unsqueeze(-2) * modulus / scale
    w = -y.unsqueeze(-2) * sign / modulus / scale
    value = gaussian(u, w)
    z = u + w if features == "positive" else u - w
    product = z @ z.mT
    log_both = -0.5 * (u - w).square().sum(-1)
    log_both = log_both.unsqueeze(-1) + log_both.unsqueeze(-2)
    if features == "positive":
        covariance = (log_both + product.clamp(min=0)).exp() * scaled_expm1(product)
    else:
        size = product.abs()
        covariance = (log_both + size).exp() * (-size).expm1().square() / 2
    moments = value.unsqueeze(-1) * value.unsqueeze(-2) + covariance / n
    mixed = value - moments.sum(-1)
    rest = 1 - value.sum(-1) - mixed.sum(-1)
    upper = torch.cat((moments, mixed.unsqueeze(-1)), -1)
    lower = torch.cat((mixed, rest.unsqueeze(-1)), -1).unsqueeze(-2)
    return torch.cat((upper, lower), -2)


def _covariances(
    x: Tensor, y: Tensor, diagonals: list[Tensor], default_base: str, kernel: str
) -> Tensor:
    """Return the covariances of the bases of the pairs and the default base for one shared
    projection: (..., p+1, p+1)."""
    bases: list[tuple[Tensor | complex, ...]] = [(A,) for A in diagonals]
    bases.append(_DEFAULT_BASES[default_base])
    rows = []
    for first in bases:
        row = []
        for second in bases:
            terms = [
                complex_exponential_covariance(x, y, A, B, kernel) for A in first for B in second
            ]
            row.append(torch.stack(terms).mean(0))
        rows.append(torch.stack(row, -1))
    return torch.stack(rows, -2)
