"""Denominators of linear attention, and how invalid ones are handled.

The exact denominator, sum_j kernel(x_i, y_j), is positive. Estimates from positive features are
positive too and are not changed. Estimates from signed features (trig, hybrids, complex
exponentials) can be near zero or negative, and the ratio is then arbitrarily wrong. The policy for
signed maps:

1. A denominator below a floor is raised to the floor. The floor is the larger of SHARE * count_i *
   exp(-|x_i| max_j |y_j|), SHARE times a lower bound of the exact sum by Cauchy-Schwarz (for the
   Gaussian kernel exp(-(|x_i| + max_j |y_j|)^2 / 2); zero for a map with a custom kernel), and of
   eps |phi_q_i| sum_j |phi_k_j|, the rounding error of the sum: below it no digit is correct. A
   negative denominator becomes the positive floor: keeping the sign would keep a value that is
   known to be wrong.
2. The output is clipped to +-max |v| over the keys seen. Exact attention is an average of values,
   so clipping never increases an error.

`diagnose` reports how often the floor is used. Gradients flow through the floor and the bound.

For all maps, a row whose denominator is zero gets an output of zeros and zero gradients: either no
key is visible, or every product of features underflowed. For positive maps less than 2^-168 of the
largest product possible counts as zero in float32 (see `attention.products`). This is common for
long tokens (oprf at |x| = |y| = 30). `diagnose` counts such rows as clamped; float64 or shorter
vectors avoid them.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attention.norms import token_norms
from attention.products import least_denominator
from attention.running import running_max
from attention.tracing import may_write

SHARE = 0.1
"""c: the least allowed denominator as a share of the exact sum's lower bound."""


class KeyStatistics(NamedTuple):
    """Statistics of the keys that a query sees: 1 row for all queries, or L rows for causal
    attention."""

    keys: Tensor
    """(..., 1 or L, 1), number of keys."""
    largest_norm: Tensor
    """(..., 1 or L, 1), max |y|."""

    @classmethod
    def of(cls, y: Tensor, visible: Tensor | None, causal: bool) -> "KeyStatistics":
        """Compute the statistics of keys (..., S, d); `visible` (..., S, 1) is boolean if some are
        masked."""
        norms = token_norms(y)
        ones = torch.ones_like(norms)
        if visible is not None:
            norms, ones = norms.masked_fill(~visible, 0), ones * visible
        if causal:
            return cls(ones.cumsum(-2), running_max(norms, -2))
        return cls(ones.sum(-2, keepdim=True), norms.amax(-2, keepdim=True))

    def after(self, earlier: "KeyStatistics") -> "KeyStatistics":
        """Combine with the statistics of earlier keys."""
        return KeyStatistics(
            self.keys + earlier.keys, torch.maximum(self.largest_norm, earlier.largest_norm)
        )


def log_lower_bound(kernel: str, x: Tensor, keys: KeyStatistics) -> Tensor:
    """log(SHARE * count * lower bound of the kernel): queries (..., L, d) -> (..., L, 1)."""
    norm = token_norms(x)
    if kernel == "gaussian":
        exponent = -0.5 * (norm + keys.largest_norm).square()
    else:
        exponent = -norm * keys.largest_norm
    # A row that sees no key yet has count 0: its floor is 0, log 0 = -inf.
    return math.log(SHARE) + keys.keys.log() + exponent


def rounding_floor(size: Tensor, mass: Tensor, share: float = 0.0) -> Tensor:
    """eps |phi_q| mass: sizes |phi_q| (..., L, 1), mass (..., 1 or L, 1) -> (..., L, 1).

    share: replaces eps if it is larger.
    """
    return max(torch.finfo(size.dtype).eps, share) * size * mass


def raised(
    denominator: Tensor,
    log_floor: Tensor | None,
    log_scale: Tensor,
    floor: Tensor | None = None,
    unit: float = 1.0,
) -> Tensor:
    """Raise the denominator, in units of exp(log_scale) / unit, to the larger of the given floors.

    `log_floor` is in absolute units, `floor` in those of the denominator.
    """
    if log_floor is not None:
        # Floors of real use are far below the cap, which keeps products with float32 finite.
        cap = min(80.0, math.log(torch.finfo(denominator.dtype).max) - math.log(unit) - 8)
        absolute = (log_floor - log_scale).clamp_max(cap).exp()
        absolute = absolute if unit == 1 else absolute * unit
        floor = absolute if floor is None else torch.maximum(floor, absolute)
    return denominator if floor is None else torch.maximum(denominator, floor)


def is_zero(denominator: Tensor, signed: bool) -> Tensor:
    """Whether a denominator, of sums in units of `products.key_unit`, counts as zero."""
    if signed:
        return denominator == 0
    return denominator.abs() < least_denominator(denominator.dtype)


def divide(numerator: Tensor, denominator: Tensor, signed: bool) -> Tensor:
    """Return the ratio, or zeros with zero gradients where the denominator counts as zero."""
    return numerator / denominator.masked_fill(is_zero(denominator, signed), torch.inf)


def bounded(output: Tensor, largest_value: Tensor) -> Tensor:
    """Clip the output, possibly in place, to +-largest_value, which broadcasts with it."""
    out = output if may_write(output, largest_value) else None
    below = torch.minimum(output, largest_value, out=out)
    return torch.maximum(below, -largest_value, out=out)
