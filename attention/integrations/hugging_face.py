"""Linear attention as the `attn_implementation` of Hugging Face models.

`transformers` calls one function for the attention of all layers, found by name in
`AttentionInterface`, and one for their mask, in `AttentionMaskInterface`. The function here takes
the map of the layer that calls it. The mask is one number for each key instead of a matrix: the
sequence to which the key belongs, 0 for padding, negative if tokens see later ones too.

A layer of a `DynamicCache` becomes a `StateLayer`, the sums of linear attention, when the model
reaches it for the first time.
"""

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attention.decoding import DecodingState
from attention.denominators import KeyStatistics
from attention.exact import ExactSoftmax
from attention.integrations.maps import attach, attend, continued
from attention.sums import LinearAttentionState

NAME = "foveate"
"""Name of the implementation in a model's configuration, which is not saved with it."""
OLDEST = (5, 5)
_HEAD_SIZES = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
_HEADS = ("num_heads", "num_attention_heads", "n_heads")
_REFUSED = {
    "position_bias": "a bias of positions",
    "softcap": "a cap of the scores",
    "s_aux": "attention sinks",
    "head_mask": "a mask of heads",
}
"""Arguments of attention that need its scores."""
_OTHERS = ("encoder_hidden_states", "key_value_states")
"""Arguments by which cross-attention gets its keys."""


def replace(model: nn.Module, seed: int, settings: dict[str, Any]) -> int:
    """Replace the attention of the Hugging Face models among the modules, and return the number of
    layers."""
    library = sys.modules.get("transformers")
    if library is None:
        return 0
    found = 0
    models = [part for part in model.modules() if isinstance(part, library.PreTrainedModel)]
    if not models:
        return 0
    version = library.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ValueError(f"transformers must be version 5.5 or later, got {version}")
    library.AttentionInterface.register(NAME, forward)
    library.AttentionMaskInterface.register(NAME, mask)
    library.cache_utils.CacheLayerMixin.register(StateLayer)
    for part in models:
        if NAME in _implementations(part):
            continue  # a part of a model that is already replaced
        layers = [(layer, size) for layer in part.modules() if (size := _sizes(layer)) is not None]
        if not layers:
            continue
        _own_configuration(part)
        part.__dict__["foveate_before"] = [
            (config, config._attn_implementation) for config in _configurations(part)
        ]
        part.set_attn_implementation(NAME)
        if part.config._attn_implementation != NAME:
            raise ValueError(
                "model must choose its attention by attn_implementation, which "
                f"{type(part).__name__} does not support"
            )
        for layer, (dim, heads) in layers:
            attach(layer, dim, heads, seed + found, settings)
            hook = layer.register_forward_pre_hook(_find_state, with_kwargs=True)
            layer.__dict__["foveate_hook"] = hook
            found += 1
    return found


def restore(model: nn.Module) -> None:
    """Return the Hugging Face models among the modules to their attention."""
    for part in model.modules():
        for config, implementation in part.__dict__.pop("foveate_before", ()):
            config._attn_implementation = implementation
        hook = part.__dict__.pop("foveate_hook", None)
        if hook is not None:
            hook.remove()
            part.__dict__.pop("foveate_state", None)
            del part.feature_map


def _implementations(model: nn.Module) -> set[str | None]:
    return {config._attn_implementation for config in _configurations(model)}


def _configurations(model: nn.Module) -> list[Any]:
    """The configurations of a model's parts, each once, the model's own first."""
    found: dict[int, Any] = {}
    for part in model.modules():
        config = getattr(part, "config", None)
        if _is_config(config):
            found.setdefault(id(config), config)
    return list(found.values())


def _is_config(config: Any) -> bool:
    return hasattr(config, "_attn_implementation")


def _own_configuration(model: nn.Module) -> None:
    """Give a model copies of its configurations, which other models may share."""
    copies: dict[int, Any] = {}
    for part in model.modules():
        config = part.__dict__.get("config")
        if _is_config(config):
            part.__dict__["config"] = copy.deepcopy(config, copies)


def _sizes(module: nn.Module) -> tuple[int, int] | None:
    """Size and number of heads of keys, if the module is attention."""
    if not isinstance(getattr(module, "is_causal", None), bool):
        return None
    config = getattr(module, "config", None)
    found = [
        next((getattr(module, name) for name in names if hasattr(module, name)), None)
        for names in (_HEAD_SIZES, _HEADS)
    ]
    dim, heads = found[0], found[1] or getattr(config, "num_attention_heads", None)
    if not isinstance(dim, int) or not isinstance(heads, int):
        return None
    return dim, heads // getattr(module, "num_key_value_groups", 1)


def forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The attention function: query (batch, heads, L, d), key and value (batch, kv_heads, S, .) ->
    (batch, L, heads, dv) and no weights."""
    name = type(module).__name__
    features: Any = getattr(module, "feature_map", None)
    if features is None:
        raise ValueError(f"{name} must be attention with heads of a known size")
    for option, words in _REFUSED.items():
        if options.get(option) is not None:
            raise ValueError(
                f"attention must use no {option}, since linear attention forms no scores, got "
                f"{words} in {name}"
            )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    ids = attention_mask
    if ids is not None:
        if ids.ndim != 2 or ids.dtype != torch.long:
            raise ValueError(
                "attention_mask must be None or (batch, tokens), 0 where a token is padding, got "
                f"{ids.dtype} of shape {tuple(ids.shape)} in {name}"
            )
        causal, ids = not bool((ids < 0).any()), ids.abs()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    state: StateLayer | None = module.__dict__.pop("foveate_state", None)
    if state is None:
        output = attend(
            features,
            *(query, key, value),
            scale=scale,
            dropout=dropout,
            causal=causal,
            segment_ids=ids,
        )
        return output.contiguous(), None
    visible = None
    if ids is not None:
        ids = ids[:, -query.shape[-2] :]
        if bool((ids > 1).any()) or not causal:
            raise ValueError(
                "use_cache must be False for packed sequences and attention that is not causal, "
                f"got True in {name}"
            )
        visible = ids != 0
    output, state.state = continued(
        features,
        *(query, key, value),
        state.state,
        scale=scale,
        dropout=dropout,
        visible=visible,
    )
    return output.contiguous(), None


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] | None = None,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Tensor | None:
    """The mask function: numbers of sequences (batch, kv_length), 0 for padding, negative if tokens
    see later ones; None for one sequence without padding.

    `mask_function` says whether a query sees a key. It is evaluated at a few keys of each query
    only: at its neighbours and at the ends of its sequence.
    """
    if use_vmap:
        raise ValueError(
            "masks must be causal, of padding or of packed sequences, since linear attention forms "
            "no matrix to mask, got a custom one"
        )
    library = sys.modules["transformers.masking_utils"]
    ids, causal = torch.ones(1, kv_length, dtype=torch.long, device=device), True
    if mask_function is library.bidirectional_mask_function:
        causal = False
    elif mask_function is not None and mask_function is not library.causal_mask_function:
        batch = torch.arange(batch_size, device=device).unsqueeze(-1)

        def sees(queries: Tensor, keys: Tensor) -> Tensor:
            seen = mask_function(batch, torch.zeros_like(batch), queries, keys)
            return seen.expand(batch_size, -1)

        if q_length == kv_length:
            ids, causal = _sequences(sees, torch.arange(kv_length, device=device) + kv_offset)
        else:
            last = torch.full((1, 1), int(q_offset) + q_length - 1, device=device)
            _check(sees(last, torch.arange(kv_length, device=device)[None] + kv_offset).all())
    whole = bool((ids == 1).all())
    if attention_mask is not None:
        padding = attention_mask[:, -kv_length:].to(torch.long)
        if bool((padding == 0).any()):
            ids, whole = ids * (padding != 0), False
    if whole:
        return None
    return ids.expand(batch_size, -1) * (1 if causal else -1)


def _sequences(sees: Callable[[Tensor, Tensor], Tensor], places: Tensor) -> tuple[Tensor, bool]:
    """Return the number of the sequence of each token (batch, L), from 1, and whether attention is
    causal. Raises ValueError if the mask is not that of sequences in a row."""
    own = places.unsqueeze(0)
    begin = ~sees(own, (own - 1).clamp_min(int(places[0])))
    begin[:, 0] = True
    ids = begin.cumsum(-1)
    first = torch.where(begin, own, own[:, :1]).cummax(-1).values
    inside = ids[:, 1:] == ids[:, :-1]
    later = sees(own[:, :-1], own[:, 1:])[inside]
    causal = not bool(later.any())
    _check(sees(own, first).all())
    before = first > places[0]
    _check(~(sees(own, (first - 1).clamp_min(int(places[0]))) & before).any())
    if not causal:
        _check(later.all() & sees(first, own).all())
    return ids, causal


def _check(sound: Tensor) -> None:
    if not bool(sound):
        raise ValueError(
            "masks must be causal, of padding or of packed sequences, since linear attention forms "
            "no matrix to mask, got another, such as a sliding window shorter than the sequence"
        )


class StateLayer:
    """A layer of a cache that holds sums of constant size, `attention.decoding.DecodingState`,
    instead of keys and values."""

    is_compileable = is_croppable = is_sliding = supports_early_init = False
    keys = values = None

    def __init__(self) -> None:
        self.state: DecodingState | None = None
        self.length = 0

    @property
    def is_initialized(self) -> bool:
        return self.length > 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: attention makes the state."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the new keys and values, which attention adds to the state."""
        self.length += key_states.shape[-2]
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def offload(self) -> None:
        """Does nothing: the state is small."""

    def prefetch(self) -> None:
        """Does nothing: the state is where it was."""

    def reset(self) -> None:
        self.state, self.length = None, 0

    def crop(self, tokens_to_remove: int) -> None:
        raise ValueError(
            f"sums of linear attention must keep all tokens, got {tokens_to_remove} to remove, for "
            "example for assisted generation"
        )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._change(lambda t: t.index_select(0, beam_idx.to(t.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._change(lambda t: t.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._change(lambda t: t[indices])

    def _change(self, function: Callable[[Tensor], Tensor]) -> None:
        if self.state is not None:
            self.state = DecodingState(
                LinearAttentionState(*map(function, self.state.sums)),
                KeyStatistics(*map(function, self.state.keys)),
            )


def _find_state(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Before a layer's attention: note its layer of the cache, if it is given one."""
    module.__dict__.pop("foveate_state", None)
    library = sys.modules["transformers.cache_utils"]
    given = (*args, *options.values())
    cache = next((value for value in given if isinstance(value, library.Cache)), None)
    index = getattr(module, "layer_idx", None)
    crosses = any(options.get(name) is not None for name in _OTHERS)
    if cache is None or index is None or crosses or isinstance(module.feature_map, ExactSoftmax):
        return
    if isinstance(cache, library.EncoderDecoderCache):
        cache = cache.self_attention_cache
    while len(cache.layers) <= index:
        cache.layers.append(cache.layer_class_to_replicate())
    layer = cache.layers[index]
    if isinstance(layer, library.StaticLayer):
        raise ValueError(
            "cache_implementation must be None, since linear attention keeps a state of constant "
            "size, got a static cache"
        )
    kinds = (library.DynamicLayer, library.DynamicSlidingWindowLayer)
    if type(layer) in kinds and not layer.is_initialized:
        layer = cache.layers[index] = StateLayer()
    if isinstance(layer, StateLayer):
        module.__dict__["foveate_state"] = layer
