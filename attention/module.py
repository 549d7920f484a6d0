"""Multi-head attention with random features and the parameters of `torch.nn.MultiheadAttention`."""

import inspect
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention.components import SCORE, component
from attention.custom_maps import as_given
from attention.decoding import DecodingState, decode, initial_decoding_state, prefill
from attention.exact import ExactSoftmax
from attention.features.base import FeatureMap
from attention.grouped import joined_heads
from attention.head_projections import HeadProjections
from attention.masks import is_causal_mask, visible_keys, visible_tokens
from attention.matrix import attention_matrix
from attention.module_checks import check_options, check_sizes
from attention.module_weights import copy_weights
from attention.precision import working_dtype
from attention.registry import Maker, check_map_options
from attention.registry import feature_map as build_feature_map

_SETTLED = tuple(inspect.signature(nn.MultiheadAttention).parameters)
"""Arguments that `from_multihead` copies from the given module."""
_EXACT = "softmax"
"""Name that selects exact attention instead of a feature map."""


class RandomFeatureAttention(HeadProjections):
    """Drop-in replacement for `nn.MultiheadAttention` in O(L F) time and O(L) memory.

    The parameter names and shapes are the same, so the state of a trained module loads into it. The
    random vectors are buffers of `feature_map`, one set per head, and keep their values if the
    state does not contain them. Each head estimates softmax attention: queries and keys are scaled
    by head_dim**-0.25, or to a fixed length by `qk_length`.

    Differences from `nn.MultiheadAttention`:

    * `need_weights` is False by default: the matrix takes O(L^2) time and memory.
    * Dropout removes whole values from a head, for all queries at once, and scales up the others.
      There is no attention matrix whose entries could be dropped.
    * The output of a query that sees no key, for example because all keys of a sequence are
      padding, is `out_proj.bias`, and its weights are zeros. `nn.MultiheadAttention` does the same
      with need_weights=False and returns NaN with need_weights=True.
    * Masks other than padding and causal masks, `add_bias_kv` and `add_zero_attn` raise ValueError.
      A mask that masks nothing counts as None; values of -1e4 and below in float masks count as
      -inf.

    `to_multihead` returns an `nn.MultiheadAttention` with the weights. The state also loads into a
    module with feature_map="softmax", which ignores the random vectors.

    Args:
        embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first: as in `nn.MultiheadAttention`.
        feature_map: one of `attention.available()`; a custom map, as "module:Class", as a class or
            function that creates it (see `attention.feature_map`), or as a FeatureMap of dim
            head_dim, which becomes a submodule; or "softmax" for exact attention with the same
            parameters, in O(L^2) time, for comparisons. For the last two `num_features`,
            `projection` and `seed` are ignored.
        num_features: m, the number of random vectors per head.
        num_kv_heads: number of heads of keys and values, which divides num_heads (default): query
            heads 0 to num_heads / num_kv_heads - 1 share the first of them, as with `enable_gqa` in
            PyTorch, and its random vectors. Keys and values then have separate projections,
            `k_proj_weight` (num_kv_heads * head_dim, kdim) and `v_proj_weight`.
        qk_length: Euclidean length to which the queries and keys of every head are scaled, instead
            of by the factor head_dim**-0.25; Hybrid Random Features, appendix K, uses 1 on robots.
        projection, seed, map_options: options of the feature map, see `attention.feature_map`.
            `heads` is not among them: it is num_kv_heads.
        device, dtype: of the parameters and random vectors; random vectors are at least float32.

    Raises:
        ValueError: if the sizes do not fit, the map does not have an option, or `feature_map` is
            not a map of dim head_dim.
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
        num_kv_heads: int | None = None,
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
            num_kv_heads=num_kv_heads,
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
                feature_map, self.head_dim, self.num_kv_heads, map_options, device, cast
            )
        else:
            self.feature_map = build_feature_map(
                feature_map,
                self.head_dim,
                num_features,
                projection=projection,
                seed=seed,
                heads=self.num_kv_heads,
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
        """Create the module from an `nn.MultiheadAttention`, with its sizes and weights.

        Weights that are normalised or pruned by `torch.nn.utils` are copied as they are used.
        Afterwards call `fit` on a batch, which sets the parameters of the default map, then
        fine-tune: the weights were not trained with the errors of an estimate. Hybrids with few
        vectors are meant for token scores; with wide heads they are far from exact attention (see
        docs/guide/attention.md). Training flags and requires_grad are kept.

        `options` are the constructor options that `multihead` does not determine: `projection`,
        `seed` and those of the map.

        Raises:
            ValueError: if the module has another type, bias_k or zero attention, or if an option is
                determined by `multihead`.
        """
        if not isinstance(multihead, nn.MultiheadAttention):
            raise ValueError(
                f"multihead must be an nn.MultiheadAttention, got {type(multihead).__name__}"
            )
        check_options(
            options, dict.fromkeys(_SETTLED, "follows multihead"), "options of from_multihead"
        )
        converted = cls(
            feature_map=feature_map,
            num_features=num_features,
            add_bias_kv=multihead.bias_k is not None,
            add_zero_attn=multihead.add_zero_attn,
            **_sizes(multihead, multihead.out_proj.weight),
            **options,
        )
        copy_weights(multihead, converted)
        return converted

    def to_multihead(self) -> nn.MultiheadAttention:
        """Return an `nn.MultiheadAttention` with copies of the weights: exact softmax attention.

        Training flags and requires_grad are kept. Raises ValueError for a module with `qk_length`
        or `num_kv_heads`, which `nn.MultiheadAttention` does not have.
        """
        if self.num_kv_heads != self.num_heads:
            raise ValueError(
                f"num_kv_heads must be num_heads, {self.num_heads}, for nn.MultiheadAttention, got "
                f"{self.num_kv_heads}"
            )
        if self.qk_length is not None:
            raise ValueError(
                f"qk_length must be None for nn.MultiheadAttention, got {self.qk_length}"
            )
        multihead = nn.MultiheadAttention(**_sizes(self, self._input_weight()))
        copy_weights(self, multihead)
        return multihead

    def reset_parameters(self) -> None:
        """Reset the parameters as `nn.MultiheadAttention` does, and the buffers of the feature
        map."""
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
        segment_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention: (batch, L, embed_dim), (batch, S, kdim), (batch, S, vdim) -> (batch,
        L, embed_dim).

        Without `batch_first` the layout is (L, batch, embed_dim); unbatched tokens are (L,
        embed_dim). L = 0 gives an empty output. All inputs have the dtype of the parameters, or a
        dtype that autocast supports.

        `torch.export` supports a dynamic L. With is_causal=True a graph with a dynamic L takes
        O(L^2), since it has no loop over chunks of tokens; for a static L the loop is unrolled.
        `step` does not depend on L.

        Args:
            key_padding_mask: (batch, S), True (or -1e4 and below) where a key is ignored.
            need_weights: also return the estimated attention matrix, O(L S): (batch, L, S), or
                (batch, heads, L, S) without `average_attn_weights`. Its entries can be negative if
                the map is signed; dropout is not applied to it.
            attn_mask: None, the causal mask, boolean or float, or a mask that masks nothing: (L,
                S), or (batch * heads, L, S). Its values are read, so omitting it is faster; where
                they cannot be read, compiled or under `torch.vmap`, it requires is_causal=True.
            is_causal: query i sees keys 0..i. The mask may be omitted.
            segment_ids: integers (batch, L) or (L,), for rows of packed sequences: tokens see only
                those with the same number; 0 is padding. Needs L = S, and neither padding mask nor
                weights.

        Raises:
            ValueError: if inputs or masks do not fit, or there are queries but no keys.
        """
        batched = self._check_inputs(query, key, value)
        q, k, v = self.project(query, key, value)
        sequences = k.shape[0] * self.num_heads
        causal = is_causal_mask(attn_mask, q.shape[-2], k.shape[-2], is_causal, sequences)
        visible = self._visible(visible_keys(key_padding_mask, k.shape[0], k.shape[-2]))
        if self.training and self.dropout > 0:
            v = v * functional.dropout(v.new_ones(*v.shape[:-1], 1), self.dropout)
        packed = {} if segment_ids is None else {"segment_ids": segment_ids}
        if packed and need_weights:
            raise ValueError("need_weights must be False with segment_ids, got True")
        with component(SCORE):
            attended = self.feature_map.attend(q, k, v, causal=causal, key_mask=visible, **packed)
        output = self._joined(attended, batched)
        weights = self._matrix(q, k, causal, visible) if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(-3)
        return output, weights if weights is None or batched else weights.squeeze(0)

    def initial_state(self, batch: int) -> DecodingState:
        """Return the state before the first token, for `step` and `prefill`."""
        weight = self._input_weight()
        return initial_decoding_state(
            self._random_features(),
            self._key_heads(batch),
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
        """Causal attention over many tokens that continue from `state`, at the speed of `forward`.

        Tokens, layout, mask and output are as in `forward` with is_causal=True, which it equals on
        an initial state. Also returns the next state, from which `step` or `prefill` continues.
        Padding does not change the state. Dropout is not applied. Raises ValueError as `forward`
        does.
        """
        batched = self._check_inputs(query, key, value)
        q, k, v = self.project(query, key, value)
        visible = self._visible(visible_keys(key_padding_mask, k.shape[0], k.shape[-2]))
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
        """Causal attention over one token: equal to `forward` with is_causal=True, in O(F dv).

        query (batch, embed_dim), key (batch, kdim), value (batch, vdim) -> output (batch,
        embed_dim) and the next state. key_padding_mask (batch,) is True, or -1e4 and below, where
        the token is padding: the state does not change, and the query attends to the earlier keys.
        Dropout is not applied. Raises ValueError for tokens that do not fit.

        The state adds up in the module's dtype, one token at a time: in float32 a mean over a
        million steps may be 1 % off. `prefill`, which adds blocks, and a module in float64 are not.
        """
        if query.ndim != 2:
            raise ValueError(f"query must have shape (batch, embed_dim), got {tuple(query.shape)}")
        self._check_inputs(query, key, value)
        weights, biases = self._in_projections()
        q, k, v = (
            functional.linear(tokens, weight, bias).unflatten(-1, (-1, 1, self.head_dim))
            for tokens, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        visible = self._visible(visible_tokens(key_padding_mask, q.shape[0]))
        heads = self._grouped(self._scaled(q), self._scaled(k), v)
        attended, state = decode(self._random_features(), *heads, state, visible)
        return self.out_proj(joined_heads(attended).flatten(-3)), state

    @torch.no_grad()
    def fit(self, query: Tensor, key: Tensor) -> Self:
        """Set the data-dependent parameters of the map, per head, from tokens as in `forward`.

        All tokens count: leave out padding.
        """
        batched = self._check_inputs(query, key, None)
        weights, biases = self._in_projections()
        q = self._split(functional.linear(query, weights[0], biases[0]), batched)
        k = self._split(functional.linear(key, weights[1], biases[1]), batched)
        # All queries of a group belong to the same head of the map.
        q = q.unflatten(1, (self.num_kv_heads, -1)).flatten(2, 3)
        self.feature_map.fit(self._scaled(q), self._scaled(k))
        return self

    def redraw(self, generator: torch.Generator) -> None:
        """Replace the random vectors of all heads by new ones drawn from `generator`."""
        self.feature_map.redraw(generator)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"

    def _matrix(self, q: Tensor, k: Tensor, causal: bool, visible: Tensor | None) -> Tensor:
        """Return the attention matrix (batch, heads, L, S)."""
        if isinstance(self.feature_map, ExactSoftmax):  # mixing unit vectors gives it
            units = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device).expand(*k.shape[:-1], -1)
            matrix = self.feature_map.attend(q, k, units, causal=causal, key_mask=visible)
        else:
            matrix = attention_matrix(self.feature_map, q, k, causal=causal, key_mask=visible)
        return joined_heads(matrix)

    def _key_heads(self, batch: int) -> tuple[int, ...]:
        """Leading dimensions of keys."""
        grouped = self.num_kv_heads != self.num_heads
        return (batch, 1, self.num_kv_heads) if grouped else (batch, self.num_heads)

    def _visible(self, visible: Tensor | None) -> Tensor | None:
        """A mask (batch, 1, S), or (S,), for keys of these dimensions."""
        if visible is None or visible.ndim == 1 or self.num_kv_heads == self.num_heads:
            return visible
        return visible.unsqueeze(1)

    def _random_features(self) -> FeatureMap:
        if isinstance(self.feature_map, ExactSoftmax):
            raise ValueError("feature_map must have random features for step, got softmax")
        return self.feature_map


def _sizes(
    module: "RandomFeatureAttention | nn.MultiheadAttention", weight: Tensor
) -> dict[str, Any]:
    """The arguments that modules of one size share, with the device and dtype of a weight."""
    names = ("embed_dim", "num_heads", "dropout", "kdim", "vdim", "batch_first")
    found = {name: getattr(module, name) for name in names}
    bias = module.in_proj_bias is not None
    return found | {"bias": bias, "device": weight.device, "dtype": weight.dtype}


def _keep_random_vectors(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], *_: Any
) -> None:
    """Before loading a state without random vectors, from softmax attention, add the current ones;
    softmax attention ignores those of a state that has them.

    Random vectors on the meta device are created on the device of the assigned weights. Raises
    ValueError for vectors that were given as tensors on the meta device and have no values.
    """
    own = f"{prefix}feature_map."
    assert isinstance(module, RandomFeatureAttention)
    features = module.feature_map
    given = [name for name in state_dict if name.startswith(own)]
    if isinstance(features, ExactSoftmax):
        for name in given:
            del state_dict[name]
        return
    if given:
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
