"""Cost and classification accuracy of a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from attention.components import EXPONENTIALS, PROJECTION, SCORE
from training.analysis.op_counter import OpCounter

__all__ = ["classified", "flops_of"]

_PARTS = (PROJECTION, EXPONENTIALS, SCORE)
"""Of attention, as it names them itself."""


@torch.no_grad()
def flops_of(run: Callable[[], object]) -> tuple[int, int]:
    """Floating-point operations of a call: all, and those of its attention, without the products
    with weights before and after it."""
    with OpCounter() as counter:
        run()
    return counter.total, sum(counter.by_component[part] for part in _PARTS)


def classified(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy in percent and mean cross-entropy in nats, in float64, of logits (examples, classes)
    and labels (examples,).
    """
    logits = logits.double()
    right = (logits.argmax(1) == labels).double().mean()
    return {"accuracy": 100 * float(right), "loss": float(functional.cross_entropy(logits, labels))}
