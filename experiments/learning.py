"""Functions that all learning tasks share: batches, training, and measures of a model."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import attention
from attention.components import EXPONENTIALS, PROJECTION, SCORE
from attention.matrix import attention_matrix
from experiments.fitting import Fit, fit, load_model
from experiments.layers import Attention, look_before, prepare_step
from experiments.task import Learning, Measure
from training.analysis.op_counter import OpCounter

Examples = tuple[Sequence[Tensor], Tensor]
"""Inputs in parts, as they are measured at once, and all labels (examples,)."""
FLOPS = ",.0f"
"""How numbers of operations are printed."""
TRUST = (
    Measure("negative", "estimates below 0", "% of pairs", ".1f"),
    Measure("clamped", "denominators raised", "% of queries", ".1f"),
    Measure("distance", "from softmax's weights", "total variation"),
    Measure("lengths", "|q||k|", "mean, scaled", ".2f", higher_is_better=True),
)
"""Means over layers and heads. A query's weights differ from softmax's by half the sum of their
absolute differences."""


def batch_of(step: int, examples: int, batch: int, seed: int) -> Tensor:
    """Indices (batch,) of a step from 1 on: each epoch is a new permutation whose incomplete last
    batch is dropped; all examples if they are fewer than a batch.
    """
    batch = min(batch, examples)
    epoch, place = divmod(step - 1, examples // batch)
    return _order(epoch, examples, seed)[place * batch : (place + 1) * batch]


@lru_cache(maxsize=2)
def _order(epoch: int, examples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(examples, generator=generator)


def train(
    learning: Learning,
    model: nn.Module,
    loss: Callable[[int], Tensor],
    run: Callable[[int], object],
    measure: Callable[[], Mapping[str, float]],
) -> Fit:
    """Train a model; one that starts from another has its parameters but its own feature maps.

    Args:
        learning: with the settings `fitting` and, if the model has any, `attention`.
        model: the model.
        loss: returns the loss of a step.
        run: runs the model on the batch of a step, to fit the feature maps.
        measure: returns the numbers of a row.
    """
    if learning.start is not None:
        load_model(learning.start, model, lambda name: ".feature_map." in name)

    def before(step: int) -> None:
        settings = getattr(learning.settings, "attention", None)
        if settings is not None:
            prepare_step(model, settings, learning.seed, step, lambda: run(step))

    return fit(model, loss, learning, measure, before)


@torch.no_grad()
def flops_of(run: Callable[[], object]) -> tuple[int, int]:
    """Floating-point operations of a call: all, and those of its attention, without the products
    with weights before and after it."""
    with OpCounter() as counter:
        run()
    parts = (PROJECTION, EXPONENTIALS, SCORE)
    return counter.total, sum(counter.by_component[part] for part in parts)


def learn_classifier(
    learning: Learning,
    model: nn.Module,
    batch: Callable[[int], tuple[Tensor, Tensor]],
    held_out: Examples,
    test: Examples,
    prepare: Callable[[Tensor], Tensor] = lambda inputs: inputs,
    also: Callable[[Tensor], Mapping[str, float]] = lambda inputs: {},
) -> dict[str, float]:
    """Train a classifier by cross-entropy; returns its accuracy and loss on the test examples.

    Args:
        learning: see `train`.
        model: inputs -> logits.
        batch: returns the inputs and labels of a step.
        held_out: examples on which curves are measured.
        test: test examples.
        prepare: gives inputs of the model from those of `held_out` and `test`.
        also: returns further measures for the first part of the inputs.
    """

    def loss(step: int) -> Tensor:
        inputs, labels = batch(step)
        return functional.cross_entropy(model(inputs), labels)

    @torch.no_grad()
    def measured(examples: Examples) -> dict[str, float]:
        logits = torch.cat([model(prepare(part)) for part in examples[0]]).double()
        labels = examples[1].to(logits.device)
        right = (logits.argmax(1) == labels).double().mean()
        entropy = functional.cross_entropy(logits, labels)
        return {"accuracy": 100 * float(right), "loss": float(entropy), **also(examples[0][0])}

    train(learning, model, loss, lambda step: model(batch(step)[0]), lambda: measured(held_out))
    return measured(test)


@torch.no_grad()
def trust(model: nn.Module, run: Callable[[], object]) -> dict[str, float]:
    """The measures in `TRUST`: the error of a model's attention relative to softmax attention.

    They are of the inputs that `run` passes through the model; zeros without estimates.
    """
    found: list[Tensor] = []

    def look(layer: Attention, tokens: tuple[Tensor, ...], _: dict[str, Any]) -> None:
        features = layer.feature_map
        q, k = layer.project(*tokens)[:2]
        if not isinstance(features, attention.FeatureMap):
            return
        seen = attention.diagnose(features, q, k)
        differ = attention_matrix(features, q, k) - (q @ k.mT).softmax(-1)
        distance = 0.5 * differ.abs().sum(-1).mean()
        lengths = q.norm(dim=-1).mean() * k.norm(dim=-1).mean()
        shares = 100 * seen.negative_estimates, 100 * seen.clamped_rows
        found.append(torch.tensor([*shares, float(distance), float(lengths)]))

    look_before(model, look, run)
    means = torch.stack(found).mean(0) if found else torch.zeros(len(TRUST))
    return {measure.name: float(mean) for measure, mean in zip(TRUST, means, strict=True)}
