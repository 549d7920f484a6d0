"""Text Transformers that predict the values of ListOps expressions.

ListOps (Nangia and Bowman 2018) is generated as the Long Range Arena has it (Tay et al. 2021):

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]   ->  5

An example is determined by a stream, a seed and its index; its answer is computed while it is
drawn.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from experiments.fitting import Fitting
from experiments.layers import Encoder, TransformerConfig, sinusoids
from experiments.learning import FLOPS, Examples, flops_of, learn_classifier
from experiments.task import STRICT, Learning, Measure, Task

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
"""Least, greatest and median argument, rounded down; the sum modulo 10."""
VOCABULARY = (*map(str, range(10)), *OPERATORS, "]", "padding")
"""Symbols by token number; a digit is its own token number."""
_FIRST, _END, PADDING = 10, 14, 15
STREAMS = ("learn", "curve", "test", "uptrain")
"""Apart from each other whatever the seed and the index."""
_TRIES = 20_000
_SORTED_TOGETHER = 8
"""Batches."""
_COUNTED = 2000
"""Expressions to learn from, by which guesses are made."""
_MEASURED_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Grammar:
    """Settings of the expressions."""

    shortest: int = Field(default=200, ge=4, le=10_000)
    """Smallest number of tokens of an expression, brackets included."""
    longest: int = Field(default=1000, ge=4, le=10_000)
    """Largest number of tokens of an expression, brackets included."""
    depth: int = Field(default=10, ge=1, le=100)
    """Brackets within each other, at most."""
    arguments: int = Field(default=10, ge=2, le=100)
    """Most arguments of an operator; it has at least two, and each number is equally likely."""
    nested: float = Field(default=0.25, ge=0, le=1)
    """Share of the arguments that are themselves expressions, where the depth allows it."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
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


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ListopsConfig(TransformerConfig):
    """A Transformer that reads an expression and predicts its value."""

    fitting: Fitting = Fitting(steps=2000, learning_rate=1e-3, warmup_steps=100, measure_every=200)
    """No expression is learned from twice."""
    grammar: Grammar = Grammar()
    """The expressions; by default about those of the Long Range Arena, half as long."""
    read: Literal["first", "mean"] = "first"
    """The classified token: the first, which is the outer operator, or the mean over tokens."""
    width: int = Field(default=64, ge=2, multiple_of=2)
    """Width of a token."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of activations left out in training."""
    curve: int = Field(default=500, ge=1, le=100_000)
    """Held-out expressions, on which curves are measured."""
    test: int = Field(default=2000, ge=1, le=100_000)
    """Test expressions; the same for all seeds."""


class TextTransformer(nn.Module):
    """Tokens and their positions, blocks, and a classifier of the first token or of the mean."""

    places: Tensor
    """(longest, width)"""

    def __init__(self, settings: ListopsConfig, seed: int) -> None:
        """`seed` is the seed of the initial weights and the random vectors. Raises ValueError for
        sizes that do not fit.
        """
        super().__init__()
        self.first = settings.read == "first"
        width = settings.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Embedding(len(VOCABULARY), width, padding_idx=PADDING)
            self.encoder = Encoder(settings, seed)
            self.classify = nn.Linear(width, 10)
        places = sinusoids(settings.grammar.longest, width)
        self.register_buffer("places", places, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) of places in the vocabulary -> logits (batch, 10)."""
        padding = tokens == PADDING
        given = self.embed(tokens) + self.places[: tokens.shape[1]]
        read = self.encoder(given, padding)
        if self.first:
            whole = read[:, 0]
        else:
            whole = read.masked_fill(padding.unsqueeze(-1), 0.0).sum(1)
            whole = whole / (~padding).sum(1, keepdim=True)
        logits: Tensor = self.classify(whole)
        return logits


def check(settings: ListopsConfig, data: str | None) -> None:
    """ValueError where the grammar has no such expressions or sizes do not fit; no data needed."""
    example(settings.grammar, "learn", 0, 0)
    TextTransformer(settings, 0)


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it on the test expressions."""
    settings: ListopsConfig = learning.settings
    grammar, device = settings.grammar, learning.device
    model = TextTransformer(settings, learning.seed).to(device)
    # A model that starts from another learns from expressions that the other did not see.
    stream = "learn" if learning.start is None else "uptrain"
    curve = examples(grammar, "curve", 0, 0, settings.curve)
    test = examples(grammar, "test", 0, 0, settings.test)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        tokens, answers = batch_of(step, grammar, settings.batch, stream, learning.seed)
        return tokens.to(device), answers.to(device)

    def in_parts(drawn: Sequence[Example]) -> Examples:
        batches = by_length(drawn, _MEASURED_AT_ONCE)
        parts = [tokens.to(device) for tokens, _ in batches]
        return parts, torch.cat([answers for _, answers in batches])

    numbers = learn_classifier(learning, model, batch, in_parts(curve), in_parts(test))
    known = examples(grammar, "learn", learning.seed, 0, _COUNTED)
    longest = torch.zeros(1, grammar.longest, dtype=torch.int64, device=device)
    total, attending = flops_of(lambda: model(longest))
    return numbers | guesses(known, test) | {"attention_flops": attending, "flops": total}


def guesses(known: Sequence[Example], test: Sequence[Example]) -> dict[str, float]:
    """How often, in percent, the most common answer is right, and the most common answer of
    expressions with the same outer operator."""
    common = _most_common(known)
    operators = {one.tokens[0] for one in test}
    of = {op: _most_common([one for one in known if one.tokens[0] == op]) for op in operators}
    return {
        "most_common": 100 * sum(one.answer == common for one in test) / len(test),
        "by_operator": 100 * sum(one.answer == of[one.tokens[0]] for one in test) / len(test),
    }


def _most_common(drawn: Sequence[Example]) -> int:
    return Counter(one.answer for one in drawn).most_common(1)[0][0]


_LONGEST = "an expression of the greatest length"
_SHARE = "% of test expressions"
LISTOPS = Task(
    name="listops",
    settings=ListopsConfig,
    learn=learn,
    check=check,
    measures=(
        Measure("accuracy", "accuracy", _SHARE, ".2f", higher_is_better=True),
        Measure("loss", "test loss", "nats"),
        Measure("most_common", "most common answer", _SHARE, ".2f", higher_is_better=True),
        Measure("by_operator", "most common of the outer operator", _SHARE, ".2f",
                higher_is_better=True),
        Measure("attention_flops", "attention, FLOPs", _LONGEST, FLOPS),
        Measure("flops", "model, FLOPs", _LONGEST, FLOPS),
    ),
)  # fmt: skip
