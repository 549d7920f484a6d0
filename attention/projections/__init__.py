"""Random projection vectors, one coupling per file. The marginal distribution of each row is N(0,
I_d), exactly or, for the fast couplings, approximately."""

from attention.projections.fast import FastProjection
from attention.projections.registry import available_projections, projection, resolve_projection
from attention.projections.simplex import simplex_matrix, simplex_product
from attention.projections.walsh_hadamard import fast_walsh_hadamard

__all__ = [
    "FastProjection",
    "available_projections",
    "fast_walsh_hadamard",
    "projection",
    "resolve_projection",
    "simplex_matrix",
    "simplex_product",
]
