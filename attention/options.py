"""Validation of options: keywords of a function, types and ranges."""

import inspect
import math
from collections.abc import Callable, Collection, Iterable
from inspect import Parameter
from numbers import Integral, Real
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import torch


def check_options(
    owner: str, function: Callable[..., Any], options: dict[str, Any], fixed: Iterable[str]
) -> None:
    """Raise ValueError for an option that `function` lacks; the message lists its options except
    `fixed`.

    A class also has the options of the constructors of its bases, as far as each passes them on.
    """
    found = keywords(function)
    if found is None:
        return
    known = sorted(found - set(fixed))
    for option in options:
        if option not in known:
            takes = f"takes the options {', '.join(known)}" if known else "takes no options"
            raise ValueError(f"{owner} {takes}, got {option!r}")


def keywords(function: Callable[..., Any]) -> set[str] | None:
    """Return the names of the parameters of a function or class, or None if any keyword is
    accepted."""
    names: set[str] = set()
    chain = function.__mro__ if isinstance(function, type) else (function,)
    for part in chain:
        try:
            parameters = inspect.signature(part).parameters.values()
        except (TypeError, ValueError):  # some functions in C have no signature
            return None
        names |= {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        if not any(p.kind == p.VAR_KEYWORD for p in parameters):
            return names
    return None


def spell_out(cls: type[Any]) -> None:
    """Add the keywords of T to `inspect.signature(cls)` if a constructor has `**options:
    Unpack[T]`, with the defaults of the base, or `...` if the base lacks one."""
    init = vars(cls).get("__init__")
    if init is None:
        return
    signature = inspect.signature(init)
    *own, last = signature.parameters.values()
    if get_origin(last.annotation) is not Unpack:
        return
    above = inspect.signature(cls.__mro__[1]).parameters
    for name, annotation in get_type_hints(get_args(last.annotation)[0]).items():
        default = above[name].default if name in above else ...
        own.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    init.__signature__ = signature.replace(parameters=own)


def check_keywords(cls: type[Any], options: dict[str, Any]) -> None:
    """Raise TypeError, as Python does, for an option that the constructor of `cls` lacks.

    The message names the class that was called instead of the base that received the option.
    """
    known = inspect.signature(cls).parameters
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for option in options:
        if option not in known:
            takes = ", ".join(sorted(known))
            raise TypeError(f"{cls.__name__} takes the arguments {takes}, got {option!r}")


def is_integer(value: object) -> bool:
    """Whether the value is an integer, including NumPy's, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether the value is a real number, including NumPy's, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_count(argument: str, value: int) -> int:
    """Return the value as an int. Raises ValueError unless it is an integer of at least 1."""
    if not is_integer(value):
        raise ValueError(f"{argument} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{argument} must be at least 1, got {value}")
    return int(value)


def check_positive(**arguments: float) -> None:
    """Raise ValueError unless every argument is a positive finite number."""
    for argument, value in arguments.items():
        if not is_real(value) or not 0 < value < math.inf:
            raise ValueError(f"{argument} must be a positive finite number, got {value!r}")


def check_two_of(argument: str, names: Any, known: Collection[str]) -> None:
    """Raise ValueError unless `names` is a tuple or list of two of the known names."""
    known = sorted(known)  # a list, so that unhashable values are supported
    if not isinstance(names, tuple | list) or len(names) != 2 or any(n not in known for n in names):
        raise ValueError(f"{argument} must be two of {', '.join(known)}, got {names!r}")


def check_seed(seed: int) -> int:
    """Return the seed as an int. Raises ValueError unless PyTorch's generators accept it."""
    if not is_integer(seed) or not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be an integer from -2**63 to 2**64 - 1, got {seed!r}")
    return int(seed)


def check_generator(generator: torch.Generator | None, *, optional: bool = False) -> None:
    """Raise ValueError unless `generator` is a torch.Generator, or None if that is allowed."""
    if not isinstance(generator, torch.Generator) and not (optional and generator is None):
        allowed = "a torch.Generator or None" if optional else "a torch.Generator"
        raise ValueError(f"generator must be {allowed}, got {generator!r}")


def check_dtype(dtype: torch.dtype | None) -> None:
    """Raise ValueError unless `dtype` is a floating-point torch.dtype or None."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype must be a floating-point torch.dtype or None, got {dtype!r}")
