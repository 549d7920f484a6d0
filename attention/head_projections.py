"""Linear projections of multi-head attention, from tokens to heads and back."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention.grouped import joined_heads, split_keys, split_queries
from attention.module_checks import check_inputs, check_kv_heads, check_length

_NO_LENGTH = 1e-12
"""Tokens shorter than this are not scaled to `qk_length`."""


class HeadProjections(nn.Module):
    """Parameters with the names and shapes of `nn.MultiheadAttention`, and the projections they
    define.

    The arguments are those of `attention.RandomFeatureAttention`, with checked sizes.
    """

    _qkv_same_embed_dim = False
    """Read by `nn.TransformerEncoderLayer`. With True its fast path would compute exact attention
    from the weights without calling `forward`."""

    in_proj_weight: Tensor | None
    q_proj_weight: Tensor | None
    k_proj_weight: Tensor | None
    v_proj_weight: Tensor | None
    in_proj_bias: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        bias: bool,
        kdim: int | None,
        vdim: int | None,
        batch_first: bool,
        qk_length: float | None,
        num_kv_heads: int | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.num_kv_heads = check_kv_heads(num_heads, num_kv_heads)
        self._kv_dim = self.num_kv_heads * self.head_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first = batch_first
        self.qk_length = check_length(qk_length)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        if self.kdim == self.vdim == self._kv_dim == embed_dim:
            sizes: dict[str, tuple[int, int] | None] = {
                "in_proj_weight": (3 * embed_dim, embed_dim),
                "q_proj_weight": None,
                "k_proj_weight": None,
                "v_proj_weight": None,
            }
        else:
            sizes = {
                "in_proj_weight": None,
                "q_proj_weight": (embed_dim, embed_dim),
                "k_proj_weight": (self._kv_dim, self.kdim),
                "v_proj_weight": (self._kv_dim, self.vdim),
            }
        for name, size in sizes.items():
            weight = None if size is None else nn.Parameter(torch.empty(size, **place))
            self.register_parameter(name, weight)
        entries = embed_dim + 2 * self._kv_dim
        in_proj_bias = nn.Parameter(torch.empty(entries, **place)) if bias else None
        self.register_parameter("in_proj_bias", in_proj_bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **place)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of the feature map: tokens as in `forward`, projected, scaled and split
        by head.

        Queries (batch, heads, L, head_dim), keys and values (batch, heads, S, head_dim),
        independent of `batch_first`; with fewer key heads (batch, heads / num_kv_heads,
        num_kv_heads, L, head_dim) and (batch, 1, num_kv_heads, S, head_dim). Unbatched tokens give
        a batch of size 1.
        """
        if query is key and key is value and self.in_proj_weight is not None:
            parts = functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights, biases = self._in_projections()
            parts = tuple(
                functional.linear(tokens, weight, bias)
                for tokens, weight, bias in zip((query, key, value), weights, biases, strict=True)
            )
        q, k, v = (self._split(part, query.ndim == 3) for part in parts)
        return self._grouped(self._scaled(q), self._scaled(k), v)

    def _reset_weights(self) -> None:
        for name, parameter in self.named_parameters(recurse=False):
            if name.endswith("weight"):
                nn.init.xavier_uniform_(parameter)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def _input_weight(self) -> Tensor:
        """The parameter whose device and dtype the inputs must have; quantisers may replace
        `out_proj`."""
        weight = self.q_proj_weight if self.in_proj_weight is None else self.in_proj_weight
        assert weight is not None
        return weight

    def _joined(self, attended: Tensor, batched: bool) -> Tensor:
        """Join heads (batch, heads, L, head_dim) and project them, in the module's layout."""
        output: Tensor = self.out_proj(joined_heads(attended).transpose(-2, -3).flatten(-2))
        if not batched:
            return output.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1)

    def _scaled(self, tokens: Tensor) -> Tensor:
        """Scale queries or keys (..., head_dim) for the kernel."""
        if self.qk_length is None:
            return tokens * self.head_dim**-0.25
        length = torch.linalg.vector_norm(tokens, dim=-1, keepdim=True)
        # Padding projects to zero: a zero vector keeps its length, so that its gradient is finite.
        return tokens * (self.qk_length / length.masked_fill(length < _NO_LENGTH, 1.0))

    def _in_projections(self) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Weights and biases of queries, keys and values."""
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            assert self.q_proj_weight is not None
            assert self.k_proj_weight is not None
            assert self.v_proj_weight is not None
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_bias is None:
            return weights, (None, None, None)
        return weights, self.in_proj_bias.split((self.embed_dim, self._kv_dim, self._kv_dim))

    def _split(self, tokens: Tensor, batched: bool) -> Tensor:
        """(batch, L, heads * head_dim) in the module's layout -> (batch, heads, L, head_dim)."""
        if not batched:
            tokens = tokens.unsqueeze(0)
        elif not self.batch_first:
            tokens = tokens.transpose(0, 1)
        return tokens.unflatten(-1, (-1, self.head_dim)).transpose(-2, -3)

    def _grouped(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Heads as the feature map takes them: those of keys, with a dimension for the groups."""
        heads, kv_heads = self.num_heads, self.num_kv_heads
        return split_queries(q, kv_heads), split_keys(k, heads), split_keys(v, heads)

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor | None) -> bool:
        """Whether the inputs have a batch dimension. Raises ValueError for inputs that do not
        fit."""
        inputs = [("query", query, self.embed_dim), ("key", key, self.kdim)]
        inputs += [] if value is None else [("value", value, self.vdim)]
        check_inputs(inputs, self._input_weight(), self.batch_first)
        return query.ndim == 3
