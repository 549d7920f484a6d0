"""Trigonometric features with random offsets.

psi(u) = exp(|u|^2/2) sqrt(2/m) [cos(omega_i.u + b_i)], b_i uniform on [0, 2 pi), for the softmax
kernel; without the exponential, for the Gaussian one, it is psi of On the Error of Random Fourier
Features. At equal F the sin/cos pairs of `trig` are better for both kernels: psi is not even exact
at x = y.
"""

import math
from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from attention.features.base import ScaledFeatures
from attention.features.map_options import MapOptions
from attention.features.parameters import beside, given_numbers, holds
from attention.features.projected import ProjectedFeatures


class TrigPhaseFeatures(ProjectedFeatures):
    """Trigonometric features with random offsets: F = m, signed.

    Args:
        dim, num_features: d and m.
        phase: the offsets b, (m,) or (heads, m). They are drawn if None.
        options: options of every map, see `MapOptions`.

    Raises ValueError for a phase of another shape, complex or not finite.
    """

    signed = True
    functions_per_projection = 1
    norm_exponent = 1.0

    phase: Tensor
    """b, (m,) or (heads, 1, m)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        phase: Tensor | Sequence[float] | None = None,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        self._phase_given = phase is not None
        if phase is not None:
            shape = (num_features,) if self.heads is None else (self.heads, num_features)
            offsets = given_numbers("phase", phase)
            if offsets.shape != shape:
                raise ValueError(
                    f"phase must have shape {shape}, got a tensor of shape {tuple(offsets.shape)}"
                )
            if not holds(offsets.isfinite()):
                raise ValueError("phase must be finite, got a non-finite entry")
            self.phase.copy_(offsets.reshape(self.phase.shape))

    def affine(self, omega: Tensor) -> tuple[Tensor, Tensor | None]:
        return omega, self.phase.to(omega.dtype)

    def evaluate(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        return projections.cos() * log_weight.exp()

    def evaluate_scaled(
        self, projections: Tensor, log_weight: Tensor, dim: int = -1
    ) -> ScaledFeatures:
        return ScaledFeatures(projections.cos(), log_weight)

    def log_weight(self, half_square: Tensor) -> Tensor:
        return super().log_weight(half_square) + 0.5 * math.log(2)

    def redraw(self, generator: torch.Generator) -> None:
        if self._phase_given:
            raise ValueError("redraw needs a map that drew its phase; this map was given a phase")
        super().redraw(generator)
        self.phase.copy_(self._phases(generator))

    def _draw_besides(
        self,
        generator: torch.Generator,
        dtype: torch.dtype | None,
        device: torch.device | str | None,
    ) -> None:
        place = beside(self.omega, dtype, device)
        self.register_buffer("phase", self._phases(generator).to(place))

    def _phases(self, generator: torch.Generator) -> Tensor:
        m = self.num_features
        shape = (m,) if self.heads is None else (self.heads, 1, m)
        uniform = torch.rand(
            shape, generator=generator, dtype=torch.float64, device=generator.device
        )
        return 2 * math.pi * uniform
