"""Random vectors of maps: vectors of a named coupling can be redrawn, given vectors are kept."""

import torch
from torch import Tensor

from attention.options import check_generator
from attention.projections import projection as draw_projection

EXPLICIT = "explicit"
"""Replaces the coupling's name for vectors that were given as a tensor or are supplied by a
hybrid."""


def coupling_name(projection: str | Tensor | None) -> str:
    """Return the name of the coupling, or EXPLICIT."""
    return projection if isinstance(projection, str) else EXPLICIT


def check_named(*projections: str | tuple[str, str]) -> None:
    """Raise ValueError if one of the projections is EXPLICIT."""
    if EXPLICIT in projections:
        raise ValueError(
            "redraw needs projections given by name; this map was given an explicit tensor"
        )


def redraw_vectors(vectors: Tensor, name: str, generator: torch.Generator) -> None:
    """Replace vectors (m, d) or (heads, m, d) in place by new ones of the coupling `name`.

    Raises ValueError if `generator` is not a torch.Generator.
    """
    check_generator(generator)
    heads = vectors.shape[0] if vectors.ndim == 3 else None
    m, d = vectors.shape[-2:]
    vectors.copy_(draw_projection(name, m, d, generator, vectors.dtype, vectors.device, heads))


def sums_by_vector(vectors: Tensor) -> Tensor:
    """Sum the entries of each vector, to add to projections: (m, d) -> (m,), or (heads, m, d) ->
    (heads, 1, m)."""
    sums = vectors.sum(-1)
    return sums if sums.ndim == 1 else sums.unsqueeze(-2)
