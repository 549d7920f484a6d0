"""Mean squared errors of trig, positive and hyperbolic features.

All are unbiased, so the error is the variance of a mean of m terms, of which the coupled pairs
(formulas for blocks of d rows) add their covariance:

    MSE = weight (Var_1 / m + pairs / m^2 (E[f_i f_j] - E[f]^2))

with f = exp or cosh of omega.(x+y), weight exp(-|x|^2-|y|^2), or f = cos of omega.(x-y), weight
exp(|x|^2+|y|^2), for the softmax kernel; the Gaussian kernel has exp(-|x|^2-|y|^2) more.
Sources: Hybrid Random Features, Lemma 2.2; Simplex Random Features, Theorems 3.2 and 4.5.
"""

from typing import NamedTuple

from torch import Tensor

from attention.theory.conformity import coupled_pairs, pair_moment


class Lengths(NamedTuple):
    """The squared lengths that every error depends on, each (...)."""

    norms: Tensor
    """|x|^2 + |y|^2"""
    plus: Tensor
    """|x + y|^2"""
    minus: Tensor
    """|x - y|^2"""


def lengths(x: Tensor, y: Tensor) -> Lengths:
    """Of (..., d), (..., d), leading dimensions broadcast."""
    norms = x.square().sum(-1) + y.square().sum(-1)
    return Lengths(norms, (x + y).square().sum(-1), (x - y).square().sum(-1))


def positive(of: Lengths, m: int, projection: str, dim: int) -> Tensor:
    """Softmax kernel: exp(v2) SM^2 (1 - exp(-v2)) / m for independent rows, v2 = |x+y|^2."""
    single = (2 * of.plus).exp() * -(-of.plus).expm1()
    return (-of.norms).exp() * _of_mean(single, of.plus, m, projection, dim)


def hyperbolic(of: Lengths, m: int, projection: str, dim: int) -> Tensor:
    """Softmax kernel: exp(v2) SM^2 (1 - exp(-v2))^2 / 2m for independent rows, v2 = |x+y|^2."""
    single = (2 * of.plus).exp() * (-of.plus).expm1().square() / 2
    return (-of.norms).exp() * _of_mean(single, of.plus, m, projection, dim)


def trig(of: Lengths, m: int, projection: str, dim: int) -> Tensor:
    """Softmax kernel: exp(v2) SM^-2 (1 - exp(-z2))^2 / 2m for independent rows, z2 = |x-y|^2."""
    single = (-of.minus).expm1().square() / 2
    return of.norms.exp() * _of_mean(single, -of.minus, m, projection, dim)


def _of_mean(single: Tensor, square: Tensor, m: int, projection: str, dim: int) -> Tensor:
    """Variance of the mean of m terms of variance `single` and mean exp(square / 2)."""
    # Called for iid too, whose pairs are none, so that an unknown name raises.
    covariance = pair_moment(projection, square, dim) - square.exp()
    return single / m + coupled_pairs(projection, m, dim) / m**2 * covariance
