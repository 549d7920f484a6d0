"""Prediction of the values of expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from experiments.data.listops import Example, example, examples
from experiments.fitting import fit, load_model
from experiments.layers import is_of_map, prepare_step
from experiments.measuring import classified, flops_of
from experiments.task import Learning
from experiments.text.batches import batch_of, by_length
from experiments.text.model import TextTransformer
from experiments.text.settings import ListopsConfig

__all__ = ["check", "guesses", "learn"]

_COUNTED = 2000
"""Expressions to learn from, by which guesses are made."""
_MEASURED_AT_ONCE = 50


def check(settings: ListopsConfig, data: str | None) -> None:
    """ValueError where the grammar has no such expressions or sizes do not fit; no data needed."""
    example(settings.grammar, "learn", 0, 0)
    TextTransformer(settings, 0)


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it on the test expressions."""
    settings: ListopsConfig = learning.settings
    grammar = settings.grammar
    model = TextTransformer(settings, learning.seed).to(learning.device)
    stream = "learn"
    if learning.start is not None:
        load_model(learning.start, model, is_of_map)
        stream = "uptrain"  # not in the other model's training data
    curve = by_length(examples(grammar, "curve", 0, 0, settings.curve), _MEASURED_AT_ONCE)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        tokens, answers = batch_of(step, grammar, settings.batch, stream, learning.seed)
        return tokens.to(learning.device), answers.to(learning.device)

    def loss(step: int) -> Tensor:
        tokens, answers = batch(step)
        return functional.cross_entropy(model(tokens), answers)

    def before(step: int) -> None:
        prepare_step(
            model, settings.attention, learning.seed, step, lambda: model(batch(step)[0])
        )  # fmt: skip

    fit(
        model, loss, settings.fitting, learning.folder, learning.seed,
        lambda: _measured(model, curve), before, learning.label,
    )  # fmt: skip
    test = examples(grammar, "test", 0, 0, settings.test)
    known = examples(grammar, "learn", learning.seed, 0, _COUNTED)
    longest = torch.zeros(1, grammar.longest, dtype=torch.int64, device=learning.device)
    total, attending = flops_of(lambda: model(longest))
    numbers = _measured(model, by_length(test, _MEASURED_AT_ONCE)) | guesses(known, test)
    return numbers | {"attention_flops": attending, "flops": total}


@torch.no_grad()
def _measured(model: TextTransformer, batches: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
    answers = torch.cat([answers for _, answers in batches])
    logits = torch.cat([model(tokens.to(model.places.device)) for tokens, _ in batches])
    return classified(logits, answers.to(logits.device))


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
