"""Mean squared errors of generalised exponential features (GERF), including OPRF (FAVOR++).

Chefs' Random Tables, Theorems 3.2 and 3.3, and 4.2 in a corrected form. The result for coupled rows
is derived here: if lengths are independent of directions, pair moments do not depend on A, since
the expectation over a length does not. Coupling therefore contributes the same as for A = 0.
"""

import torch
from torch import Tensor

from attention.conversion import Numbers, as_vectors
from attention.kernels import check_kernel
from attention.options import check_count, check_positive
from attention.theory import base
from attention.theory.optimal import gerf_parameter, oprf_parameter
from attention.theory.special import scaled_expm1


def gerf(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    A: complex | Tensor | None = None,
    s: int = 1,
) -> Tensor:
    """Mean squared error of GERF: (..., d), (..., d) -> (...). A is real or complex, a number or
    (...); default: the real optimum.

    With w2 = |x + s y|^2, p = d log((1-4A)/sqrt(1-8A)) + s w2/(1-8A) and its real counterpart q,
    MSE = KG^2 (Re(exp p)/2 + exp(q)/2 - 1) / m for the Gaussian kernel and independent rows.

    Raises ValueError unless s is 1 or -1 and the real part of A is below 1/8.
    """
    if s not in (1, -1):
        raise ValueError(f"s must be 1 or -1, got {s}")
    of, dim = base.lengths(x, y), x.shape[-1]
    square = of.plus if s == 1 else of.minus
    if A is None:
        A = oprf_parameter(square, dim) if s == 1 else gerf_parameter(square, dim)
    real, imaginary = _parts(A, square)
    if bool((real >= 1 / 8).any()):
        raise ValueError(f"A must have a real part below 1/8 for a finite error, got {A}")
    p, phase, q, mean = _exponents(real, imaginary, square, dim, s)
    log_kernel_square = base.log_weight(of, kernel) - of.minus
    # (exp p + exp q)/2 - 1 = (exp((p+q)/2) - 1) + exp(max) (1 - exp(-|p-q|/2))^2 / 2.
    largest = torch.maximum(p, q)
    spread = (-(p - q).abs() / 2).expm1().square() / 2
    pairs = base.mean_covariance(projection, s * square, m, dim, even=s == -1)
    # The weight of cosines is KG^2 exp(|x-y|^2).
    log_pairs = torch.zeros_like(square) if s == 1 else square
    # A common factor for all terms, so that no infinities cancel; the error does not depend on it.
    top = torch.maximum(largest, log_pairs).clamp(min=0).detach()
    single = (
        (mean.clamp(min=0) - top).exp() * scaled_expm1(mean)
        + (largest - top).exp() * spread
        - (p - top).exp() * (phase / 2).sin().square()
    )
    pairs = (log_pairs - top).exp() * pairs
    return base.times_exp(single / m + pairs, log_kernel_square + top)


def oprf(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    A: float | Tensor | None = None,
) -> Tensor:
    """Mean squared error of GERF with s = 1 and real A < 1/8; default: the optimum for each pair
    (Theorem 3.3).

    Raises ValueError for a complex A.
    """
    if isinstance(A, complex) or (isinstance(A, Tensor) and A.is_complex()):
        raise ValueError(f"A of oprf must be real (gerf takes a complex one), got {A}")
    return gerf(x, y, m, projection, kernel, A=A)


def _parts(A: complex | Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(A, Tensor):
        real, imaginary = (A.real, A.imag) if A.is_complex() else (A, torch.zeros_like(A))
        return real.to(like), imaginary.to(like)
    number = complex(A)
    return like.new_tensor(number.real), like.new_tensor(number.imag)


def _exponents(
    real: Tensor, imaginary: Tensor, square: Tensor, dim: int, s: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the real part and phase of p and q: a1, a2 and a3, a4 of Theorem 3.2 without KG^2; and
    (p + q)/2."""
    below = 1 - 8 * real
    modulus = below.square() + 64 * imaginary.square()
    # (1-4A)^2 / (1-8A) = 1 + 16 A^2 / (1-8A), whose square root has a positive real part.
    a_real, a_imaginary = real.square() - imaginary.square(), 2 * real * imaginary
    w_real = 16 * (a_real * below - a_imaginary * 8 * imaginary) / modulus
    w_imaginary = 16 * (a_imaginary * below + a_real * 8 * imaginary) / modulus
    log_modulus = (2 * w_real + w_real.square() + w_imaginary.square()).log1p() / 2
    p = dim / 2 * log_modulus + s * below / modulus * square
    phase = dim / 2 * torch.atan2(w_imaginary, 1 + w_real) + s * 8 * imaginary / modulus * square
    size = real.square() + imaginary.square()
    a3 = dim / 2 * (16 * size / below).log1p()
    root = ((1 - 4 * real).square() + 16 * imaginary.square()).sqrt()
    q = a3 + (-s / 2 + (s + 2 * root) / (2 * below)) * square
    if s == 1:
        return p, phase, q, (p + q) / 2
    # For small A and s = -1 the multiples of w2 cancel except for this term.
    left = 64 * imaginary.square() / modulus + 16 * imaginary.square() / (root + 1 - 4 * real)
    mean = (dim / 2 * log_modulus + a3 + (left - 8 * real) / below * square) / 2
    return p, phase, q, mean


def oprf_tail_bound(
    x: Numbers, y: Numbers, num_features: int, error: float, A: float, *, kernel: str = "softmax"
) -> Tensor:
    """Bound on the probability that an OPRF estimate deviates from kernel(x, y) by `error` or more.

    (..., d), (..., d) -> (...). The bound holds for independent rows and A < 0, for which features
    are bounded: 0 <= f1 f2 <= (1-4A)^(d/2) exp(-(|x|^2+|y|^2)/(4A)) for the Gaussian kernel, and
    Hoeffding's inequality gives 2 exp(-2 m error^2 / bound^2) (Theorem 4.2 with (1-4A)^-d).

    Raises ValueError unless A < 0, error > 0 and num_features >= 1.
    """
    x, y = as_vectors(x=x, y=y)
    check_kernel(kernel)
    check_count("num_features", num_features)
    check_positive(error=error)
    if A >= 0:
        raise ValueError(f"A must be negative for a bounded feature, got {A}")
    of, dim = base.lengths(x, y), x.shape[-1]
    log_bound_square = dim * x.new_tensor(1 - 4 * A).log() - of.norms / (2 * A)
    log_bound_square = log_bound_square + base.log_weight(of, kernel)
    return 2 * (-2 * num_features * error**2 * (-log_bound_square).exp()).exp()
