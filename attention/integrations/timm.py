"""Linear attention in the Vision Transformers of timm.

timm's attention modules have a flag `fused_attn` and call
`torch.nn.functional.scaled_dot_product_attention` where it is set. During their forward pass this
call is answered by the feature map; projections, norms, gates and rotary embeddings are theirs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attention.integrations.maps import Features, attach, attend
from attention.masks import is_causal_mask

_MARK = "foveate_fused"


def replace(model: nn.Module, seed: int, settings: dict[str, Any]) -> int:
    """Replace the attention of timm's modules, and return the number of layers."""
    found = 0
    for layer in list(model.modules()):
        fused, heads = getattr(layer, "fused_attn", None), getattr(layer, "num_heads", None)
        scale = getattr(layer, "scale", None)
        if isinstance(fused, bool) and isinstance(heads, int) and isinstance(scale, float):
            dim = getattr(layer, "head_dim", None) or round(scale**-2)
            attach(layer, dim, heads, seed + found, settings)
            hooks = (
                layer.register_forward_pre_hook(_enter),
                layer.register_forward_hook(_leave, always_call=True),
            )
            layer.__dict__[_MARK] = fused, hooks
            layer.__dict__["fused_attn"] = True
            found += 1
    return found


def restore(model: nn.Module) -> None:
    """Return timm's modules to their attention."""
    for layer in model.modules():
        fused, hooks = layer.__dict__.pop(_MARK, (None, ()))
        for hook in hooks:
            hook.remove()
        if hooks:
            layer.__dict__["fused_attn"] = fused
            del layer.feature_map


class _Answer(TorchFunctionMode):
    """Answers `scaled_dot_product_attention` by a feature map."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.features, self.asked = features, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.asked = True
        return _attention(self.features, *args, **(kwargs or {}))


def _attention(
    features: Features,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` of (batch, heads, L, d), from features."""
    if attn_mask is not None:
        # A mask here is True where a key is seen.
        hidden = ~attn_mask if attn_mask.dtype == torch.bool else attn_mask
        is_causal = is_causal_mask(hidden, query.shape[-2], key.shape[-2], is_causal)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    heads = (query, key, value)
    output = attend(features, *heads, scale=scale, dropout=dropout_p, causal=is_causal)
    return output.transpose(1, 2)


def _enter(module: nn.Module, args: Any) -> None:
    answer = _Answer(module.feature_map)  # type: ignore[arg-type]
    module.__dict__["foveate_answer"] = answer
    answer.__enter__()


def _leave(module: nn.Module, args: Any, output: Any) -> None:
    answer = module.__dict__.pop("foveate_answer", None)
    if answer is not None:
        answer.__exit__(None, None, None)
        if output is not None and not answer.asked:
            raise ValueError(
                f"{type(module).__name__} must call scaled_dot_product_attention to have its "
                "attention replaced, and did not"
            )
