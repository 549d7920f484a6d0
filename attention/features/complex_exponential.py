"""Complex exponential features with a matrix A for which the error vanishes at the data.

With u = A x for queries and w = A^-T y for keys, and squares without conjugates, the features are
exp(-u.u/2) / sqrt(m) [exp(omega_i.u)], and likewise for w, for the softmax kernel; the estimate is
the real part of their product, since u.w = x.y (Hybrid Random Features eqs 4 to 7). A = I gives
positive features, A = iI trigonometric ones. The error is zero at pairs with A x = -A^-T y.
"""

from collections.abc import Sequence
from typing import Self, Unpack

import torch
from torch import Tensor

from attention.features.cluster_diagonal import cluster_diagonal
from attention.features.complex_valued import ComplexFeatures
from attention.features.map_options import MapOptions
from attention.features.parameters import average, given_numbers
from attention.theory.complex_exponential import check_invertible

CAP = 10.0
"""Largest |A_kk| that `fit` sets, and the inverse of the smallest."""


class ComplexExponentialFeatures(ComplexFeatures):
    """Complex exponential features: F = m, positive, for real A; otherwise F = 2m, signed.

    Args:
        dim, num_features: d and m.
        A: (d,) for a diagonal, or (d, d), invertible, real or complex, shared by all heads; a
            number is that multiple of I. None is I until `fit` sets a diagonal per head; `fit` does
            not change a given A.
        complex_a: whether a diagonal that `fit` sets may have imaginary entries.
        options: options of every map, see `MapOptions`.

    Raises ValueError for an A of another shape, not finite or without an inverse.
    """

    norm_exponent = 0.0

    A_real: Tensor
    """(d,), (heads, 1, d) or (d, d)"""
    A_imag: Tensor | None
    """Like A_real, or None for real A."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        A: Tensor | Sequence[complex] | complex | None = None,
        complex_a: bool = True,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        self._given = A is not None
        if A is None:
            shape = (dim,) if self.heads is None else (self.heads, 1, dim)
            wide = torch.complex64 if complex_a else torch.float32
            matrix = torch.ones(shape, dtype=wide, device="cpu")
        else:
            matrix = _given_matrix(A, dim)
        self.diagonal = A is None or matrix.ndim == 1
        self.signed = matrix.is_complex()
        self.functions_per_projection = 2 if self.signed else 1
        self.register_buffer("A_real", matrix.real.to(self.omega, copy=True))
        imaginary = matrix.imag.to(self.omega, copy=True) if self.signed else None
        self.register_buffer("A_imag", imaginary)

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set A, unless given, to the diagonal of `cluster_diagonal` for queries and keys.

        x (..., Lx, d) and y (..., Ly, d). The tighter the two clusters, the smaller the error at
        their centres, except for entries clamped to [1/CAP, CAP]. Data centred at 0 get the real A
        that balances their scales. Means are over tokens and leading dimensions, separately for
        each head.

        Raises ValueError if the data has no tokens or is not finite.
        """
        x, y = self._data(x, y, self.A_real)
        if not self._given:
            moments = []
            for u in (x, y):
                moments.append(average(u.mean(-2), self.heads, 1))
                moments.append(average(u.square().mean(-2), self.heads, 1).sqrt())
            moduli, imaginary = cluster_diagonal(
                *moments, complex_a=self.signed, floor=1 / CAP, cap=CAP
            )
            shape = self.A_real.shape
            self.A_real.copy_(moduli.masked_fill(imaginary, 0).reshape(shape))
            if self.A_imag is not None:
                self.A_imag.copy_(moduli.masked_fill(~imaginary, 0).reshape(shape))
        return self

    def logarithms(self, u: Tensor, omega: Tensor, key: bool) -> tuple[Tensor, Tensor | None]:
        real, imaginary = self._transformed(u, key)
        log_modulus = real @ omega.mT - 0.5 * real.square().sum(-1, keepdim=True)
        if imaginary is None:
            return log_modulus, None
        log_modulus = log_modulus + 0.5 * imaginary.square().sum(-1, keepdim=True)
        return log_modulus, imaginary @ omega.mT - (real * imaginary).sum(-1, keepdim=True)

    def _transformed(self, u: Tensor, key: bool) -> tuple[Tensor, Tensor | None]:
        """Return the real and imaginary parts of A u, or of A^-T u for keys."""
        real = self.A_real.to(u.dtype)
        imaginary = None if self.A_imag is None else self.A_imag.to(u.dtype)
        if self.diagonal:
            if key:
                real, imaginary = _inverse_of_entries(real, imaginary)
            return u * real, None if imaginary is None else u * imaginary
        if key:
            real, imaginary = _inverse(real, imaginary)
            return u @ real, None if imaginary is None else u @ imaginary
        return u @ real.mT, None if imaginary is None else u @ imaginary.mT


def _given_matrix(A: Tensor | Sequence[complex] | complex, dim: int) -> Tensor:
    """Return A as (d,) or (d, d) in float64 or complex128. Raises ValueError unless it is
    invertible."""
    matrix = given_numbers("A", A, real=False)
    matrix = matrix.expand(dim) if matrix.ndim == 0 else matrix
    if not matrix.is_meta:
        check_invertible(matrix, dim)
    return matrix


def _inverse_of_entries(real: Tensor, imaginary: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if imaginary is None:
        return 1 / real, None
    square = real.square() + imaginary.square()
    return real / square, -imaginary / square


def _inverse(real: Tensor, imaginary: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Invert a matrix; a complex matrix via [[R, -I], [I, R]], in real arithmetic."""
    if imaginary is None:
        return torch.linalg.inv(real), None
    d = real.shape[-1]
    blocks = torch.cat((torch.cat((real, -imaginary), -1), torch.cat((imaginary, real), -1)), -2)
    inverse = torch.linalg.inv(blocks)
    return inverse[:d, :d], inverse[d:, :d]
