"""Random projection vectors, one coupling a file. Each row is N(0, I_d) on its own, exactly, or in
the fast couplings nearly."""

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
