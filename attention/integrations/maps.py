"""Feature maps as parts of models of other libraries, and attention with them."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from attention.components import SCORE, component
from attention.decoding import DecodingState, decode, initial_decoding_state, prefill
from attention.exact import ExactSoftmax
from attention.features.base import FeatureMap
from attention.grouped import joined_heads, split_keys, split_queries
from attention.integrations import fitting
from attention.precision import working_dtype
from attention.registry import feature_map as build

Features = FeatureMap | ExactSoftmax


def attach(module: nn.Module, dim: int, heads: int, seed: int, settings: dict[str, Any]) -> None:
    """Add the map of an attention layer as `feature_map`, with the layer's device and dtype."""
    parameter = next(module.parameters())
    features: Features
    if settings["feature_map"] == "softmax":
        features = ExactSoftmax(dim)
    else:
        settings = dict(settings)
        features = build(
            settings.pop("feature_map"),
            dim,
            settings.pop("num_features"),
            seed=seed,
            heads=heads,
            dtype=working_dtype(parameter.dtype),
            device=parameter.device,
            **settings,
        )
    module.feature_map = features
    hide(features)


def hide(features: nn.Module) -> None:
    """Keep a map out of the state dict of the model that holds it, but not out of its own."""
    features.register_state_dict_post_hook(_leave_out)
    features.register_load_state_dict_pre_hook(_keep)


def _leave_out(module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: Any) -> None:
    if prefix:
        for name in [name for name in state_dict if name.startswith(prefix)]:
            del state_dict[name]


def _keep(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: Any, *_: Any
) -> None:
    if prefix:
        for name, value in module.state_dict().items():
            state_dict.setdefault(prefix + name, value)


def attend(
    features: Features,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    dropout: float = 0.0,
    causal: bool = False,
    segment_ids: Tensor | None = None,
) -> Tensor:
    """Attention of heads: q (batch, heads, L, d), k and v (batch, kv_heads, S, .) -> (batch, L,
    heads, dv).

    Args:
        scale: factor of q . k.
        dropout: probability with which a value is removed for all queries.
        causal: query i sees keys up to S - L + i.
        segment_ids: (batch, S), the numbers of packed sequences; 0 is padding.
    """
    length, width = q.shape[-2], k.shape[-2]
    x, y, v = _heads(q, k, v, scale, dropout)
    ids = segment_ids
    packed = ids is not None and bool((ids > 1).any())
    visible = None if ids is None or packed else _per_head(ids != 0, x)
    fitting.fit(features, x, y, None if ids is None else _per_head(ids != 0, x))
    with component(SCORE):
        if packed:
            attended = features.attend(x, y, v, causal=causal, segment_ids=ids)
        elif causal and length > 1:
            # Queries of earlier keys, whose outputs are not used.
            x = functional.pad(x, (0, 0, width - length, 0))
            attended = features.attend(x, y, v, causal=True, key_mask=visible)
            attended = attended[..., width - length :, :]
        else:
            attended = features.attend(x, y, v, key_mask=visible)
    return joined_heads(attended).transpose(1, 2)


def continued(
    features: FeatureMap,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: DecodingState | None,
    *,
    scale: float,
    dropout: float = 0.0,
    visible: Tensor | None = None,
) -> tuple[Tensor, DecodingState]:
    """Causal attention over tokens that follow those of the state, and the next state.

    The arguments are those of `attend`; visible (batch, L) is False where a token is padding.
    """
    x, y, v = _heads(q, k, v, scale, dropout)
    if state is None:
        shape, dtype = y.shape[:-2], working_dtype(v.dtype)
        state = initial_decoding_state(
            features, tuple(shape), v.shape[-1], dtype=dtype, device=v.device
        )
    mask = None if visible is None else _per_head(visible, x)
    fitting.fit(features, x, y, mask)
    process = decode if x.shape[-2] == 1 else prefill
    with component(SCORE):
        attended, state = process(features, x, y, v, state, mask)
    return joined_heads(attended).transpose(1, 2), state


def _heads(
    q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Scaled queries and keys and values, with a dimension for groups of heads."""
    if dropout > 0:
        v = v * functional.dropout(v.new_ones(*v.shape[:-1], 1), dropout)
    x, y = split_queries(q * scale**0.5, k.shape[1]), split_keys(k * scale**0.5, q.shape[1])
    return x, y, split_keys(v, q.shape[1])


def _per_head(mask: Tensor, x: Tensor) -> Tensor:
    """(batch, S) with the dimensions of tokens x (batch, ..., L, d)."""
    return mask.reshape(len(mask), *(1,) * (x.ndim - 3), -1)
