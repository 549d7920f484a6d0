"""What every feature map is: a pair of functions with queries(x).keys(y) ~ kernel(x, y)."""

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from attention.components import SCORE, component
from attention.kernels import check_kernel
from attention.linear import linear_attention
from attention.scores import block_rows


class ScaledFeatures(NamedTuple):
    """Features as mantissa * exp(log_scale), so that no entry overflows.

    The scale is one number a token. Attention drops it for queries, where it cancels between
    numerator and denominator, and keeps it up to a constant common to all keys.
    """

    mantissa: Tensor
    """(..., L, F)"""
    log_scale: Tensor
    """(..., L, 1)"""


class FeatureMap(nn.Module):
    """Base of all maps. Subclasses give `output_dim`, `queries`, `scaled_queries` and `redraw`.

    Maps are symmetric unless they override `keys` and `scaled_keys` too.

    Args:
        dim: d, dimension of queries and keys.
        num_features: m, number of random projection vectors (not F).
        kernel: "softmax" for exp(x.y), "gaussian" for exp(-|x-y|^2/2).
    """

    def __init__(self, dim: int, num_features: int, *, kernel: str = "softmax") -> None:
        super().__init__()
        for argument, value in (("dim", dim), ("num_features", num_features)):
            if value < 1:
                raise ValueError(f"{argument} must be at least 1, got {value}")
        check_kernel(kernel)
        self.dim = dim
        self.num_features = num_features
        self.kernel = kernel

    @property
    def output_dim(self) -> int:
        """F, length of a feature vector."""
        raise NotImplementedError

    def queries(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., F), real. `(queries(x) * keys(y)).sum(-1)` estimates kernel(x, y)."""
        raise NotImplementedError

    def keys(self, y: Tensor) -> Tensor:
        """(..., d) -> (..., F), real."""
        return self.queries(y)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        """(..., L, d) -> the same features as `queries`, with their scale apart."""
        raise NotImplementedError

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        """(..., L, d) -> the same features as `keys`, with their scale apart."""
        return self.scaled_queries(y)

    def redraw(self, generator: torch.Generator) -> None:
        """Replace the random vectors by new ones drawn from `generator`. Forward never does."""
        raise NotImplementedError

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set data-dependent parameters from queries x and keys y (..., d); here there are none."""
        return self

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Sum over queries of the estimated kernel, for each key, in O(L F).

        x (..., Lq, d), y (..., Lk, d) -> (..., Lk). Column sums of the attention matrix before
        it is normalised, features made in blocks that fit the cache. No stabiliser can cancel in
        a sum over queries, so none is used.
        """
        rows = block_rows(self.output_dim, x)
        sums = []
        for part in x.split(rows, -2):
            phi_q = self.queries(part)
            with component(SCORE):
                sums.append(phi_q.sum(-2))
        with component(SCORE):
            total = sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)
            total = total.unsqueeze(-1)
        scores = []
        for part in y.split(rows, -2):
            phi_k = self.keys(part)
            with component(SCORE):
                scores.append((phi_k @ total).squeeze(-1))
        return scores[0] if len(scores) == 1 else torch.cat(scores, -1)

    def attend(
        self, x: Tensor, y: Tensor, values: Tensor, *, key_mask: Tensor | None = None
    ) -> Tensor:
        """Bidirectional attention with this kernel estimate, in O(L F dv).

        x (..., Lq, d), y (..., Lk, d), values (..., Lk, dv) -> (..., Lq, dv). key_mask (..., Lk)
        is True where a key takes part. Stabilised by a factor for each query and one for all
        keys, which cancel exactly.
        """
        phi_q = self.scaled_queries(x).mantissa
        mantissa, log_scale = self.scaled_keys(y)
        visible = log_scale.detach()
        if key_mask is not None:
            visible = visible.masked_fill(~key_mask.unsqueeze(-1), -torch.inf)
        phi_k = mantissa * (log_scale - visible.amax(-2, keepdim=True)).exp()
        return linear_attention(phi_q, phi_k, values, key_mask=key_mask)

    def _check_input(self, argument: str, u: Tensor, weight: Tensor) -> None:
        if u.shape[-1] != self.dim:
            raise ValueError(
                f"{argument} must have last dimension {self.dim}, got shape {tuple(u.shape)}"
            )
        if u.dtype != weight.dtype:
            raise ValueError(
                f"{argument} must have the map's dtype {weight.dtype}, got {u.dtype}; "
                "cast either with .to(dtype)"
            )

    def extra_repr(self) -> str:
        return f"dim={self.dim}, num_features={self.num_features}, kernel={self.kernel!r}"
