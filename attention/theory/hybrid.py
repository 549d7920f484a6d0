"""Mean squared error of hybrids of any number of bases, and the cost of their features.

estimate = sum_k w_k S_k with sum_k w_k = 1 and weights independent of the bases (Hybrid Random
Features, eq 8). Since the weights sum to one, the error depends only on the errors of the bases:

    MSE = sum_kl E[w_k w_l] Cov(S_k, S_l)

(derived here), of which Theorems 3.1, D.1, F.1 and F.2 are special cases. Bases with separate
projections are uncorrelated; `shared_covariance` gives the covariances of bases that share
projections.
"""

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.options import check_two_of
from attention.theory import base as errors
from attention.theory.gerf import oprf
from attention.theory.optimal import oprf_parameter
from attention.theory.special import scaled_expm1

BASES = ("hyperbolic", "oprf", "positive", "trig")
"""Bases with a closed form in hybrids of two bases."""

_ONE_SIDED = ("oprf", "positive")


def hybrid_mse(weight_moments: Numbers, covariances: Numbers) -> Tensor:
    """Return sum_kl E[w_k w_l] Cov(S_k, S_l): (..., p+1, p+1), (..., p+1, p+1) -> (...).

    Args:
        weight_moments: E[w_k w_l]; the last weight is one minus the p coefficients.
        covariances: covariances of the bases, with their errors on the diagonal.

    Raises ValueError unless both are square and of one size.
    """
    weight_moments, covariances = as_numbers(weight_moments=weight_moments, covariances=covariances)
    sizes = {*weight_moments.shape[-2:], *covariances.shape[-2:]}
    if weight_moments.dim() < 2 or covariances.dim() < 2 or len(sizes) != 1:
        raise ValueError(
            "weight_moments and covariances must be (..., p+1, p+1) with one p, got "
            f"{tuple(weight_moments.shape)} and {tuple(covariances.shape)}"
        )
    # A base with zero weight does not count even if its error overflows, and vice versa.
    unused = (weight_moments == 0) & covariances.isinf()
    exact = (covariances == 0) & weight_moments.isinf()
    terms = weight_moments.masked_fill(exact, 0.0) * covariances.masked_fill(unused, 0.0)
    # Mixed terms may be minus infinity, but only where diagonal terms overflow too.
    own = terms.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.where(own.isinf(), own, terms.sum((-2, -1)))


def bipolar_mse(
    name: str,
    moments: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str | tuple[str, str],
    kernel: str,
    *,
    base: tuple[str, str],
    shared_projections: bool,
    A: float | Tensor | None,
) -> Tensor:
    """Return the error of L S1 + (1 - L) S2: (..., d), (..., d) -> (...) (Theorem 3.1).

    Args:
        name: name of the hybrid in error messages.
        moments: E[L^2], E[(1-L)^2] and E[L(1-L)], each (...).
        base: S1 and S2, two of `BASES`.
        shared_projections: whether both bases use the same iid rows; otherwise they have separate
            rows, coupled by `projection`, one name or one per base.
        A: parameter of an oprf base, below 1/8; default: the optimum for each pair.

    Raises ValueError for other bases and for coupled shared rows.
    """
    check_two_of("base", base, BASES)
    if shared_projections and projection != "iid":
        raise ValueError(
            f"{name} with shared projections has a closed form for projection='iid' only, "
            f"got {projection!r}"
        )
    first, second, mixed = moments
    couplings = (projection, projection) if isinstance(projection, str) else projection
    own = [
        base_mse(part, x, y, m, coupling, kernel, A=A)
        for part, coupling in zip(base, couplings, strict=True)
    ]
    if shared_projections:
        between = shared_covariance(base[0], base[1], x, y, kernel, A=A) / m
    else:
        between = torch.zeros_like(own[0])
    return hybrid_mse(_symmetric(first, mixed, second), _symmetric(own[0], between, own[1]))


def base_mse(
    name: str,
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    A: float | Tensor | None = None,
) -> Tensor:
    """Return the error of one of `BASES`, (..., d), (..., d) -> (...); A as in `bipolar_mse`."""
    if name == "oprf":
        return oprf(x, y, m, projection, kernel, A=A)
    error = {"hyperbolic": errors.hyperbolic, "positive": errors.positive, "trig": errors.trig}
    return error[name](errors.lengths(x, y), m, projection, x.shape[-1], kernel)


def shared_covariance(
    first: str,
    second: str,
    x: Numbers,
    y: Numbers,
    kernel: str = "softmax",
    *,
    A: float | Tensor | None = None,
) -> Tensor:
    """Return the covariance of two of `BASES` for a shared projection: (..., d), (..., d) -> (...).

    Gaussian integrals of exp(A_k |omega|^2 + B_k omega.z_k), B_k = sqrt(1 - 4 A_k), with z = x + y
    for the exponentials (A = 0 except for oprf) and z = i (x - y), A = 0 for trig. For trig and an
    exponential with A = 0 it is SM^2 (cos(|x|^2 - |y|^2) - 1), as in Theorem 3.1.

    Raises ValueError for other bases and for A >= 1/8.
    """
    x, y = as_vectors(x=x, y=y)
    if not {first, second} <= set(BASES):
        raise ValueError(f"bases must be of {', '.join(BASES)}, got {first!r} and {second!r}")
    of = errors.lengths(x, y)
    log_kernel_square = errors.log_weight(of, kernel) - of.minus
    a_1, a_2 = (_quadratic(name, of, x.shape[-1], A) for name in (first, second))
    k = 1 - 4 * (a_1 + a_2)
    if first == second == "trig":
        constant, slope = torch.zeros_like(k), of.minus
    elif "trig" in (first, second):
        constant = of.minus * (k - 1) / (2 * k)
        phase = (x.square().sum(-1) - y.square().sum(-1)) / k.sqrt()
        # cos(a) - 1 = -2 sin^2(a/2), exact near equal lengths.
        oscillation = 2 * (phase / 2).sin().square()
        top = constant.clamp(min=0).detach()
        terms = _scaled_excess(constant, top) - (constant - top).exp() * oscillation
        return errors.times_exp(terms, log_kernel_square + top)
    else:
        constant = x.shape[-1] / 2 * (16 * a_1 * a_2 / k).log1p() + of.plus * (1 - k) / (2 * k)
        slope = of.plus * ((1 - 4 * a_1) * (1 - 4 * a_2)).sqrt() / k
        if first in _ONE_SIDED and second in _ONE_SIDED:
            exponent = constant + slope
            return errors.times_exp(
                scaled_expm1(exponent), log_kernel_square + exponent.clamp(min=0)
            )
    # The mean over both signs of the slope; cosh(a) - 1 = exp(a) (1 - exp(-a))^2 / 2.
    top = (constant + slope).clamp(min=0).detach()
    curvature = (constant + slope - top).exp() * (-slope).expm1().square() / 2
    return errors.times_exp(_scaled_excess(constant, top) + curvature, log_kernel_square + top)


def hybrid_multiplications(
    m: int,
    n: int,
    dim: int,
    *,
    functions: tuple[int, ...] = (2, 2),
    lambda_functions: tuple[int, ...] = (1,),
) -> int:
    """Return the number of multiplications for the hybrid features of one token (Hybrid Random
    Features, section L).

    (t_1 + .. + t_{p+1}) m d + (l_1 + .. + l_p) n d + m n sum_k l_k (t_k + t_{p+1}). A product of
    projections is counted for every function, although functions of one projection can share it.

    Args:
        functions: t_k, number of functions of each projection of base k: 2 for trig and hyperbolic,
            1 for positive and oprf. The last base has the weight one minus the coefficients.
        lambda_functions: l_k, the same for coefficient k: 1 for the angular, 2 for the Gaussian
            coefficient.

    Raises ValueError unless there is one more base than coefficients.
    """
    if len(functions) != len(lambda_functions) + 1:
        raise ValueError(
            "functions must have one entry more than lambda_functions, got "
            f"{len(functions)} and {len(lambda_functions)}"
        )
    pairs = zip(functions, lambda_functions, strict=False)
    products = sum(count * (own + functions[-1]) for own, count in pairs)
    return sum(functions) * m * dim + sum(lambda_functions) * n * dim + m * n * products


def _quadratic(name: str, of: errors.Lengths, dim: int, A: float | Tensor | None) -> Tensor:
    """Return A of the base: 0 except for oprf, whose default is the optimum for each pair."""
    if name != "oprf":
        return torch.zeros_like(of.plus)
    if A is None:
        return oprf_parameter(of.plus, dim)
    given = torch.as_tensor(A, dtype=of.plus.dtype, device=of.plus.device)
    if not bool((given < 0.125).all()):
        raise ValueError(f"A must be less than 1/8 for a finite variance, got {A}")
    return given.expand_as(of.plus)


def _symmetric(first: Tensor, mixed: Tensor, second: Tensor) -> Tensor:
    """Return [[first, mixed], [mixed, second]] in the last two dimensions."""
    entries = torch.broadcast_tensors(first, mixed, mixed, second)
    return torch.stack(entries, -1).unflatten(-1, (2, 2))


def _scaled_excess(exponent: Tensor, top: Tensor) -> Tensor:
    """Return (exp(exponent) - 1) exp(-top), elementwise, for top >= exponent and top >= 0."""
    return scaled_expm1(exponent) * (exponent.clamp(min=0) - top).exp()
