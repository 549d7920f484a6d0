"""Products of decay factors over tokens or frames, exact from 0 to 1 and with exact gradients.

A factor is d = m 2^e with an integer e and m in (0.5, 1]; 0 is 0 times 2^0. The exponents enter the
log-scales of sums: they are integers, so differences of their cumulative sums are exact. The
mantissas m are multiplied, so that a factor of 0 needs no logarithm. Differences of cumulative sums
of log d would lose the digits of all factors that follow a small one, and its gradient.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attention.options import is_real
from attention.precision import lowest
from attention.products import Features, exponential
from attention.tracing import is_exporting, known

LARGEST = 20.0
"""Largest log of a weight: above 0 where the factor is 0, for its gradient alone."""


class Factor(NamedTuple):
    """A factor m exp(log_scale) of sums; entries (..., 1, 1)."""

    mantissa: Tensor
    log_scale: Tensor

    def after(self, log_scale: Tensor) -> Tensor:
        """Return the scale of decayed sums; the lowest where the factor is 0."""
        return (log_scale + self.log_scale).masked_fill(self.mantissa == 0, lowest(log_scale.dtype))


def factor(decay: Tensor) -> Factor:
    """Split a decay (..., 1, 1) from 0 to 1 into its mantissa and the log of a power of two."""
    mantissa, exponent = _split(decay)
    return Factor(mantissa, exponent * math.log(2))


def _split(decay: Tensor) -> tuple[Tensor, Tensor]:
    """Return m and e with decay = m 2^e; e has no gradient."""
    decay = without_subnormal(decay)
    size = decay.detach()
    exponent = size.masked_fill(size == 0, 1).log2().ceil()
    return decay * (-exponent).exp2(), exponent


def without_subnormal(decay: Tensor) -> Tensor:
    """Return the decay with 0 for numbers below the smallest normal one, in whose products the
    gradients would lose their digits. The gradient is that of the decay."""
    size = decay.detach()
    return decay - size.masked_fill(size >= torch.finfo(size.dtype).tiny, 0)


def between(factors: Tensor) -> Tensor:
    """Return the product of the factors of tokens s+1 to t at row t and column s, 0 for s > t.

    factors (..., T, 1) -> (..., T, T).
    """
    ones = factors.new_ones(factors.shape[-2], factors.shape[-2])
    return since_start(torch.where(ones.tril(-1) == 1, factors, ones)) * ones.tril()


def since_start(factors: Tensor) -> Tensor:
    """Return the product of the factors of all tokens up to each, with the shape of the input."""
    if torch.compiler.is_compiling() and is_exporting():  # ONNX has no such operator
        return factors.log().cumsum(-2).exp()
    return factors.cumprod(-2)


class Decays(NamedTuple):
    """Decay factors of T tokens or frames, for sums with log-scales."""

    within: Tensor
    """(..., T, T), product of the mantissas after column s up to row t; 0 for s > t."""
    before: Tensor
    """(..., T, 1), product of the mantissas up to each token, the factor of the earlier sums."""
    log_scale: Tensor
    """(..., T, 1), log of the product of the powers of two up to each token."""
    exponent: Tensor
    """(..., T, 1), cumulative exponents of two."""

    @classmethod
    def of(cls, factors: Tensor) -> "Decays":
        """Return the products of factors (..., T, 1) from 0 to 1."""
        mantissa, exponent = _split(factors)
        exponent = exponent.cumsum(-2)
        log_scale = exponent * math.log(2)
        return cls(between(mantissa), since_start(mantissa), log_scale, exponent)

    def weights(self, log_scale: Tensor, earlier: Tensor) -> "Weights":
        """Return the weights of T tokens and of the earlier sums at each token.

        Args:
            log_scale: (..., T, 1), of the tokens, each at its own time.
            earlier: (..., 1, 1), log-scale of the sums before the first token.
        """
        scales = log_scale.mT + (self.exponent - self.exponent.mT) * math.log(2)
        start = earlier + self.log_scale
        least = lowest(start.dtype)
        largest = scales.detach().masked_fill(self.within == 0, -torch.inf).amax(-1, keepdim=True)
        reference = torch.maximum(start.detach().masked_fill(self.before == 0, least), largest)
        inside = (scales - reference).clamp_max(LARGEST)
        kept = (start - reference).clamp_max(LARGEST)
        visible = torch.ones_like(inside).tril()
        tokens = Features(inside.exp() * visible, inside)
        return Weights(tokens, exponential(kept), reference)

    def at_end(self, log_scale: Tensor) -> tuple[Tensor, Tensor, Factor]:
        """Return log-scales and gates (..., T, 1) of the tokens at the last one, and the factor of
        the earlier sums."""
        last = self.exponent[..., -1:, :] - self.exponent
        gates = self.within[..., -1:, :].mT
        end = Factor(self.before[..., -1:, :], self.log_scale[..., -1:, :])
        return log_scale + last * math.log(2), gates, end


class Weights(NamedTuple):
    """Weights without the mantissas of decays, in units of exp(reference)."""

    tokens: Features
    """(..., T, T), of each token at each later one; 0 for later tokens."""
    kept: Features
    """(..., T, 1), of the earlier sums."""
    reference: Tensor
    """(..., T, 1)"""


def check_decay(decay: float | Tensor) -> None:
    """Raise ValueError unless the factor, or every entry of a tensor, is from 0 to 1."""
    if isinstance(decay, Tensor):
        sound = decay.is_floating_point() and known(((decay >= 0) & (decay <= 1)).all())
        got: object = f"a {decay.dtype} tensor with others, of shape {tuple(decay.shape)}"
    else:
        sound, got = is_real(decay) and 0 <= decay <= 1, repr(decay)
    if sound is False:
        raise ValueError(f"decay must be from 0 to 1, got {got}")
