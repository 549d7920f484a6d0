"""Multi-head attention by random features, with the parameters of `torch.nn.MultiheadAttention`."""

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention.components import SCORE, component
from attention.decoding import DecodingState, decode, initial_decoding_state, prefill
from attention.exact import ExactSoftmax
from attention.features.base import FeatureMap
from attention.head_projections import HeadProjections
from attention.masks import is_causal_mask, visible_keys, visible_tokens
from attention.matrix import attention_matrix
from attention.module_checks import check_options, check_sizes
from attention.own_maps import as_given
from attention.precision import working_dtype
from attention.registry import Maker, check_map_options
from attention.registry import feature_map as build_feature_map

_SETTLED = (
    "embed_dim",
    "num_heads",
    "dropout",
    "bias",
    "add_bias_kv",
    "add_zero_attn",
    "kdim",
    "vdim",
    "batch_first",
    "device",
    "dtype",
)
"""Arguments that `from_multihead` takes from the module that it converts."""
_EXACT = "softmax"
"""Name under which exact attention is chosen in place of a feature map."""


class RandomFeatureAttention(HeadProjections):
    """Drop-in for `nn.MultiheadAttention`, in O(L F) time and O(L) memory.

    Same parameter names and shapes, so that a trained module's state loads into it; the random
    vectors are buffers of `feature_map`, one set a head, and keep their values where the state has
    none. Each head estimates softmax attention: queries and keys are scaled by head_dim**-0.25, or
    to one length by `qk_length`.

    What differs from `nn.MultiheadAttention`:

    * `need_weights` is False by default: the matrix takes O(L^2) time and memory.
    * Dropout takes whole values out of a head, for all queries at once, and scales up the others.
      There is no attention matrix whose entries could be dropped.
    * A query that sees no key, as where all keys of a sequence are padding, attends to nothing: its
      output is `out_proj.bias` and its weights are zeros. So does `nn.MultiheadAttention` with
      need_weights=False; with need_weights=True it gives NaN.
    * Masks other than padding and causal, `add_bias_kv` and `add_zero_attn` are refused. A mask
      that masks nothing counts as None; values of -1e4 and below in float masks count as -inf.

    Its own state loads back into `nn.MultiheadAttention` with strict=False, which leaves out the
    random vectors.

    Args:
        embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first: as in `nn.MultiheadAttention`.
        feature_map: one of `attention.available()`; or a map of your own, by "module:Class", as a
            class or function that makes it (see `attention.feature_map`) or as a FeatureMap of dim
            head_dim, which becomes a part of this module; or "softmax": exact attention with the
            same parameters, in O(L^2) time, for comparisons. For the last two `num_features`,
            `projection` and `seed` mean nothing.
        num_features: m, the number of random vectors a head.
        qk_length: Euclidean length that every head's queries and keys are scaled to, instead of
            the factor head_dim**-0.25; Hybrid Random Features, appendix K, uses 1 on its robots.
        projection, seed, map_options: of the feature map, see `attention.feature_map`; without
            `heads`, which is num_heads.
        device, dtype: of parameters and random vectors; the latter are float32 at least.

    Raises:
        ValueError: sizes that do not fit, an option that the map does not take, or what is no map
            of dim head_dim.
    """

    bias_k = None
    bias_v = None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feature_map: str | Maker | FeatureMap | ExactSoftmax = "angular_hybrid",
        num_features: int = 8,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        qk_length: float | None = None,
        projection: str | Tensor = "orthogonal",
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **map_options: Any,
    ) -> None:
        check_options(
            map_options,
            {
                "name": "follows feature_map",
                "dim": "follows embed_dim and num_heads",
                "heads": "follows num_heads",
            },
            "map_options",
        )
        settled = ("dim", "num_features", "projection", "seed", "heads", "device", "dtype")
        exact = isinstance(feature_map, str) and feature_map == _EXACT
        if exact and map_options:
            raise ValueError(f"feature_map softmax takes no options, got {', '.join(map_options)}")
        if not (exact or isinstance(feature_map, FeatureMap | ExactSoftmax)):
            check_map_options(feature_map, map_options, settled)
        check_sizes(embed_dim, num_heads, dropout)
        for argument, value in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if value:
                raise ValueError(f"{argument} must be False, got {value}")
        super().__init__(
            embed_dim,
            num_heads,
            bias=bias,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            qk_length=qk_length,
            device=device,
            dtype=dtype,
        )
        self.dropout = dropout
        self.add_zero_attn = False
        own_dtype = working_dtype(dtype or torch.get_default_dtype())
        self.feature_map: FeatureMap | ExactSoftmax
        if exact:
            self.feature_map = ExactSoftmax(self.head_dim)
        elif isinstance(feature_map, FeatureMap | ExactSoftmax):
            cast = None if dtype is None else own_dtype
            self.feature_map = as_given(
                feature_map, self.head_dim, num_heads, map_options, device, cast
            )
        else:
            self.feature_map = build_feature_map(
                feature_map,
                self.head_dim,
                num_features,
                projection=projection,
                seed=seed,
                heads=num_heads,
                dtype=own_dtype,
                device=device,
                **map_options,
            )
        self._reset_weights()
        self.register_load_state_dict_pre_hook(_keep_random_vectors)

    @classmethod
    def from_multihead(
        cls,
        multihead: nn.MultiheadAttention,
        feature_map: str | Maker | FeatureMap | ExactSoftmax = "oprf",
        num_features: int = 256,
        **options: Any,
    ) -> Self:
        """The same attention with the softmax estimated: sizes and weights from `multihead`.

        Call `fit` on a batch afterwards, which sets the default map's parameters, then fine-tune:
        weights trained with exact softmax do not expect an estimate's errors. Hybrids with few
        vectors are for token scores; with wide heads they are far from exact attention (see
        docs/guide/attention.md). Training flags and requires_grad are kept.

        `options` are those of the constructor that `multihead` does not settle: `projection`,
        `seed` and the map's own.

        Raises:
            ValueError: another type of module, one with bias_k or zero attention, or an option
                that `multihead` settles.
        """
        if not isinstance(multihead, nn.MultiheadAttention):
            raise ValueError(
                f"multihead must be an nn.MultiheadAttention, got {type(multihead).__name__}"
            )
        check_options(
            options, dict.fromkeys(_SETTLED, "follows multihead"), "options of from_multihead"
        )
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
        for name, parameter in multihead.named_parameters():
            converted.get_parameter(name).requires_grad_(parameter.requires_grad)
        return converted.train(multihead.training)

    def reset_parameters(self) -> None:
        """The initial values of `nn.MultiheadAttention`, and of the feature map's buffers."""
        self._reset_weights()
        if isinstance(self.feature_map, FeatureMap):
            self.feature_map.reset_parameters()

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
        (L, embed_dim). L = 0 gives an empty output. All are in the parameters' dtype, or under
        autocast in another of its.

        `torch.export` takes any L. With is_causal=True a graph for any L takes O(L^2), as it has no
        loop over chunks of tokens; for the L of the example they are unrolled. `step` has no L.

        Args:
            key_padding_mask: (batch, S), True (or -1e4 and below) where a key is ignored.
            need_weights: also return the estimated attention matrix, O(L S): (batch, L, S), or
                (batch, heads, L, S) without `average_attn_weights`. Its entries can be negative
                where the map is signed; dropout does not show in it.
            attn_mask: None or the causal mask, boolean or float, as PyTorch's modules pass it, or
                one that masks nothing: (L, S), or (batch * heads, L, S). Its values are read, so
                that leaving it out is faster; where they cannot be, compiled or under `torch.vmap`,
                it needs is_causal=True beside it.
            is_causal: query i sees keys 0..i. The mask itself may be left out.

        Raises:
            ValueError: inputs or masks that do not fit, or no key for a query.
        """
        batched = self._check_inputs(query, key, value)
        q, k, v = self.project(query, key, value)
        sequences = k.shape[0] * self.num_heads
        causal = is_causal_mask(attn_mask, q.shape[-2], k.shape[-2], is_causal, sequences)
        visible = visible_keys(key_padding_mask, k.shape[0], k.shape[-2])
        if self.training and self.dropout > 0:
            v = v * functional.dropout(v.new_ones(*v.shape[:-1], 1), self.dropout)
        with component(SCORE):
            attended = self.feature_map.attend(q, k, v, causal=causal, key_mask=visible)
        output = self._joined(attended, batched)
        weights = self._matrix(q, k, causal, visible) if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(-3)
        return output, weights if weights is None or batched else weights.squeeze(0)

    def initial_state(self, batch: int) -> DecodingState:
        """The state before the first token, for `step`."""
        weight = self._input_weight()
        return initial_decoding_state(
            self._random_features(),
            (batch, self.num_heads),
            self.head_dim,
            dtype=working_dtype(weight.dtype),
            device=weight.device,
        )

    def prefill(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: DecodingState,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """Causal attention over many tokens that go on from `state`, at the speed of `forward`.

        Tokens, their layout, the mask and the output as in `forward` with is_causal=True, which it
        equals on an initial state; and the next state, from which `step` or `prefill` goes on.
        Padding leaves the state as it is. Dropout is not applied. Raises ValueError as `forward`.
        """
        batched = self._check_inputs(query, key, value)
        q, k, v = self.project(query, key, value)
        visible = visible_keys(key_padding_mask, k.shape[0], k.shape[-2])
        attended, state = prefill(self._random_features(), q, k, v, state, visible)
        return self._joined(attended, batched), state

    def step(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: DecodingState,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """Causal attention one token at a time: as `forward` with is_causal=True, in O(F dv).

        query (batch, embed_dim), key (batch, kdim), value (batch, vdim) -> output
        (batch, embed_dim) and the next state. key_padding_mask (batch,) is True, or -1e4 and below,
        where the token is padding: the state stays as it is, and the query is answered from the
        keys before it. Dropout is not applied. Raises ValueError for tokens that do not fit.
        """
        if query.ndim != 2:
            raise ValueError(f"query must have shape (batch, embed_dim), got {tuple(query.shape)}")
        self._check_inputs(query, key, value)
        weights, biases = self._in_projections()
        q, k, v = (
            functional.linear(tokens, weight, bias).unflatten(-1, (self.num_heads, 1, -1))
            for tokens, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        visible = visible_tokens(key_padding_mask, q.shape[0])
        attended, state = decode(
            self._random_features(), self._scaled(q), self._scaled(k), v, state, visible
        )
        return self.out_proj(attended.flatten(-3)), state

    @torch.no_grad()
    def fit(self, query: Tensor, key: Tensor) -> Self:
        """Set the map's data-dependent parameters, head by head, from tokens as in `forward`.

        All of them count: leave padding out.
        """
        batched = self._check_inputs(query, key, None)
        weights, biases = self._in_projections()
        q = self._split(functional.linear(query, weights[0], biases[0]), batched)
        k = self._split(functional.linear(key, weights[1], biases[1]), batched)
        self.feature_map.fit(self._scaled(q), self._scaled(k))
        return self

    def redraw(self, generator: torch.Generator) -> None:
        """Replace all heads' random vectors by new ones drawn from `generator`."""
        self.feature_map.redraw(generator)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"

    def _matrix(self, q: Tensor, k: Tensor, causal: bool, visible: Tensor | None) -> Tensor:
        """The attention matrix (batch, heads, L, S)."""
        if isinstance(self.feature_map, ExactSoftmax):  # mixing unit vectors gives it
            units = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device).expand(*k.shape[:-1], -1)
            return self.feature_map.attend(q, k, units, causal=causal, key_mask=visible)
        return attention_matrix(self.feature_map, q, k, causal=causal, key_mask=visible)

    def _random_features(self) -> FeatureMap:
        if isinstance(self.feature_map, ExactSoftmax):
            raise ValueError("feature_map must be a random one for step, got softmax")
        return self.feature_map


def _keep_random_vectors(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], *_: Any
) -> None:
    """Before a state without any random vectors (softmax attention's) loads: add our own.

    Those on the meta device are made where the weights to be assigned are. Raises ValueError for
    those without numbers, which were given as tensors on the meta device.
    """
    own = f"{prefix}feature_map."
    assert isinstance(module, RandomFeatureAttention)
    features = module.feature_map
    if isinstance(features, ExactSoftmax) or any(name.startswith(own) for name in state_dict):
        return
    weight = state_dict.get(f"{prefix}out_proj.weight")
    if metadata.get("assign_to_params_buffers") and isinstance(weight, Tensor):
        features.materialise(weight.device)
    for name, value in features.state_dict().items():
        if not value.is_meta and bool(value.isnan().any()):
            raise ValueError(
                f"the state must hold {own}{name}, which was given as a tensor on the meta device, "
                "where there are no numbers"
            )
        state_dict[own + name] = value
