"""Maps whose features are complex, as real maps.

Re(sum_i f_i(x) g_i(y)) = [Re f(x), Im f(x)].[Re g(y), -Im g(y)]: a plain product, no conjugate
(Hybrid Random Features section 2.3, Chefs' Random Tables section 3.1). Features stay logarithms
until the last step, so only the result can overflow.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, component
from attention.features.base import ScaledFeatures
from attention.features.projected import ProjectedFeatures


class Exponents(NamedTuple):
    """log f = log_modulus + i phase + log_weight."""

    log_modulus: Tensor
    """(..., m)"""
    phase: Tensor | None
    """(..., m), or None for a real, positive map"""
    log_weight: Tensor
    """(..., 1)"""


class ComplexFeatures(ProjectedFeatures):
    """F = 2m and signed, or F = m and positive where no phase is; queries and keys may differ."""

    terms = 1

    def exponents(self, u: Tensor, key: bool) -> Exponents:
        """Logarithms of the features of u (..., d) as a query or as a key."""
        raise NotImplementedError

    def queries(self, x: Tensor) -> Tensor:
        return _features(self.exponents(x, key=False), key=False)

    def keys(self, y: Tensor) -> Tensor:
        return _features(self.exponents(y, key=True), key=True)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        return _scaled(self.exponents(x, key=False), key=False)

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        return _scaled(self.exponents(y, key=True), key=True)


def _features(exponents: Exponents, key: bool) -> Tensor:
    with component(EXPONENTIALS):
        modulus = (exponents.log_modulus + exponents.log_weight).exp()
        return _real(modulus, exponents.phase, key)


def _scaled(exponents: Exponents, key: bool) -> ScaledFeatures:
    with component(EXPONENTIALS):
        # Detached: the scale cancels wherever it is dropped, so it carries no gradient.
        largest = exponents.log_modulus.detach().amax(-1, keepdim=True)
        modulus = (exponents.log_modulus - largest).exp()
        return ScaledFeatures(_real(modulus, exponents.phase, key), exponents.log_weight + largest)


def _real(modulus: Tensor, phase: Tensor | None, key: bool) -> Tensor:
    if phase is None:
        return modulus
    sine = -phase.sin() if key else phase.sin()
    return torch.cat((modulus * phase.cos(), modulus * sine), -1)
