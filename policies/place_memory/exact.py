"""Softmax attention over all that was seen: the memory of places that linear ones estimate."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attention.components import component
from policies.place_memory.steps import SteppedPlaces

__all__ = ["ExactPlaces", "ExactState"]

_NOTHING = -1e4
"""Logarithm of the weight of a token that is no more, less twice kappa, so that every other token
outweighs it: no infinity, which has no gradient."""


class ExactState(NamedTuple):
    """All tokens that are kept, (batch, tokens)."""

    cosines: Tensor
    """Of the angle on the circle, as the following."""
    sines: Tensor
    holes: Tensor
    log_weight: Tensor
    age: Tensor
    """In steps; infinite where there is no token."""


class ExactPlaces(SteppedPlaces):
    """Attention with the kernel exp(kappa cos(angle)) on a circle of path, times forgetting^age.

    Its state and its cost grow with the tokens that are kept.

    Args:
        circle_m: length of the circle, metres.
        kappa: concentration of the kernel.
        forgetting: what a step leaves of the weight of what was written before it.
        steps: for which a token is kept; None: until the episode ends.
    """

    def __init__(self, circle_m: float, kappa: float, forgetting: float, steps: int | None) -> None:
        super().__init__()
        self.turn, self.kappa = 2 * math.pi / circle_m, kappa
        self.log_kept, self.steps = math.log(forgetting), steps

    def start(self, batch: int, like: Tensor) -> ExactState:
        """Nothing written yet."""
        return ExactState(*(like.new_zeros(batch, 0) for _ in ExactState._fields))

    def cleared(self, state: ExactState, where: Tensor) -> ExactState:
        """Nothing written in those of the batch that are told, (batch,) bool."""
        return state._replace(age=state.age.masked_fill(where.unsqueeze(-1), torch.inf))

    def write(self, state: ExactState, at_m: Tensor, holes: Tensor, weights: Tensor) -> ExactState:
        """A step: let tokens grow older, then take in those of weight above 0, each (batch,
        pixels)."""
        with component("score"):
            own = torch.where(weights > 0, 0.0, torch.inf).to(at_m)
            new = (*self._point(at_m), holes, weights.log(), own)
            old = state._replace(age=state.age + 1)
            tokens = ExactState(*(torch.cat(pair, 1) for pair in zip(old, new, strict=True)))
            oldest = math.inf if self.steps is None else self.steps
            kept = (tokens.age < oldest).any(0)
            return ExactState(*(part[:, kept] for part in tokens))

    def read(self, state: ExactState, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        with component("score"):
            there = state.age.isfinite()
            nothing = _NOTHING - 2 * self.kappa
            late = torch.where(there, state.log_weight + state.age * self.log_kept, nothing)
            cosines, sines = self._point(at_m)
            queries = (self.kappa * cosines, self.kappa * sines, torch.ones_like(cosines))
            keys = (state.cosines, state.sines, late)
            values = (state.holes, *(2 * [torch.zeros_like(state.holes)]))  # as wide as keys are
            # One fused kernel: a tenth of the time of products and a softmax one after the other.
            q, k, v = (torch.stack(part, -1).unsqueeze(1) for part in (queries, keys, values))
            mixed = functional.scaled_dot_product_attention(q, k, v, scale=1.0)[:, 0, :, 0]
            return torch.where(there.any(1, keepdim=True), mixed, 0.0)

    def _point(self, at_m: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of places on the circle."""
        angle = at_m * self.turn
        return angle.cos(), angle.sin()
