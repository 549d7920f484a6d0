"""Projections by name or as explicit tensors."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention.conversion import Numbers, to_tensor
from attention.options import check_count, check_dtype, check_generator
from attention.precision import working_dtype
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
    """Return the sorted names of the couplings."""
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

    With `heads` there are that many independent draws. Vectors are drawn in float64 on the
    generator's device, then cast and moved, so a seed gives the same draw for any dtype and device.
    The default generator is PyTorch's global CPU generator; the default dtype and device are
    PyTorch's.

    Raises ValueError for an unknown name; for m, d or heads that are not integers of at least 1;
    for d = 1 with a simplex coupling; and for a generator or dtype of the wrong type.
    """
    if not isinstance(name, str) or name not in _COUPLINGS:
        known = ", ".join(available_projections())
        raise ValueError(f"projection must be a tensor or one of {known}, got {name!r}")
    m, d = check_count("m", m), check_count("d", d)
    count = 1 if heads is None else check_count("heads", heads)
    check_generator(generator, optional=True)
    check_dtype(dtype)
    # The default device may not support random numbers, such as meta.
    with torch.device("cpu" if generator is None else generator.device):
        draws = [_COUPLINGS[name](m, d, generator) for _ in range(count)]
        drawn = draws[0] if heads is None else torch.stack(draws)
    place = torch.get_default_device() if device is None else device
    return drawn.to(dtype=dtype or torch.get_default_dtype(), device=place)


def as_tensor(argument: str, value: Numbers) -> Tensor:
    """Convert an explicit projection, a tensor, array or nested lists, to a tensor without further
    validation.

    Lists of floats get PyTorch's default dtype. Raises ValueError for other types; `argument` is
    the name in the message.
    """
    if isinstance(value, Tensor):
        return value
    try:
        tensor = to_tensor(value)
    except (TypeError, ValueError):
        known = ", ".join(available_projections())
        raise ValueError(f"{argument} must be a tensor or one of {known}, got {value!r}") from None
    is_list = isinstance(value, list | tuple) and tensor.is_floating_point()
    return tensor.to(torch.get_default_dtype()) if is_list else tensor


def explicit_vectors(argument: str, value: Tensor, m: int, d: int, heads: int | None) -> Tensor:
    """Return given vectors as (m, d), or (heads, m, d) with `heads`, without a copy.

    Vectors (m, d) are shared by all heads. Raises ValueError for another shape.
    """
    shapes = [(m, d)] if heads is None else [(m, d), (heads, m, d)]
    if value.shape not in shapes:
        allowed = " or ".join(str(shape) for shape in shapes)
        raise ValueError(
            f"{argument} must have shape {allowed}, got a tensor of shape {tuple(value.shape)}"
        )
    return value.expand(shapes[-1])


def resolve_projection(
    argument: str,
    value: str | Numbers,
    m: int,
    d: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    heads: int | None = None,
) -> Tensor:
    """Draw a named projection, or validate and copy an explicit tensor: (m, d), (heads, m, d).

    `argument` is the name in error messages. Without `dtype` and `device` an explicit tensor keeps
    its own, except that float16 and bfloat16 become float32, since vectors are not rounded. With
    `heads`, a tensor (m, d) is shared by all heads. Arrays and nested lists are converted to
    tensors. Raises ValueError for another shape, a dtype that is not floating-point, or entries
    that are not finite; entries on the meta device are not checked.
    """
    if isinstance(value, str):
        check_dtype(dtype)
        dtype = working_dtype(dtype or torch.get_default_dtype())
        return projection(value, m, d, generator, dtype, device, heads)
    check_dtype(dtype)
    value = explicit_vectors(argument, as_tensor(argument, value), m, d, heads)
    if not value.is_floating_point():
        raise ValueError(f"{argument} must have a floating-point dtype, got {value.dtype}")
    if not value.is_meta and not bool(value.isfinite().all()):
        raise ValueError(f"{argument} must be finite, got a non-finite entry")
    dtype = working_dtype(dtype or value.dtype)
    return value.detach().to(dtype=dtype, device=device, copy=True)
