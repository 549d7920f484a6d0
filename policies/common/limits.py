"""Builds a module within a size limit, and counts a module's numbers without allocating them."""

from collections.abc import Callable
from contextvars import ContextVar
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

MOST_NUMBERS = 5 * 10**7
"""Largest number of elements of a policy's tensors, or of a layer's output: a hundred times those
of any policy here."""
_SLACK = 2**20
"""Elements of tables that a `state_dict` does not hold."""
_left: ContextVar[int | None] = ContextVar("left", default=None)


def build_within(most: int, build: Callable[[], Any]) -> Any:
    """Build a module whose `state_dict` holds at most `most` numbers.

    Parameters and buffers count when they are registered, and those that are drawn before are
    announced by `reserve`. So a module that is too large is refused before it takes memory.

    Raises:
        ValueError: one sentence with the numbers that were counted.
    """
    token = _left.set(2 * most + _SLACK)  # reserved tensors are registered later as well
    needed = most + 1  # all that is known of a build that is given up: some of it counted twice
    try:
        with (
            register_module_parameter_registration_hook(_count),
            register_module_buffer_registration_hook(_count),
        ):
            made = build()
        needed = _numbers(made)
    except _TooLargeError:
        pass
    except RuntimeError as error:  # PyTorch has no public class for it
        if "can't allocate memory" not in str(error):
            raise
    finally:
        _left.reset(token)
    check_numbers(needed, most)
    return made


def check_numbers(needed: int, most: int) -> None:
    """Raise ValueError for more than `most` numbers."""
    if needed > most:
        raise ValueError(
            f"its settings allocate {needed} numbers or more, but at most {most} are allowed"
        )


def count_numbers(build: Callable[[], nn.Module]) -> int:
    """Number of elements in a module's `state_dict`, from a build on the meta device, where tensors
    take no memory.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return _numbers(build())


def reserve(*shape: int) -> None:
    """Announce a tensor that is drawn before it is registered, see `build_within`."""
    left = _left.get()
    if left is None:
        return
    if prod(shape) > left:
        raise _TooLargeError
    _left.set(left - prod(shape))


def _numbers(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in module.state_dict().values())


class _TooLargeError(BaseException):
    """Raised through code that converts exceptions into error messages."""


def _count(module: nn.Module, name: str, tensor: Tensor | None) -> None:
    """Hook of `build_within` on the registration of parameters and buffers."""
    reserve(0 if tensor is None else tensor.numel())
