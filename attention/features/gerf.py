"""Generalised exponential random features.

f1(u) = D exp(A|omega|^2 + B omega.u - s|u|^2/2), f2(u) = D exp(A|omega|^2 + s B omega.u - s|u|^2/2)
for the softmax kernel, with s = 1 or -1, B = sqrt(s(1-4A)), D = (1-4A)^(d/4), principal roots
(Chefs' Random Tables eqs 4 and 5); the estimate is the mean of Re(f1(x) f2(y)). A = 0 gives
positive features for s = 1 and trigonometric ones for s = -1. The variance is finite for a real
part of A below 1/8.
"""

from collections.abc import Sequence
from typing import Self, Unpack

import torch
from torch import Tensor

from attention.features.complex_valued import ComplexFeatures
from attention.features.map_options import MapOptions
from attention.features.oprf import oprf_affine
from attention.features.parameters import (
    average,
    given_numbers,
    given_parameter,
    holds,
    shape_parameter,
)
from attention.features.vectors import sums_by_vector
from attention.theory.optimal import gerf_parameter, mean_square_of_sums, oprf_parameter


class GerfFeatures(ComplexFeatures):
    """Generalised exponential features: F = m, positive, for s = 1 and real A; otherwise F = 2m,
    signed.

    Args:
        dim, num_features: d and m.
        A: a number or (heads,), with a real part below 1/4; a complex type gives complex features.
            None is 0 until `fit` sets it; `fit` does not change a given A.
        s: 1 or -1.
        options: options of every map, see `MapOptions`.

    Raises ValueError for another s, and for an A out of range, of another shape or not finite.
    """

    A_real: Tensor
    """() or (heads, 1, 1)"""
    A_imag: Tensor | None
    """Like A_real, or None for real A."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        A: complex | Sequence[complex] | Tensor | None = None,
        s: int = 1,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        if s not in (1, -1):
            raise ValueError(f"s must be 1 or -1, got {s}")
        number = given_numbers("A", 0.0 if A is None else A, real=False)
        real = given_parameter("A", number.real, self.heads)
        if not holds(real < 0.25):
            raise ValueError(f"A must have a real part below 1/4, got {A}")
        imaginary = given_parameter("A", number.imag, self.heads) if number.is_complex() else None
        self.s = s
        self._given = A is not None
        self.signed = s == -1 or imaginary is not None
        self.functions_per_projection = 2 if self.signed else 1
        self.norm_exponent = -float(s)
        self.register_buffer("A_real", real.to(self.omega))
        self.register_buffer("A_imag", None if imaginary is None else imaginary.to(self.omega))

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set A, unless given, to the optimal real A for the mean of |x_i + s y_j|^2, in O(Ld).

        x (..., Lx, d) and y (..., Ly, d); the mean is over tokens and leading dimensions,
        separately for each head. In causal attention this uses future tokens: fit on other data.

        Raises ValueError if the data has no tokens or is not finite.
        """
        x, y = self._data(x, y, self.A_real)
        if not self._given:
            square = average(mean_square_of_sums(x, y, self.s), self.heads)
            optimum = oprf_parameter if self.s == 1 else gerf_parameter
            self.A_real.copy_(shape_parameter(optimum(square, self.dim), self.heads))
        return self

    def logarithms(self, u: Tensor, omega: Tensor, key: bool) -> tuple[Tensor, Tensor | None]:
        a = self.A_real.to(u.dtype)
        if self.A_imag is not None:
            return self._complex(u @ omega.mT, omega, a, self.A_imag.to(u.dtype), key)
        weight, bias = oprf_affine(omega, a)
        projections = u @ weight.mT
        if self.s == 1:
            return projections + bias, None
        phase = -projections if key else projections
        return bias.expand_as(phase), phase

    def _complex(
        self, projections: Tensor, omega: Tensor, a: Tensor, b: Tensor, key: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute log-moduli and phases from omega.u for A = a + ib, in real arithmetic."""
        real, imaginary = 1 - 4 * a, -4 * b
        modulus = torch.hypot(real, imaginary)
        half_angle = 0.5 * torch.atan2(self.s * imaginary, self.s * real)
        # The key's B is s B.
        scale = modulus.sqrt() * (self.s if key else 1)
        squares = sums_by_vector(omega.square())
        quarter = self.dim / 4
        log_modulus = a * squares + quarter * modulus.log()
        phase = b * squares + quarter * torch.atan2(imaginary, real)
        return (
            log_modulus + scale * half_angle.cos() * projections,
            phase + scale * half_angle.sin() * projections,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, s={self.s}"
