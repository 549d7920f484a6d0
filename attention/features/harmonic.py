"""Harmonic features: the von Mises kernel of positions on a circle or a d-dimensional torus.

phi(u) = [sqrt(c_0), sqrt(2 c_n) cos(n.t), sqrt(2 c_n) sin(n.t), ...] / sqrt(1 - tail), with angles
t = 2 pi u / period, vectors n of integers, and c_n = prod_l exp(-kappa) I_{n_l}(kappa), the Fourier
coefficients of exp(sum_l kappa (cos(t_l) - 1)) (`attention.theory.harmonic`). The kernel is the
truncated series at x - y. The map is deterministic: it keeps the m frequencies of largest weight.
On a circle these are 1 to m; on a torus they form a disc and not a square, a sparse form of the
product of two circles.
"""

import math
from typing import Unpack

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features.base import ScaledFeatures
from attention.features.fixed import FixedFeatures
from attention.features.map_options import MapOptions
from attention.features.waves import multiples, waves
from attention.precision import full_precision
from attention.theory.harmonic import PerAxis, check_axes, harmonic_shares
from attention.tracing import is_for_onnx


class HarmonicFeatures(FixedFeatures):
    """Harmonic features: F = 2m + 1, signed, of length 1.

    Args:
        dim: d, the number of axes of the torus; 1 is a circle.
        num_features: m, the number of frequencies besides 0. See `attention.theory.harmonic_tail`.
        kappa: concentration, a number or one per axis. Positions closer than period / (2 pi
            sqrt(kappa)) are not distinguished.
        period: period of the positions, in the unit of queries and keys, a number or one per axis.
            By default positions are angles.
        options: as in `FixedFeatures`.

    Raises ValueError for numbers that are not positive or a projection that is not a coupling.
    """

    name = "harmonic"
    signed = True
    general = False  # queries and keys are positions on a torus

    frequencies: Tensor
    """n (d, m), integers."""
    weights: Tensor
    """(F,), weights of 1, the cosines and the sines."""
    period: Tensor
    """(d,)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kappa: PerAxis = 1.0,
        period: PerAxis = 2 * math.pi,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        self.kappa = check_axes("kappa", kappa, self.dim)
        frequencies, shares = harmonic_shares(self.num_features, self.kappa)
        roots = shares.sqrt()
        buffers = {
            "frequencies": frequencies.mT,
            "weights": torch.cat((roots, roots[1:])),
            "period": torch.tensor(check_axes("period", period, self.dim), dtype=torch.float64),
        }
        for name, numbers in buffers.items():
            # Not part of the state: they are determined by the settings.
            self.register_buffer(name, numbers.to(self.place).contiguous(), persistent=False)

    @property
    def output_dim(self) -> int:
        return 2 * self.num_features + 1

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries and keys", x, self.weights)
        alone = self.dim == 1 and x.dim() > 1 and is_for_onnx()
        with component(PROJECTION), full_precision(x):
            angles = self._angles(x.squeeze(-1).unsqueeze(-2) if alone else x)
            angles = angles if alone else angles @ self.frequencies
        with component(EXPONENTIALS):
            return multiples(angles, self.weights) if alone else waves(angles, self.weights)

    def shifted(self, sums: Tensor, by: Tensor) -> Tensor:
        """Translate sums over keys (..., F, n): phi(x)^T translated is exactly phi(x + by)^T sums.
        A translation rotates each harmonic by its angle.

        by (..., d) broadcasts with the leading dimensions of the sums.
        """
        by = self.prepare("places", by, self.weights)
        with component(PROJECTION), full_precision(by):
            angles = (self._angles(by) @ self.frequencies).unsqueeze(-1)
        with component(EXPONENTIALS):
            cosines, sines = angles.cos(), angles.sin()
        count = self.num_features
        constant, even, odd = sums.split((1, count, count), -2)
        even, odd = even * cosines + odd * sines, odd * cosines - even * sines
        return torch.cat((constant.expand(*even.shape[:-2], 1, -1), even, odd), -2)

    def _angles(self, x: Tensor) -> Tensor:
        """Angles of positions, in radians from -pi to pi: multiples of whole turns would lose
        digits."""
        turns = x / self.period
        return (turns - turns.detach().round()) * (2 * math.pi)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        features = self.queries(x)
        return ScaledFeatures(features, torch.zeros_like(features[..., :1]))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, kappa={self.kappa}, period={self.period.tolist()}"
