"""What a hybrid's bases and random vectors are, as users name them."""

from typing import Any

import torch
from torch import Tensor

from attention.features import (
    HyperbolicFeatures,
    OprfFeatures,
    PositiveFeatures,
    ProjectedFeatures,
    TrigFeatures,
)
from attention.features.map_options import CommonOptions
from attention.projections import resolve_projection

BASES: dict[str, type[ProjectedFeatures]] = {
    "hyperbolic": HyperbolicFeatures,
    "oprf": OprfFeatures,
    "positive": PositiveFeatures,
    "trig": TrigFeatures,
}

Projection = str | Tensor | tuple[str, str]
"""A name, an explicit tensor, or a name for each base."""


class HybridOptions(CommonOptions, total=False):
    """Options of every hybrid of two bases."""

    kernel: str
    """As in `MapOptions`."""
    projection: Projection
    """Name of a coupling, default "orthogonal"; an explicit tensor: (m, d) with shared projections,
    (2m, d) without, the first base's rows first; or a pair of names, one a base, without shared
    projections. With `heads`, such a tensor serves all of them, and one of shape (heads, ...) gives
    each its own."""
    lambda_projection: str | Tensor | None
    """Name of the taus' coupling or an explicit (n, d) tensor, with `heads` as there; default: as
    `projection` where that is one name, else orthogonal. Always independent of the omegas."""
    shared_projections: bool
    """Both bases use the same omegas, the default: fewer operations, and never a larger error for
    hyperbolic and trig (Theorem 3.1)."""
    base: tuple[str, str]
    """(S1, S2), names of `BASES`, weighted by lambda and by 1 - lambda; default ("hyperbolic",
    "trig")."""


def check_pair(projection: Projection, shared: bool) -> None:
    """Raise ValueError for names of two couplings that do not go with two bases, and a `shared`
    that is no bool."""
    if not isinstance(shared, bool):
        raise ValueError(f"shared_projections must be True or False, got {shared!r}")
    if isinstance(projection, str | Tensor):
        return
    if shared:
        raise ValueError(
            f"projection must be one name or tensor with shared_projections=True, got "
            f"{projection!r}"
        )
    if len(projection) != 2:
        raise ValueError(f"projection must name one coupling a base, got {projection!r}")


def resolve_lambda_projection(
    lambda_projection: str | Tensor | None, projection: Projection
) -> str | Tensor:
    """The taus' coupling; default: the omegas' where that is one name, else orthogonal."""
    if lambda_projection is not None:
        return lambda_projection
    return projection if isinstance(projection, str) else "orthogonal"


def draw_vectors(
    projection: Projection,
    lambda_projection: str | Tensor,
    m: int,
    n: int,
    d: int,
    generator: torch.Generator,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
    heads: int | None,
    *,
    shared: bool,
) -> Tensor:
    """Omegas of two bases above the n taus, independent of them: (m + n, d) or (2m + n, d).

    With `heads`, (heads, ...), where an explicit tensor may leave the heads out. Its dtype and
    device hold for both. Raises ValueError for unknown names and tensors of another shape.
    """
    for given in (lambda_projection, projection):
        if isinstance(given, Tensor):
            dtype, device = dtype or given.dtype, device or given.device
    place: tuple[Any, ...] = (generator, dtype, device, heads)
    if isinstance(projection, Tensor):
        rows = m if shared else 2 * m
        omegas = [resolve_projection("projection", projection, rows, d, *place)]
    else:
        names = [projection] * 2 if isinstance(projection, str) else list(projection)
        names = names[:1] if shared else names
        omegas = [resolve_projection("projection", name, m, d, *place) for name in names]
    taus = resolve_projection("lambda_projection", lambda_projection, n, d, *place)
    return torch.cat((*omegas, taus), -2)
