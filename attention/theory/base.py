"""Mean squared errors of trig, phase, positive and hyperbolic features.

All estimates are unbiased, so the error is the variance of a mean of m terms, to which coupled
pairs (in blocks of d rows) add their covariance:

    MSE = weight (Var_1 / m + pairs / m^2 (E[f_i f_j] - E[f]^2))

with f = exp or cosh of omega.(x+y), weight exp(-2|x|^2-2|y|^2), or f = cos of omega.(x-y), weight
1, for the Gaussian kernel; for the softmax kernel there is a further factor exp(|x|^2+|y|^2).
Sources: Hybrid Random Features, Lemma 2.2; On the Error of Random Fourier Features (the phase's
variance); Simplex Random Features, Theorems 3.2 and 4.5 (even features with simplex rows: derived
here).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attention.theory.conformity import coupled_pairs, pair_covariance


class Lengths(NamedTuple):
    """The squared lengths on which all errors depend, each (...)."""

    norms: Tensor
    """|x|^2 + |y|^2"""
    plus: Tensor
    """|x + y|^2"""
    minus: Tensor
    """|x - y|^2"""


def lengths(x: Tensor, y: Tensor) -> Lengths:
    """Compute the lengths for (..., d), (..., d); leading dimensions broadcast."""
    norms = x.square().sum(-1) + y.square().sum(-1)
    return Lengths(norms, (x + y).square().sum(-1), (x - y).square().sum(-1))


def log_weight(of: Lengths, kernel: str) -> Tensor:
    """Logarithm of the factor of the error for `kernel`, relative to the Gaussian kernel."""
    return of.norms if kernel == "softmax" else 0 * of.norms


def times_exp(factor: Tensor, log_scale: Tensor) -> Tensor:
    """Return factor * exp(log_scale), elementwise: 0 stays 0, and only the product may overflow."""
    zero = factor == 0
    # A factor of 0 has no logarithm, but it has a gradient.
    largest = math.log(torch.finfo(log_scale.dtype).max) - 1
    at_zero = factor * log_scale.clamp(max=largest).exp()
    log_size = factor.abs().masked_fill(zero, 1.0).log()
    elsewhere = factor.sign() * (log_size + log_scale.masked_fill(zero, 0.0)).exp()
    return torch.where(zero, at_zero, elsewhere)


def positive(of: Lengths, m: int, projection: str, dim: int, kernel: str = "softmax") -> Tensor:
    """exp(v2) SM^2 (1 - exp(-v2)) / m for softmax and independent rows, v2 = |x+y|^2."""
    pairs = (-of.plus).exp() * mean_covariance(projection, of.plus, m, dim)
    return times_exp(-(-of.plus).expm1() / m + pairs, _log_square(of, kernel))


def hyperbolic(of: Lengths, m: int, projection: str, dim: int, kernel: str = "softmax") -> Tensor:
    """exp(v2) SM^2 (1 - exp(-v2))^2 / 2m for softmax and independent rows, v2 = |x+y|^2."""
    single = (-of.plus).expm1().square() / 2
    pairs = (-of.plus).exp() * mean_covariance(projection, of.plus, m, dim, even=True)
    return times_exp(single / m + pairs, _log_square(of, kernel))


def trig(of: Lengths, m: int, projection: str, dim: int, kernel: str = "softmax") -> Tensor:
    """exp(v2) SM^-2 (1 - exp(-z2))^2 / 2m for softmax and independent rows, z2 = |x-y|^2."""
    single = (-of.minus).expm1().square() / 2
    pairs = mean_covariance(projection, -of.minus, m, dim, even=True)
    return times_exp(single / m + pairs, log_weight(of, kernel))


def trig_phase(of: Lengths, m: int, projection: str, dim: int, kernel: str = "softmax") -> Tensor:
    """(1 + KG^4/2 - KG^2) / m for the Gaussian kernel and independent rows; m features.

    The phases are independent, so coupled rows share only the covariance of their cosines.
    """
    single = (1 + (-of.minus).expm1().square()) / 2
    pairs = mean_covariance(projection, -of.minus, m, dim, even=True)
    return times_exp(single / m + pairs, log_weight(of, kernel))


def exponential_pairs(
    of: Lengths, m: int, projection: str, dim: int, kernel: str, *, even: bool = False
) -> Tensor:
    """Contribution of the coupling to the error of exponentials of omega.(x+y), or of cosh if
    `even`."""
    log_scale = log_weight(of, kernel) - 2 * of.norms + of.plus
    return times_exp(mean_covariance(projection, of.plus, m, dim, even=even), log_scale)


def cosine_pairs(of: Lengths, m: int, projection: str, dim: int, kernel: str) -> Tensor:
    """Contribution of the coupling to the error of cosines of omega.(x-y)."""
    covariance = mean_covariance(projection, -of.minus, m, dim, even=True)
    return times_exp(covariance, log_weight(of, kernel))


def mean_covariance(
    projection: str, square: Tensor, m: int, dim: int, *, even: bool = False
) -> Tensor:
    """Contribution of coupled pairs to the variance of a mean of m terms, as in
    `pair_covariance`."""
    covariance = pair_covariance(projection, square, dim, even=even)
    return coupled_pairs(projection, m, dim) / m**2 * covariance


def _log_square(of: Lengths, kernel: str) -> Tensor:
    """Logarithm of the mean square of one exponential: weight exp(2|x+y|^2)."""
    return log_weight(of, kernel) - 2 * of.norms + 2 * of.plus
