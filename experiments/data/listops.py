"""ListOps (Nangia and Bowman 2018) as the Long Range Arena has it (Tay et al. 2021): generated.

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]   ->  5

An example is determined by a stream, a seed and its index; its answer is computed while it is
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from experiments.task import STRICT

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
"""Least, greatest and median argument, rounded down; the sum modulo 10."""
VOCABULARY = (*map(str, range(10)), *OPERATORS, "]", "padding")
"""By token: a digit is its own."""
_FIRST, _END, PADDING = 10, 14, 15
STREAMS = ("learn", "curve", "test", "uptrain")
"""Apart from each other whatever the seed and the index."""
_TRIES = 20_000
_SORTED_TOGETHER = 8
"""Batches."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Grammar:
    """Which expressions."""

    shortest: int = Field(default=200, ge=4, le=10_000)
    """Tokens of an expression, brackets too, at least."""
    longest: int = Field(default=1000, ge=4, le=10_000)
    """At most."""
    depth: int = Field(default=10, ge=1, le=100)
    """Brackets within each other, at most."""
    arguments: int = Field(default=10, ge=2, le=100)
    """Of an operator at most; it has two at least, each number as often."""
    nested: float = Field(default=0.25, ge=0, le=1)
    """Share of the arguments that are expressions again, where the depth allows it."""

    @model_validator(mode="after")
    def _possible(self) -> Grammar:
        if self.longest < self.shortest:
            raise ValueError(
                f"longest must be at least shortest = {self.shortest}, got {self.longest}"
            )
        return self


class Example(NamedTuple):
    """An expression and its value."""

    tokens: tuple[int, ...]
    """Places in VOCABULARY."""
    answer: int
    """0 to 9."""


def examples(grammar: Grammar, stream: str, seed: int, begin: int, end: int) -> list[Example]:
    """The examples with indices from `begin` up to but excluding `end`; see `example`."""
    return [example(grammar, stream, seed, index) for index in range(begin, end)]


def example(grammar: Grammar, stream: str, seed: int, index: int) -> Example:
    """An expression from the grammar with a length in its range.

    Raises ValueError if such lengths are too rare to be found.
    """
    uniform = _uniform(np.random.default_rng([index, seed, STREAMS.index(stream)]))
    for _ in range(_TRIES):
        found = _drawn(grammar, uniform)
        if found is not None:
            return found
    raise ValueError(
        f"grammar must have expressions of {grammar.shortest} to {grammar.longest} tokens, got "
        f"depth {grammar.depth}, {grammar.arguments} arguments and nested {grammar.nested}, which "
        f"gave none in {_TRIES} tries"
    )


def _uniform(generator: np.random.Generator) -> Iterator[float]:
    while True:
        yield from generator.random(512).tolist()


def _drawn(grammar: Grammar, uniform: Iterator[float]) -> Example | None:
    """The next expression; None if it is too short or too long."""
    tokens: list[int] = []
    unfinished: list[tuple[int, int, list[int]]] = []  # operator, arguments to come to, arguments
    answer = -1
    while answer < 0:
        if len(tokens) + len(unfinished) > grammar.longest:
            return None
        nested = not unfinished or (
            len(unfinished) < grammar.depth and next(uniform) < grammar.nested
        )
        if nested:
            operator = int(len(OPERATORS) * next(uniform))
            count = 2 + int((grammar.arguments - 1) * next(uniform))
            unfinished.append((operator, count, []))
            tokens.append(_FIRST + operator)
            continue
        value = int(10 * next(uniform))
        tokens.append(value)
        unfinished[-1][2].append(value)
        while unfinished and len(unfinished[-1][2]) == unfinished[-1][1]:
            operator, _, values = unfinished.pop()
            tokens.append(_END)
            value = _applied(operator, values)
            if unfinished:
                unfinished[-1][2].append(value)
            else:
                answer = value
    fits = grammar.shortest <= len(tokens) <= grammar.longest
    return Example(tuple(tokens), answer) if fits else None


def _applied(operator: int, values: list[int]) -> int:
    if operator < 2:
        return max(values) if operator else min(values)
    if operator == 2:
        ranked, last = sorted(values), len(values) - 1
        return (ranked[last // 2] + ranked[(last + 1) // 2]) // 2
    return sum(values) % 10


def batch_of(
    step: int, grammar: Grammar, batch: int, stream: str, seed: int
) -> tuple[Tensor, Tensor]:
    """Tokens (batch, tokens) and answers (batch,) of a step from 1 on: new ones each step, which
    follow from stream, seed and step alone."""
    number, place = divmod(step - 1, _SORTED_TOGETHER)
    return _pool(number, grammar, batch, stream, seed)[place]


@lru_cache(maxsize=1)
def _pool(
    number: int, grammar: Grammar, batch: int, stream: str, seed: int
) -> list[tuple[Tensor, Tensor]]:
    """Eight batches of similar lengths each, in an order independent of length."""
    count = _SORTED_TOGETHER * batch
    batches = by_length(
        examples(grammar, stream, seed, number * count, (number + 1) * count), batch
    )
    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    order = torch.randperm(_SORTED_TOGETHER, generator=generator)
    return [batches[i] for i in order.tolist()]


def by_length(drawn: Sequence[Example], batch: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of at most `batch`, from the shortest on."""
    ranked = sorted(drawn, key=lambda one: len(one.tokens))
    return [padded(ranked[i : i + batch]) for i in range(0, len(ranked), batch)]


def padded(drawn: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Tokens (batch, tokens), as many as the longest has, and answers (batch,)."""
    longest = max(len(one.tokens) for one in drawn)
    rows = [[*one.tokens, *[PADDING] * (longest - len(one.tokens))] for one in drawn]
    return torch.tensor(rows), torch.tensor([one.answer for one in drawn])
