"""Projections by name, or given as a tensor."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention.projections.fast_simplex import fast_simplex
from attention.projections.hadamard import hadamard
from attention.projections.halton import halton
from attention.projections.iid import iid
from attention.projections.orthogonal import orthogonal
from attention.projections.simplex import simplex
from attention.projections.simplex_plus import simplex_plus

Coupling = Callable[[int, int, torch.Generator | None], Tensor]

_COUPLINGS: dict[str, Coupling] = {
    "fast_simplex": fast_simplex,
    "hadamard": hadamard,
    "halton": halton,
    "iid": iid,
    "orthogonal": orthogonal,
    "simplex": simplex,
    "simplex_plus": simplex_plus,
}


def available_projections() -> tuple[str, ...]:
    """Names of the couplings, sorted."""
    return tuple(sorted(_COUPLINGS))


def projection(
    name: str,
    m: int,
    d: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    heads: int | None = None,
) -> Tensor:
    """Draw m projection vectors for inputs of dimension d: (m, d), or (heads, m, d).

    With `heads`, that many independent draws.
    Drawn in float64 on the generator's device and cast last, so that one seed means one draw
    whatever the dtype. Without a generator PyTorch's global one is used; without a dtype, its
    default.

    Raises ValueError for an unknown name, for m, d or heads below 1, and for d = 1 with one of the
    simplex couplings.
    """
    if name not in _COUPLINGS:
        known = ", ".join(available_projections())
        raise ValueError(f"projection must be a tensor or one of {known}, got {name!r}")
    for argument, value in (("m", m), ("d", d), ("heads", 1 if heads is None else heads)):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    if heads is None:
        drawn = _COUPLINGS[name](m, d, generator)
    else:
        drawn = torch.stack([_COUPLINGS[name](m, d, generator) for _ in range(heads)])
    return drawn.to(dtype=dtype or torch.get_default_dtype(), device=device)


def resolve_projection(
    argument: str,
    value: str | Tensor,
    m: int,
    d: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    heads: int | None = None,
) -> Tensor:
    """A named projection drawn, or an explicit tensor checked and copied: (m, d), (heads, m, d).

    `argument` is the name that the caller knows the value by, for the message of the ValueError.
    An explicit tensor keeps its own dtype and device where none is asked for.
    """
    if isinstance(value, str):
        return projection(value, m, d, generator, dtype, device, heads)
    shape = (m, d) if heads is None else (heads, m, d)
    if value.shape != shape:
        raise ValueError(
            f"{argument} must have shape {shape}, got a tensor of shape {tuple(value.shape)}"
        )
    return value.detach().to(dtype=dtype or value.dtype, device=device, copy=True)
