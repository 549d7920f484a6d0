"""Options of hybrids: their bases and random vectors."""

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
    """See `MapOptions`."""
    projection: Projection
    """Name of a coupling, default "orthogonal"; an explicit tensor, (m, d) with shared projections,
    otherwise (2m, d) with the rows of the first base first; or, without shared projections, a pair
    of names, one per base. With `heads`, such a tensor is shared by all heads; a tensor (heads,
    ...) has separate vectors."""
    lambda_projection: str | Tensor | None
    """Name of the coupling of the taus or an explicit (n, d) tensor, with `heads` as in
    `projection`. Default: `projection` if that is a single name, else orthogonal. The taus are
    always independent of the omegas."""
    shared_projections: bool
    """Whether both bases use the same omegas. The default True takes fewer operations and, for
    hyperbolic and trig, never has a larger error (Theorem 3.1)."""
    base: tuple[str, str]
    """(S1, S2), names of `BASES`, weighted by lambda and by 1 - lambda; default ("hyperbolic",
    "trig")."""


def check_pair(projection: Projection, shared: bool) -> None:
    """Raise ValueError for a pair of couplings that does not fit the bases or a `shared` that is
    not a bool."""
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
        raise ValueError(f"projection must name one coupling per base, got {projection!r}")


def resolve_lambda_projection(
    lambda_projection: str | Tensor | None, projection: Projection
) -> str | Tensor:
    """Return the coupling of the taus; default: that of the omegas if it is a single name, else
    orthogonal."""
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
    """Return the omegas of two bases followed by n independent taus: (m + n, d) or (2m + n, d).

    With `heads` the result is (heads, ...); an explicit tensor may omit the heads. Its dtype and
    device apply to both. Raises ValueError for unknown names and tensors of another shape.
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
