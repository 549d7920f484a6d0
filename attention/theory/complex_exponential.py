"""Complex exponential features: error, covariances, and the optimal A for two centres.

Hybrid Random Features, section 2.3 and appendix H. With u = A x, w = A^-T y, z = u + w and squares
without conjugates, one projection gives Re(SM exp(omega.z - z.z/2)), with mean SM = exp(x.y). Two
of them with a shared projection have, in units of SM^2,

    E[S_A S_B] = Re(exp(z_A.z_B) + exp(z_A.conj(z_B))) / 2

(derived here). A = I is the positive map, A = i I the trigonometric map.
"""

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.theory import base
from attention.theory.special import scaled_expm1

A_FLOOR = 1e-2
"""Smallest |A_kk| of an optimal diagonal: where the key's centre is 0 the exact optimum would be
0."""
A_CAP = 1e2
"""Largest |A_kk|: where the query's centre is 0 the exact optimum would be infinite."""


def check_invertible(A: Tensor, dim: int) -> None:
    """Raise ValueError unless A is (d,), a diagonal, or (d, d), and invertible."""
    if tuple(A.shape) not in ((dim,), (dim, dim)):
        raise ValueError(f"A must have shape ({dim},) or ({dim}, {dim}), got {tuple(A.shape)}")
    if not bool(A.isfinite().all()):
        raise ValueError("A must be finite, got a non-finite entry")
    rank = int((A != 0).sum()) if A.dim() == 1 else int(torch.linalg.matrix_rank(A))
    if rank < dim:
        raise ValueError(f"A must be invertible, got rank {rank} with d = {dim}")


def complex_exponential(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    kernel: str = "softmax",
    *,
    A: Numbers,
) -> Tensor:
    """Mean squared error with independent rows: (..., d), (..., d) -> (...).

    Args:
        A: (d,) for a diagonal, or (d, d), real or complex; a number is that multiple of I.

    Raises ValueError for other couplings and for an A without an inverse.
    """
    if projection != "iid":
        raise ValueError(
            f"complex_exponential has a closed form for projection='iid' only, got {projection!r}"
        )
    return complex_exponential_covariance(x, y, A, A, kernel) / m


def complex_exponential_covariance(
    x: Numbers, y: Numbers, A: Numbers, B: Numbers, kernel: str = "softmax"
) -> Tensor:
    """Return Cov(S_A, S_B) for a shared projection: (..., d), (..., d) -> (...).

    With p, q, s and t the products of the real and imaginary parts of z, it is, in units of SM^2,

        exp(p) (cosh q cos s cos t + sinh q sin s sin t) - 1,

    computed from terms that vanish with z. Raises ValueError for an A or B without an inverse.
    """
    x, y = as_vectors(x=x, y=y)
    real_a, imaginary_a = _shift(x, y, A)
    real_b, imaginary_b = _shift(x, y, B)
    p, q = (real_a * real_b).sum(-1), (imaginary_a * imaginary_b).sum(-1)
    s, t = (real_a * imaginary_b).sum(-1), (imaginary_a * real_b).sum(-1)
    of = base.lengths(x, y)
    log_kernel_square = base.log_weight(of, kernel) - of.minus
    size = q.abs()
    # cosh q - 1 and sinh q, times exp(-|q|).
    even, odd = (-size).expm1().square() / 2, -(-2 * size).expm1() / 2 * q.sign()
    growth = even * s.cos() * t.cos() + odd * s.sin() * t.sin()
    oscillation = ((s + t) / 2).sin().square() + ((s - t) / 2).sin().square()
    # One factor for all terms, so that none is the product of infinity and zero.
    top = (p + size).clamp(min=0)
    terms = (
        (p.clamp(min=0) - top).exp() * scaled_expm1(p)
        + (p + size - top).exp() * growth
        - (p - top).exp() * oscillation
    )
    return base.times_exp(terms, log_kernel_square + top)


def complex_exponential_moment(
    x: Numbers, y: Numbers, A: Numbers, B: Numbers, kernel: str = "softmax"
) -> Tensor:
    """Return E[S_A S_B] for a shared projection: (..., d), (..., d) -> (...)."""
    x, y = as_vectors(x=x, y=y)
    of = base.lengths(x, y)
    kernel_square = (base.log_weight(of, kernel) - of.minus).exp()
    return kernel_square + complex_exponential_covariance(x, y, A, B, kernel)


def center_loss(x: Numbers, y: Numbers, A: Numbers) -> Tensor:
    """Return l(A) = |A x + A^-T y|^2, the squared modulus: (..., d), (..., d) -> (...) (eq 21).

    The error grows with l(A) and is zero exactly where l(A) is zero.
    """
    x, y = as_vectors(x=x, y=y)
    real, imaginary = _shift(x, y, A)
    return (real.square() + imaginary.square()).sum(-1)


def has_zero_variance(x: Numbers, y: Numbers, A: Numbers, tolerance: float = 0.0) -> Tensor:
    """Whether x = -A^-1 A^-T y, up to |A x + A^-T y| <= tolerance (eq 17): -> (...), bool."""
    return center_loss(x, y, A) <= tolerance**2


def optimal_diagonal(
    query_center: Numbers,
    key_center: Numbers,
    *,
    complex_a: bool = True,
    floor: float = A_FLOOR,
    cap: float = A_CAP,
) -> Tensor:
    """Return the diagonal A with the least l(A) at a pair of centres: (..., d), (..., d) -> (...,
    d).

    |A_kk| = sqrt(|r_jk / r_ik|), imaginary where the product r_ik r_jk is positive (eq 86 and 87):
    then l(A) = 0. A real A (eq 88) has l(A) = `least_real_loss`. Coordinates with one zero have no
    exact solution, and moduli are clamped to [floor, cap]; with two zeros A_kk = 1.

    Raises ValueError unless 0 < floor <= 1 <= cap.
    """
    query_center, key_center = as_vectors(query_center=query_center, key_center=key_center)
    if not 0 < floor <= 1 <= cap:
        raise ValueError(f"floor and cap must satisfy 0 < floor <= 1 <= cap, got {floor} and {cap}")
    neither = (query_center == 0) & (key_center == 0)
    ratio = (key_center / query_center).abs().masked_fill(neither, 1.0)
    modulus = ratio.sqrt().clamp(floor, cap)
    if not complex_a:
        return modulus
    imaginary = query_center * key_center > 0
    zero = torch.zeros_like(modulus)
    return torch.complex(
        torch.where(imaginary, zero, modulus), torch.where(imaginary, modulus, zero)
    )


def least_real_loss(query_center: Numbers, key_center: Numbers) -> Tensor:
    """Return the infimum of l(A) over real diagonal A: sum_k max(0, 4 r_ik r_jk), (..., d) ->
    (...)."""
    query_center, key_center = as_vectors(query_center=query_center, key_center=key_center)
    return (4 * query_center * key_center).clamp(min=0).sum(-1)


def _shift(x: Tensor, y: Tensor, A: Numbers) -> tuple[Tensor, Tensor]:
    """Return the real and imaginary parts of z = A x + A^-T y, each (..., d)."""
    _, matrix = as_numbers(x=x, A=A)
    dtype = x.dtype.to_complex() if matrix.is_complex() else x.dtype
    matrix = matrix.to(x.device, dtype)
    matrix = matrix.expand(x.shape[-1]) if matrix.ndim == 0 else matrix
    check_invertible(matrix, x.shape[-1])
    u, w = x.to(dtype), y.to(dtype)
    if matrix.dim() == 1:
        z = matrix * u + w / matrix
    else:
        z = u @ matrix.mT + torch.linalg.solve(matrix.mT, w.unsqueeze(-1)).squeeze(-1)
    return (z.real, z.imag) if z.is_complex() else (z, torch.zeros_like(z))
