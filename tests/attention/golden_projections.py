"""Reference values of the simplex and of the Hadamard rotation, the latter over all its signs."""

import itertools

import torch
from scipy.special import hyp1f1
from torch import Tensor

from attention.projections import FastProjection, simplex_matrix, simplex_product
from tests.attention.reference import Computation, Entry, pair


def mean_over_signs(name: str, x: Tensor, y: Tensor) -> Tensor:
    """E of the positive-feature estimate of the Gaussian kernel, d a power of two.

    Every value that the signs can take is one block of a projection with unit lengths. The mean
    over a length w ~ chi_d is E cosh(w a) = 1F1(d/2; 1/2; a^2/2), a the product with x + y: sinh
    cancels, because the opposite signs occur too.
    """
    d = len(x)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3 * d)), dtype=x.dtype)
    projection = FastProjection(name, d * len(signs), d, dtype=x.dtype)
    projection.signs.copy_(signs.unflatten(-1, (3, d)))
    projection.norms.fill_(1)
    moments = torch.from_numpy(hyp1f1(d / 2, 0.5, projection(x + y).square().numpy() / 2))
    return moments.mean() * (-x.square().sum() - y.square().sum()).exp()


def hadamard_mean(entry: Entry) -> Tensor:
    return mean_over_signs("hadamard", *pair(entry))


CLOSED_FORMS: dict[str, Computation] = {
    "simplex.S.d3": lambda entry: simplex_matrix(entry["inputs"]["d"]),
    "simplex.mul.P4": lambda entry: simplex_product(pair(entry)[0]),
    "hd.mean.orf.P4": hadamard_mean,
}

FIXED_PROJECTIONS: dict[str, Computation] = {}
