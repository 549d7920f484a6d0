"""Multi-head attention by random features, with the parameters of `torch.nn.MultiheadAttention`."""

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention.decoding import DecodingState, decode, initial_decoding_state
from attention.features.base import FeatureMap
from attention.masks import is_causal_mask, visible_keys
from attention.matrix import attention_matrix
from attention.precision import working_dtype
from attention.registry import feature_map as build_feature_map


class RandomFeatureAttention(nn.Module):
    """Drop-in for `nn.MultiheadAttention`, in O(L F) time and O(L) memory.

    Same parameter names and shapes, so that a trained module's state loads into it; the random
    vectors are buffers of `feature_map`, one set a head, and keep their values where the state has
    none. Each head estimates softmax attention: queries and keys are scaled by head_dim**-0.25.

    What differs from `nn.MultiheadAttention`:

    * `need_weights` is False by default: the matrix takes O(L^2) time and memory.
    * Dropout takes whole values out of a head, for all queries at once, and scales up the others.
      There is no attention matrix whose entries could be dropped.
    * A sequence whose keys are all padding is an error, or zeros before `out_proj` where compiled;
      softmax gives NaN.
    * Masks other than padding and causal, `add_bias_kv` and `add_zero_attn` are refused.

    Args:
        embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first: as in `nn.MultiheadAttention`.
        feature_map: one of `attention.available()`.
        num_features: m, the number of random vectors a head.
        projection, seed, map_options: of the feature map, see `attention.feature_map`.
        device, dtype: of parameters and random vectors; the latter are float32 at least.

    Raises:
        ValueError: sizes that do not fit, or an option that the map does not take.
    """

    _qkv_same_embed_dim = False
    """`nn.TransformerEncoderLayer` reads this. True would let it compute exact attention from our
    weights, by its fast path, without a call of `forward`."""
    bias_k = None
    bias_v = None

    in_proj_weight: Tensor | None
    q_proj_weight: Tensor | None
    k_proj_weight: Tensor | None
    v_proj_weight: Tensor | None
    in_proj_bias: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feature_map: str = "angular_hybrid",
        num_features: int = 8,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        projection: str | Tensor = "orthogonal",
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **map_options: Any,
    ) -> None:
        super().__init__()
        _check_sizes(embed_dim, num_heads, dropout)
        for argument, value in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if value:
                raise ValueError(f"{argument} must be False, got {value}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = False
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        if self.kdim == embed_dim and self.vdim == embed_dim:
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
                "k_proj_weight": (embed_dim, self.kdim),
                "v_proj_weight": (embed_dim, self.vdim),
            }
        for name, size in sizes.items():
            weight = None if size is None else nn.Parameter(torch.empty(size, **place))
            self.register_parameter(name, weight)
        in_proj_bias = nn.Parameter(torch.empty(3 * embed_dim, **place)) if bias else None
        self.register_parameter("in_proj_bias", in_proj_bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **place)
        self.feature_map: FeatureMap = build_feature_map(
            feature_map,
            self.head_dim,
            num_features,
            projection=projection,
            seed=seed,
            heads=num_heads,
            dtype=working_dtype(dtype or torch.get_default_dtype()),
            device=device,
            **map_options,
        )
        self.reset_parameters()
        self.register_load_state_dict_pre_hook(_keep_random_vectors)

    @classmethod
    def from_multihead(
        cls,
        multihead: nn.MultiheadAttention,
        feature_map: str = "angular_hybrid",
        num_features: int = 8,
        **options: Any,
    ) -> Self:
        """The same attention with the softmax estimated: sizes and weights from `multihead`.

        `options` are those of the constructor that `multihead` does not settle: `projection`,
        `seed` and the map's own. Raises ValueError for a module with bias_k or zero attention.
        """
        weight = multihead.out_proj.weight
        converted = cls(
            multihead.embed_dim,
            multihead.num_heads,
            feature_map,
            num_features,
            dropout=multihead.dropout,
            bias=multihead.in_proj_bias is not None,
            add_bias_kv=multihead.bias_k is not None,
            add_zero_attn=multihead.add_zero_attn,
            kdim=multihead.kdim,
            vdim=multihead.vdim,
            batch_first=multihead.batch_first,
            device=weight.device,
            dtype=weight.dtype,
            **options,
        )
        converted.load_state_dict(multihead.state_dict())
        return converted.train(multihead.training)

    def reset_parameters(self) -> None:
        """The initial values of `nn.MultiheadAttention`."""
        for name, parameter in self.named_parameters(recurse=False):
            if name.endswith("weight"):
                nn.init.xavier_uniform_(parameter)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(batch, L, embed_dim), (batch, S, kdim), (batch, S, vdim) -> (batch, L, embed_dim).

        Tokens come first, (L, batch, embed_dim), unless `batch_first`; without a batch
        (L, embed_dim).

        Args:
            key_padding_mask: (batch, S), True (or -inf) where a key is ignored.
            need_weights: also return the estimated attention matrix, O(L S): (batch, L, S), or
                (batch, heads, L, S) without `average_attn_weights`. Its entries can be negative
                where the map is signed; dropout does not show in it.
            attn_mask: None or the causal mask, boolean or float, as PyTorch's modules pass it.
            is_causal: query i sees keys 0..i. The mask itself may be left out.

        Raises:
            ValueError: inputs or masks that do not fit, or a sequence without any visible key.
        """
        batched = self._check_inputs(query, key, value)
        causal = is_causal or is_causal_mask(attn_mask)
        visible = visible_keys(key_padding_mask)
        q, k, v = self._heads(query, key, value, batched)
        if visible is not None:
            visible = visible.reshape(-1, 1, visible.shape[-1])
            if visible.shape[-1] != k.shape[-2] or visible.shape[0] not in (1, k.shape[0]):
                raise ValueError(
                    f"key_padding_mask must have shape {(k.shape[0], k.shape[-2])}, got "
                    f"{tuple(key_padding_mask.shape) if key_padding_mask is not None else None}"
                )
        if self.training and self.dropout > 0:
            kept = functional.dropout(v.new_ones(*v.shape[:-1], 1), self.dropout)
            attended = self.feature_map.attend(q, k, v * kept, causal=causal, key_mask=visible)
        else:
            attended = self.feature_map.attend(q, k, v, causal=causal, key_mask=visible)
        output = self.out_proj(attended.transpose(-2, -3).flatten(-2))
        weights = None
        if need_weights:
            weights = attention_matrix(self.feature_map, q, k, causal=causal, key_mask=visible)
            weights = weights.mean(-3) if average_attn_weights else weights
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def initial_state(self, batch: int) -> DecodingState:
        """The state before the first token, for `step`."""
        weight = self.out_proj.weight
        return initial_decoding_state(
            self.feature_map,
            (batch, self.num_heads),
            self.head_dim,
            dtype=working_dtype(weight.dtype),
            device=weight.device,
        )

    def step(
        self, query: Tensor, key: Tensor, value: Tensor, state: DecodingState
    ) -> tuple[Tensor, DecodingState]:
        """Causal attention one token at a time: as `forward` with is_causal=True, in O(F dv).

        query (batch, embed_dim), key (batch, kdim), value (batch, vdim) -> output
        (batch, embed_dim) and the next state. Dropout is not applied.
        """
        weights, biases = self._in_projections()
        q, k, v = (
            functional.linear(tokens, weight, bias).unflatten(-1, (self.num_heads, 1, -1))
            for tokens, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        scale = self.head_dim**-0.25
        attended, state = decode(self.feature_map, q * scale, k * scale, v, state)
        return self.out_proj(attended.flatten(-3)), state

    @torch.no_grad()
    def fit(self, query: Tensor, key: Tensor) -> Self:
        """Set the map's data-dependent parameters, head by head, from tokens as in `forward`."""
        batched = self._check_inputs(query, key, None)
        weights, biases = self._in_projections()
        q = self._split(functional.linear(query, weights[0], biases[0]), batched)
        k = self._split(functional.linear(key, weights[1], biases[1]), batched)
        scale = self.head_dim**-0.25
        self.feature_map.fit(q * scale, k * scale)
        return self

    def redraw(self, generator: torch.Generator) -> None:
        """Replace all heads' random vectors by new ones drawn from `generator`."""
        self.feature_map.redraw(generator)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"

    def _heads(
        self, query: Tensor, key: Tensor, value: Tensor, batched: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projected, scaled and split: (batch, heads, L, head_dim) and twice (..., S, head_dim)."""
        if query is key and key is value and self.in_proj_weight is not None:
            parts = functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights, biases = self._in_projections()
            parts = tuple(
                functional.linear(tokens, weight, bias)
                for tokens, weight, bias in zip((query, key, value), weights, biases, strict=True)
            )
        q, k, v = (self._split(part, batched) for part in parts)
        scale = self.head_dim**-0.25
        return q * scale, k * scale, v

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
        return weights, self.in_proj_bias.chunk(3)

    def _split(self, tokens: Tensor, batched: bool) -> Tensor:
        """(batch, L, embed_dim) in the module's layout -> (batch, heads, L, head_dim)."""
        if not batched:
            tokens = tokens.unsqueeze(0)
        elif not self.batch_first:
            tokens = tokens.transpose(0, 1)
        return tokens.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-2, -3)

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor | None) -> bool:
        """Whether there is a batch dimension; raises for inputs that do not fit."""
        inputs = [("query", query, self.embed_dim), ("key", key, self.kdim)]
        inputs += [] if value is None else [("value", value, self.vdim)]
        device = self.out_proj.weight.device
        for argument, tokens, size in inputs:
            if tokens.is_nested:
                raise ValueError(
                    f"{argument} must not be a nested tensor; build nn.TransformerEncoder with "
                    "enable_nested_tensor=False"
                )
            if tokens.ndim not in (2, 3) or tokens.ndim != query.ndim or tokens.shape[-1] != size:
                raise ValueError(
                    f"{argument} must have {query.ndim if query.ndim in (2, 3) else '2 or 3'} "
                    f"dimensions, the last of size {size}, got shape {tuple(tokens.shape)}"
                )
            if tokens.device != device:
                raise ValueError(
                    f"{argument} must be on the module's device {device}, got {tokens.device}"
                )
        return query.ndim == 3


def _check_sizes(embed_dim: int, num_heads: int, dropout: float) -> None:
    for argument, value in (("embed_dim", embed_dim), ("num_heads", num_heads)):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    if embed_dim % num_heads:
        raise ValueError(f"embed_dim must be a multiple of num_heads={num_heads}, got {embed_dim}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout}")


def _keep_random_vectors(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any
) -> None:
    """Before a state without any random vectors (softmax attention's) loads: add our own."""
    prefix = f"{prefix}feature_map."
    if any(name.startswith(prefix) for name in state_dict):
        return
    assert isinstance(module, RandomFeatureAttention)
    for name, value in module.feature_map.state_dict().items():
        state_dict[prefix + name] = value
