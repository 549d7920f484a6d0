"""Weights of a module as it uses them, where `torch.nn.utils` normalises or prunes them."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of multi-head attention, what of them is trained, and the training flag, to
    a module of the same sizes; its feature map keeps its own parameters."""
    names = [name for name, _ in target.named_parameters() if "feature_map." not in name]
    with torch.enable_grad():
        weights = _effective_weights(source, names)
    target.load_state_dict(weights)
    for name, tensor in weights.items():
        target.get_parameter(name).requires_grad_(tensor.requires_grad)
    target.train(source.training)


def _effective_weights(module: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of the given dotted names.

    Parametrisations compute a tensor when it is read; the older hooks of weight and spectral norm
    and of pruning set it before each forward pass, and are asked for it here, except those of the
    output projection of `nn.MultiheadAttention`, which reads the tensors without a forward pass.
    """
    read_only = isinstance(module, nn.MultiheadAttention)
    for part in [module] if read_only else module.modules():
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm):
                setattr(part, hook.name, hook.compute_weight(part))
            elif isinstance(hook, SpectralNorm):
                setattr(part, hook.name, hook.compute_weight(part, do_power_iteration=False))
            elif isinstance(hook, BasePruningMethod):
                setattr(part, hook._tensor_name, hook.apply_mask(part))
    found = {}
    for name in names:
        path, _, tensor = name.rpartition(".")
        found[name] = getattr(module.get_submodule(path), tensor)
    return found
