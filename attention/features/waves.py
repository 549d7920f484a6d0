"""Weighted cosines and sines. Each is the other's gradient, so neither is computed again."""

from typing import Any

import torch
from torch import Tensor


def waves(angles: Tensor, weights: Tensor) -> Tensor:
    """Return [1, cos, sin] of angles (..., m), times weights (2m + 1,): (..., 2m + 1).

    A cosine and its sine have the same weight; weights are constants.
    """
    if angles.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        result: Tensor = _Waves.apply(angles, weights)
        return result
    return _Waves.forward(angles, weights)


def multiples(angles: Tensor, weights: Tensor) -> Tensor:
    """Return `waves` of the multiples 1 to m of L angles (..., 1, L): (..., L, 2m + 1).

    It evaluates two transcendental functions per token and doubles the number of multiples by the
    addition theorems. In ONNX Runtime, whose float64 sine takes ten times as long as in PyTorch,
    this is faster; in PyTorch it is slower.
    """
    count = len(weights) // 2
    cosines, sines = angles.cos(), angles.sin()
    while (have := cosines.shape[-2]) < count:
        more = slice(min(have, count - have))
        cos, sin = cosines[..., -1:, :], sines[..., -1:, :]
        next_cosines = cosines[..., more, :] * cos - sines[..., more, :] * sin
        next_sines = sines[..., more, :] * cos + cosines[..., more, :] * sin
        cosines = torch.cat((cosines, next_cosines), -2)
        sines = torch.cat((sines, next_sines), -2)
    parts = (torch.ones_like(angles), cosines, sines)
    return (torch.cat(parts, -2) * weights.unsqueeze(-1)).mT


class _Waves(torch.autograd.Function):
    """Autograd function that saves only its result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(angles: Tensor, weights: Tensor) -> Tensor:
        parts = (torch.ones_like(angles[..., :1]), angles.cos(), angles.sin())
        return torch.cat(parts, -1) * weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        _, cosines, sines = _parted(*ctx.saved_tensors)
        _, of_cosines, of_sines = _parted(grad)
        return of_sines * cosines - of_cosines * sines, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        constant, cosines, sines = _parted(*ctx.saved_tensors)
        return torch.cat((torch.zeros_like(constant), -sines * tangent, cosines * tangent), -1)


def _parted(features: Tensor) -> tuple[Tensor, ...]:
    """(..., 2m + 1) -> (..., 1), (..., m) and (..., m)."""
    count = features.shape[-1] // 2
    return features.split((1, count, count), -1)
