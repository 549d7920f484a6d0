"""Projections by name, or given as a tensor."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention.projections.iid import iid
from attention.projections.orthogonal import orthogonal

Coupling = Callable[[int, int, torch.Generator | None], Tensor]

_COUPLINGS: dict[str, Coupling] = {"iid": iid, "orthogonal": orthogonal}


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
) -> Tensor:
    """Draw m projection vectors for inputs of dimension d: a tensor (m, d).

    Drawn in float64 on the generator's device and cast last, so that one seed means one draw
    whatever the dtype. Without a generator PyTorch's global one is used; without a dtype, its
    default.

    Raises ValueError for an unknown name or for m or d below 1.
    """
    if name not in _COUPLINGS:
        known = ", ".join(available_projections())
        raise ValueError(f"projection must be a tensor or one of {known}, got {name!r}")
    for argument, value in (("m", m), ("d", d)):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    drawn = _COUPLINGS[name](m, d, generator)
    return drawn.to(dtype=dtype or torch.get_default_dtype(), device=device)


def resolve_projection(
    argument: str,
    value: str | Tensor,
    m: int,
    d: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """A named projection drawn, or an explicit tensor checked to be (m, d) and copied.

    `argument` is the name that the caller knows the value by, for the message of the ValueError.
    An explicit tensor keeps its own dtype and device where none is asked for.
    """
    if isinstance(value, str):
        return projection(value, m, d, generator, dtype, device)
    if value.shape != (m, d):
        raise ValueError(
            f"{argument} must have shape ({m}, {d}), got a tensor of shape {tuple(value.shape)}"
        )
    return value.detach().to(dtype=dtype or value.dtype, device=device, copy=True)
