"""Random numbers of a search: from a generator, or from a tensor.

An exported graph holds no generator. `Noted` records what a search draws, in order; `Given` replays
these numbers, so that both searches are identical.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Given", "Kind", "Noise", "Noted", "drawn", "rand", "randn"]

Kind = Literal["uniform", "normal"]
"""Uniform in [0, 1), or of mean 0 and variance 1."""


class Noted:
    """Draws from a generator and records the draws.

    Attributes:
        plan: kind and count of each draw, in order.
        numbers: the draws, float32, one tensor per draw.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self.plan: list[tuple[Kind, int]] = []
        self.numbers: list[Tensor] = []

    def draw(self, kind: Kind, shape: tuple[int, ...]) -> Tensor:
        """(shape) new numbers."""
        numbers = _of_kind(kind, shape, self._generator)
        self.plan.append((kind, numbers.numel()))
        self.numbers.append(numbers.flatten())
        return numbers


class Given:
    """Replays recorded numbers.

    Args:
        numbers: (n,), the concatenated draws of `Noted`.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers, self._first = numbers, 0

    def draw(self, kind: Kind, shape: tuple[int, ...]) -> Tensor:
        """(shape) of the next numbers; their kind is not checked."""
        shape = tuple(map(int, shape))  # constants of a trace
        first, count = self._first, math.prod(shape)
        self._first += count
        return self._numbers[first : first + count].view(shape)


def drawn(plan: Sequence[tuple[Kind, int]], generator: torch.Generator) -> Tensor:
    """The concatenated numbers of a plan, as `Noted` would draw them: (n,)."""
    pieces = [_of_kind(kind, (count,), generator) for kind, count in plan]
    return torch.cat(pieces) if pieces else torch.empty(0, device=generator.device)


def _of_kind(kind: Kind, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return (rand if kind == "uniform" else randn)(shape, generator)


Noise = torch.Generator | Noted | Given


def rand(shape: tuple[int, ...], source: Noise) -> Tensor:
    """Uniform numbers in [0, 1), float32, on the generator's device."""
    if isinstance(source, torch.Generator):
        return torch.rand(shape, generator=source, device=source.device)
    return source.draw("uniform", shape)


def randn(shape: tuple[int, ...], source: Noise) -> Tensor:
    """Normal numbers, float32, on the generator's device."""
    if isinstance(source, torch.Generator):
        return torch.randn(shape, generator=source, device=source.device)
    return source.draw("normal", shape)
