"""Exact softmax attention with the interface of a feature map."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from attention.options import check_count
from attention.packed import attend_packed
from attention.precision import working_dtype
from attention.scores import softmax_token_scores
from attention.token_checks import check_tokens
from attention.tracing import is_plain


class ExactSoftmax(nn.Module):
    """The exact kernel exp(x.y), without features: O(L^2) time, O(L) memory for scores.

    Args:
        dim: d, dimension of queries and keys.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = check_count("dim", dim)

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Return sum_i exp(x_i.y_j): x (..., Lq, d), y (..., Lk, d) -> (..., Lk)."""
        self._check_input(x, y)
        return softmax_token_scores(x, y)

    def attend(
        self,
        x: Tensor,
        y: Tensor,
        values: Tensor,
        *,
        causal: bool = False,
        key_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Return softmax(x y^T) values, without the scaling d**-0.5 of Transformers.

        x (..., L, d), y (..., S, d), values (..., S, dv) -> (..., L, dv) in the values' dtype.
        `causal`: query i sees keys 0..i, and L = S. key_mask (..., S) is True where a key takes
        part; segment_ids as in `FeatureMap.attend`. A query that sees no key gets zeros. Mixed
        dtypes of float16, bfloat16 and float32 are computed in float32.
        """
        self._check_input(x, y)
        if segment_ids is not None:
            return attend_packed(
                self.attend, x, y, values, segment_ids, causal=causal, key_mask=key_mask
            )
        check_tokens(x, y, values, causal, key_mask)
        dtype = values.dtype
        if not x.dtype == y.dtype == dtype:
            x, y, values = (tokens.to(working_dtype(tokens.dtype)) for tokens in (x, y, values))
        mask = blind = None
        if key_mask is not None:
            mask = key_mask.unsqueeze(-2)
            hidden = ~key_mask.unsqueeze(-1)
            y, values = y.masked_fill(hidden, 0), values.masked_fill(hidden, 0)
            if causal:
                mask = mask & mask.new_ones(x.shape[-2], x.shape[-2]).tril()
            # Rows that see no key are computed with all keys and set to zero: softmax over no key
            # is NaN.
            blind = ~mask.any(-1, keepdim=True)
            mask = mask | blind
        attended = _attend(x, y, values, mask, causal and mask is None)
        return (attended if blind is None else attended.masked_fill(blind, 0)).to(dtype)

    def redraw(self, generator: torch.Generator) -> None:
        """Does nothing: the exact kernel has no random vectors."""

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Does nothing: the exact kernel has no data-dependent parameters."""
        return self

    def _check_input(self, x: Tensor, y: Tensor) -> None:
        for argument, u in (("x", x), ("y", y)):
            if u.shape[-1] != self.dim:
                raise ValueError(
                    f"{argument} must have last dimension {self.dim}, got shape {tuple(u.shape)}"
                )

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def _attend(x: Tensor, y: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(x y^T) values; mask (..., L, S) is True where a key takes part."""
    tokens = (x, y, values)
    if not torch.compiler.is_compiling():
        if not is_plain(*tokens):
            return _by_parts(*tokens, mask, causal)
        if torch.is_grad_enabled() and any(t.requires_grad for t in tokens):
            attended: Tensor = _Twice.apply(*tokens, mask, causal)
            return attended
    return _fused(*tokens, mask, causal)


def _fused(x: Tensor, y: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    return nn.functional.scaled_dot_product_attention(
        x, y, values, attn_mask=mask, is_causal=causal, scale=1.0
    )


def _by_parts(x: Tensor, y: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The same from elementary operations, which have all derivatives."""
    scores = x @ y.mT
    if causal:
        mask = torch.ones_like(scores[..., :1, :1], dtype=torch.bool).expand_as(scores).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ values


class _Twice(torch.autograd.Function):
    """The fused product, which PyTorch differentiates once, with derivatives of any order."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, values: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        ctx.save_for_backward(x, y, values, mask)
        ctx.causal = causal
        with torch.enable_grad():
            x, y, values = (t.detach().requires_grad_() for t in (x, y, values))
            ctx.leaves, ctx.attended = (x, y, values), _fused(x, y, values, mask, causal)
        attended: Tensor = ctx.attended.detach()
        return attended

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, values, mask = ctx.saved_tensors
        tokens, attended = ctx.leaves, ctx.attended
        if torch.is_grad_enabled():  # the gradient is differentiated again
            tokens, attended = (x, y, values), _by_parts(x, y, values, mask, ctx.causal)
        needed = [t for t, wanted in zip(tokens, ctx.needs_input_grad, strict=False) if wanted]
        found = iter(
            torch.autograd.grad(
                attended, needed, grad, retain_graph=True, create_graph=torch.is_grad_enabled()
            )
        )
        return *(next(found) if wanted else None for wanted in ctx.needs_input_grad[:3]), None, None
