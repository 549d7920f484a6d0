"""Hybrids of any number of bases and coefficients, as one real, linear pair of maps.

With p + 1 unbiased bases S_k = phi^k_1(x).phi^k_2(y) and p coefficients
L_k = a_k + rho^k_1(x).rho^k_2(y),

    estimate = sum_k L_k S_k + (1 - sum_k L_k) S_{p+1}        (Hybrid Random Features eq 8)

is the product of (Lemma 2.3, with (x) the outer product of feature vectors)

    query: phi^k_1 (x) [1, rho^k_1]    k <= p,   phi^{p+1}_1 (x) [1, rho^1_1, ..., rho^p_1]
    key:   phi^k_2 (x) [a_k, rho^k_2]  k <= p,   phi^{p+1}_2 (x) [c, -rho^1_2, ..., -rho^p_2]

with c = 1 - sum_k a_k; columns whose constant is zero are left out. The estimate is unbiased for
any L_k that are independent of the S_k.
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from attention.components import EXPONENTIALS, component
from attention.features import FeatureMap, ScaledFeatures
from attention.hybrid.coefficient import Coefficient

Constant = float | Tensor


def compose(
    features: Sequence[Tensor],
    rho: Sequence[Tensor],
    constants: Sequence[Constant],
    last_sign: float = 1.0,
) -> Tensor:
    """Compute one side of the map: p + 1 features (..., L, T_k) and p rho (..., L, R_k) -> (..., L,
    F).

    `constants` are the p + 1 entries before the columns of rho; a float 0 omits its column.
    `last_sign` multiplies rho in the last base's block: 1 for queries, -1 for keys.
    """
    columns = [[rho_k] for rho_k in rho]
    columns.append([last_sign * rho_k for rho_k in rho])
    blocks = []
    for phi, constant, row in zip(features, constants, columns, strict=True):
        if _kept(constant):
            row = [torch.ones_like(phi[..., :1]) * constant, *row]
        blocks.append((phi.unsqueeze(-1) * torch.cat(row, -1).unsqueeze(-2)).flatten(-2))
    return torch.cat(blocks, -1)


def _kept(constant: Constant) -> bool:
    """Whether the column of a constant is part of the map, which it is unless it is known to be
    zero."""
    return isinstance(constant, Tensor) or constant != 0


class HybridFeatures(FeatureMap):
    """Hybrid of p + 1 bases: F = sum_k T_k (R_k + 1) + T_{p+1} (sum_k R_k + 1), minus omitted
    columns; signed.

    Args:
        bases: p + 1 feature maps of one dimension, kernel and number of heads; the last has the
            remaining weight. They may share their random vectors.
        coefficients: p, with random vectors independent of those of the bases.

    Raises:
        ValueError: if the numbers do not fit, or bases differ in dimension, kernel or heads.
    """

    signed = True

    bases: Sequence[FeatureMap]
    coefficients: Sequence[Coefficient]

    def __init__(self, bases: Sequence[FeatureMap], coefficients: Sequence[Coefficient]) -> None:
        if len(bases) < 2 or len(coefficients) != len(bases) - 1:
            raise ValueError(
                "coefficients must be one fewer than the bases, of which there are at least two, "
                f"got {len(coefficients)} for {len(bases)} bases"
            )
        first = bases[0]
        kinds = [(base.dim, base.kernel, base.heads) for base in bases]
        if set(kinds) != {kinds[0]}:
            raise ValueError(
                f"bases must agree in (dim, kernel, heads), got {', '.join(map(str, kinds))}"
            )
        super().__init__(first.dim, first.num_features, kernel=first.kernel, heads=first.heads)
        modules: tuple[Any, Any] = (nn.ModuleList(bases), nn.ModuleList(coefficients))
        self.bases, self.coefficients = modules

    @property
    def output_dim(self) -> int:
        widths = [coefficient.width for coefficient in self.coefficients]
        totals = [*widths, sum(widths)]
        return sum(
            base.output_dim * (width + _kept(constant))
            for base, width, constant in zip(self.bases, totals, self._constants(), strict=True)
        )

    def queries(self, x: Tensor) -> Tensor:
        features = [base.queries(x) for base in self.bases]
        return self._compose_queries(features, x)

    def keys(self, y: Tensor) -> Tensor:
        features = [base.keys(y) for base in self.bases]
        return self._compose_keys(features, y)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        features, log_scale = common_scale([base.scaled_queries(x) for base in self.bases])
        return ScaledFeatures(self._compose_queries(features, x), log_scale)

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        features, log_scale = common_scale([base.scaled_keys(y) for base in self.bases])
        return ScaledFeatures(self._compose_keys(features, y), log_scale)

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Fit every base and coefficient to queries x and keys y (..., d)."""
        for base in self.bases:
            base.fit(x, y)
        for coefficient in self.coefficients:
            coefficient.fit(x, y)
        return self

    def redraw(self, generator: torch.Generator) -> None:
        """Redraw the vectors of every base and coefficient, in order; bases then no longer share
        vectors."""
        for base in self.bases:
            base.redraw(generator)
        for coefficient in self.coefficients:
            coefficient.redraw(generator)

    def _constants(self) -> list[Constant]:
        """Return a_1, ..., a_p and c; c is summed exactly if all are floats."""
        constants: list[Constant] = [coefficient.constant for coefficient in self.coefficients]
        return [*constants, 1.0 - sum(constants)]

    def _compose_queries(self, features: Sequence[Tensor], x: Tensor) -> Tensor:
        rho = [coefficient.queries(x).to(features[0]) for coefficient in self.coefficients]
        with component(EXPONENTIALS):
            kept = [float(_kept(constant)) for constant in self._constants()]
            return compose(features, rho, kept)

    def _compose_keys(self, features: Sequence[Tensor], y: Tensor) -> Tensor:
        rho = [coefficient.keys(y).to(features[0]) for coefficient in self.coefficients]
        with component(EXPONENTIALS):
            return compose(features, rho, self._constants(), last_sign=-1.0)


def common_scale(parts: Sequence[ScaledFeatures]) -> tuple[list[Tensor], Tensor]:
    """Return features of several bases with a common log-scale per token, the largest of theirs."""
    log_scale = torch.stack([part.log_scale for part in parts]).amax(0)
    return [part.mantissa * (part.log_scale - log_scale).exp() for part in parts], log_scale
