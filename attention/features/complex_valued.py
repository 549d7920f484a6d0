"""Maps with complex features, written as real maps.

Re(sum_i f_i(x) g_i(y)) = [Re f(x), Im f(x)].[Re g(y), -Im g(y)]: a plain product without conjugate
(Hybrid Random Features section 2.3, Chefs' Random Tables section 3.1). Features are kept as
logarithms until the last step, so only the result can overflow.
"""

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features.base import (
    FeatureMap,
    LogFeatures,
    ScaledFeatures,
    scaled_exp,
    scaled_token_scores,
)
from attention.features.projected import ProjectedFeatures
from attention.norms import half_squares
from attention.precision import full_precision


class TwoSided(FeatureMap):
    """Base class of maps whose queries and keys have different features; `key` selects the side."""

    def _features(self, u: Tensor, key: bool) -> Tensor:
        """(..., d) -> (..., F)"""
        raise NotImplementedError

    def _scaled_features(self, u: Tensor, key: bool) -> ScaledFeatures:
        """(..., L, d) -> features with a separate scale."""
        raise NotImplementedError

    def _log_features(self, u: Tensor, key: bool) -> LogFeatures | None:
        """(..., L, d) -> logarithms of the features, if the map is positive."""
        raise NotImplementedError

    def queries(self, x: Tensor) -> Tensor:
        return self._features(x, key=False)

    def keys(self, y: Tensor) -> Tensor:
        return self._features(y, key=True)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        return self._scaled_features(x, key=False)

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        return self._scaled_features(y, key=True)

    def log_queries(self, x: Tensor) -> LogFeatures | None:
        return self._log_features(x, key=False)

    def log_keys(self, y: Tensor) -> LogFeatures | None:
        return self._log_features(y, key=True)

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Like `FeatureMap.token_scores`, from scaled features.

        With |A_k| far from 1, single features overflow where their products with keys do not.
        """
        return scaled_token_scores(self.scaled_queries(x), self.scaled_keys(y))


class ComplexFeatures(TwoSided, ProjectedFeatures):
    """Base class of exponentials of complex projections: F = 2m, signed, or F = m, positive,
    without a phase.

    A subclass defines `norm_exponent` and `logarithms`. Queries and keys may differ.
    """

    omega: Tensor
    """(m, d) or (heads, m, d); these maps are not used in hybrids that supply the vectors."""

    def logarithms(self, u: Tensor, omega: Tensor, key: bool) -> tuple[Tensor, Tensor | None]:
        """Return log-moduli and phases (..., m) of the features of u (..., d) as a query or as a
        key.

        The log-weight is not included. The phases are None for a real, positive map.
        """
        raise NotImplementedError

    def _parts(self, u: Tensor, key: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return log-moduli, phases and the log-weight (..., 1) of a token."""
        u = self.prepare("queries and keys", u, self.omega)
        with component(PROJECTION), full_precision(u):
            log_modulus, phase = self.logarithms(u, self.omega.to(u.dtype), key)
            return log_modulus, phase, self.log_weight(half_squares(u))

    def _features(self, u: Tensor, key: bool) -> Tensor:
        log_modulus, phase, log_weight = self._parts(u, key)
        with component(EXPONENTIALS):
            return real_form((log_modulus + log_weight).exp(), phase, key)

    def _log_features(self, u: Tensor, key: bool) -> LogFeatures | None:
        if self.signed:
            return None
        log_modulus, _, log_weight = self._parts(u, key)
        return LogFeatures(log_modulus, log_weight)

    def _scaled_features(self, u: Tensor, key: bool) -> ScaledFeatures:
        log_modulus, phase, log_weight = self._parts(u, key)
        with component(EXPONENTIALS):
            modulus, log_scale = scaled_exp(log_modulus)
            return ScaledFeatures(real_form(modulus, phase, key), log_weight + log_scale)


def real_form(modulus: Tensor, phase: Tensor | None, key: bool) -> Tensor:
    """[Re f, Im f] of f = modulus exp(i phase), [Re f, -Im f] for keys: (..., m) -> (..., 2m)."""
    if phase is None:
        return modulus
    sine = -phase.sin() if key else phase.sin()
    return torch.cat((modulus * phase.cos(), modulus * sine), -1)
