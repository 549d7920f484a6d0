"""Linear attention in models of other libraries: Hugging Face, timm, torchvision, PyTorch.

    from attention import integrations

    model = integrations.replace(model, "positive", num_features=256)
    integrations.restore(model)

`replace` keeps the weights and the keys of the state dict. Nothing here imports those libraries.
"""

from typing import Any, TypeVar

import torch
from torch import nn

from attention.exact import ExactSoftmax
from attention.features.base import FeatureMap
from attention.integrations import fitting, hugging_face, timm
from attention.integrations.maps import hide
from attention.module import RandomFeatureAttention
from attention.registry import Maker

Model = TypeVar("Model", bound=nn.Module)
BIASES = (
    "alibi",
    "attention_biases",
    "rel_attn_embed",
    "rel_pos",
    "relative_attention_bias",
    "relative_position_bias",
)
"""Parts of names by which models call biases that they add to the scores."""

__all__ = ["feature_maps", "fit", "replace", "restore"]


def replace(
    model: Model,
    feature_map: str | Maker = "oprf",
    num_features: int = 256,
    *,
    seed: int = 0,
    **options: Any,
) -> Model:
    """Replace every softmax attention of a model by linear attention, in place.

    Supported are Hugging Face models whose attention is chosen by `attn_implementation`, timm's
    models with `fused_attn`, such as its Vision Transformers, and `nn.MultiheadAttention` in any
    model, such as torchvision's Vision Transformers. Padding, causal masks, packed sequences
    (`position_ids` that begin again), grouped-query heads and the model's own scale are kept.
    Dropout of attention removes whole values, as in `attention.RandomFeatureAttention`. Causal
    Hugging Face models keep a state of constant size where they otherwise cache keys and values:
    `generate` takes the same time for every token.

    Weights and keys of the state dict do not change, so states load in both directions. Random
    vectors are determined by the seed; save fitted parameters with the states of `feature_maps`.

    Args:
        feature_map: one of `attention.available()`, a custom map as a class or as "module:Class",
            or "softmax" for exact attention.
        num_features: m, the number of random vectors of each head.
        seed: the i-th attention layer has the seed seed + i.
        options: `projection` and those of the map, as in `attention.feature_map`.

    Returns the model. Raises ValueError for a model without attention that can be replaced, with
    biases that are added to scores (relative positions, ALiBi), with replaced attention, and for
    options that the map does not have. Calls of the model raise it for other masks, such as those
    of sliding windows shorter than the sequence.
    """
    if isinstance(feature_map, FeatureMap | ExactSoftmax):
        raise ValueError(
            "feature_map must be a name or a class, since every layer has its own map, got "
            f"{feature_map!r}"
        )
    _check_biases(model)
    if feature_maps(model):
        raise ValueError("the attention of the model must be softmax: call restore first")
    if isinstance(model, nn.MultiheadAttention):
        raise ValueError(
            "model must be a module that holds nn.MultiheadAttention, which from_multihead of "
            "RandomFeatureAttention replaces, got nn.MultiheadAttention"
        )
    settings = {"feature_map": feature_map, "num_features": num_features, **options}
    try:
        found = _replaced(model, seed, settings)
    except BaseException:
        restore(model)
        raise
    if not found:
        raise ValueError(
            "model must have attention of Hugging Face's attn_implementation, of timm's Vision "
            f"Transformers or of nn.MultiheadAttention, got {type(model).__name__}"
        )
    return model


def _replaced(model: nn.Module, seed: int, settings: dict[str, Any]) -> int:
    """Replace all attention and return the number of layers."""
    found = 0
    for kind in (hugging_face, timm):
        found += kind.replace(model, seed + found, settings)
    for owner in list(model.modules()):
        for name, part in list(owner.named_children()):
            if isinstance(part, nn.MultiheadAttention):
                ours = RandomFeatureAttention.from_multihead(part, seed=seed + found, **settings)
                hide(ours.feature_map)
                setattr(owner, name, ours)
                found += 1
    return found


def restore(model: Model) -> Model:
    """Return the model to softmax attention, in place, with its present weights."""
    hugging_face.restore(model)
    timm.restore(model)
    for owner in list(model.modules()):
        for name, part in list(owner.named_children()):
            if isinstance(part, RandomFeatureAttention):
                setattr(owner, name, part.to_multihead())
    return model


def feature_maps(model: nn.Module) -> dict[str, FeatureMap | ExactSoftmax]:
    """Return the maps of a replaced model by the name of their layer."""
    return {
        name.rpartition(".")[0]: part
        for name, part in model.named_modules()
        if name.endswith("feature_map") and isinstance(part, FeatureMap | ExactSoftmax)
    }


@torch.no_grad()
def fit(model: Model, *inputs: Any, **named_inputs: Any) -> Model:
    """Call the model once and set the data-dependent parameters of each layer's map, one layer
    after the other, from the queries and keys that reach it; padding does not count."""
    with fitting.fitting(model):
        model(*inputs, **named_inputs)
    return model


def _check_biases(model: nn.Module) -> None:
    """Raise ValueError for a model that adds biases to the scores of attention."""
    names = [name for name, _ in (*model.named_modules(), *model.named_parameters())]
    for name in names:
        for bias in BIASES:
            if bias in name:
                raise ValueError(
                    "attention must add no bias to its scores, which linear attention does not "
                    f"form, got {name}"
                )
    if getattr(getattr(model, "config", None), "alibi", False):
        raise ValueError(
            "attention must add no bias to its scores, which linear attention does not form, got "
            "alibi=True"
        )
