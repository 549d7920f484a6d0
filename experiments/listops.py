"""Text Transformers that predict the values of ListOps expressions."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from experiments.data.listops import (
    PADDING,
    VOCABULARY,
    Example,
    Grammar,
    batch_of,
    by_length,
    example,
    examples,
)
from experiments.fitting import Fitting
from experiments.layers import Encoder, TransformerConfig, sinusoids
from experiments.learning import FLOPS, classified, flops_of, train_transformer
from experiments.task import STRICT, Learning, Measure, Task

_CLASSES = 10
_COUNTED = 2000
"""Expressions to learn from, by which guesses are made."""
_MEASURED_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ListopsConfig(TransformerConfig):
    """A Transformer that reads an expression and predicts its value."""

    fitting: Fitting = Fitting(steps=2000, learning_rate=1e-3, warmup_steps=100, measure_every=200)
    """No expression is learned from twice."""
    grammar: Grammar = Grammar()
    """Which expressions; by default about those of the Long Range Arena, half as long."""
    read: Literal["first", "mean"] = "first"
    """What is classified: the first token, which is the outer operator, or the mean over tokens."""
    width: int = Field(default=64, ge=2, multiple_of=2)
    """Width of a token."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of activations left out in training."""
    curve: int = Field(default=500, ge=1, le=100_000)
    """Other expressions, on which curves are measured."""
    test: int = Field(default=2000, ge=1, le=100_000)
    """Again others, on which models are tested; the same for all seeds."""


class TextTransformer(nn.Module):
    """Tokens and their places, blocks, and what is classified: the first token or the mean."""

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
            self.classify = nn.Linear(width, _CLASSES)
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
    curve = by_length(examples(grammar, "curve", 0, 0, settings.curve), _MEASURED_AT_ONCE)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        tokens, answers = batch_of(step, grammar, settings.batch, stream, learning.seed)
        return tokens.to(device), answers.to(device)

    def loss(step: int) -> Tensor:
        tokens, answers = batch(step)
        return functional.cross_entropy(model(tokens), answers)

    def measured(batches: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
        answers = torch.cat([answers for _, answers in batches])
        return classified(model, (tokens.to(device) for tokens, _ in batches), answers)

    train_transformer(
        learning, model, loss, lambda step: model(batch(step)[0]), lambda: measured(curve)
    )
    test = examples(grammar, "test", 0, 0, settings.test)
    known = examples(grammar, "learn", learning.seed, 0, _COUNTED)
    longest = torch.zeros(1, grammar.longest, dtype=torch.int64, device=device)
    total, attending = flops_of(lambda: model(longest))
    numbers = measured(by_length(test, _MEASURED_AT_ONCE)) | guesses(known, test)
    return numbers | {"attention_flops": attending, "flops": total}


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
