"""What a model costs to run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from attention.components import EXPONENTIALS, PROJECTION, SCORE
from training.evaluation.op_counter import OpCounter

__all__ = ["flops_of"]

_PARTS = (PROJECTION, EXPONENTIALS, SCORE)
"""Of attention, as it names them itself."""


@torch.no_grad()
def flops_of(run: Callable[[], object]) -> tuple[int, int]:
    """Floating-point operations of a call: all, and those of its attention, without the products
    with weights before and after it."""
    with OpCounter() as counter:
        run()
    return counter.total, sum(counter.by_component[part] for part in _PARTS)
