"""Votes for foothold offsets by a template that slides over a profile, the same for every leg.

The vote for an offset is the template's product with the profile about the foothold that this
offset would give, beside a prior that prefers the middle. Translation does not have to be learned,
so a few parameters suffice.
"""

import torch
from torch import Tensor, nn

from attention.tracing import is_for_onnx

__all__ = ["between_taps", "template_votes"]

_TAP_EVERY = 2
"""One parameter every second tap of a template, linear between."""


def between_taps(taps: int) -> Tensor:
    """Weights of a template's parameters in its taps, (taps, parameters)."""
    places = torch.arange(taps, dtype=torch.float32) / _TAP_EVERY
    knots = torch.arange((taps - 1) // _TAP_EVERY + 1, dtype=torch.float32)
    return (1 - (places[:, None] - knots).abs()).clamp_min(0)


def template_votes(profile: Tensor, template: Tensor, prior: Tensor, offsets: Tensor) -> Tensor:
    """Votes (batch, legs, n) as logits.

    Args:
        profile: (batch, legs, n + taps - 1), along the direction of travel.
        template: (taps,).
        prior: (2,), what an offset earns by itself and loses, beside 1, by its square.
        offsets: (n,), in units of the action.
    """
    linear, square = prior.unbind()
    if is_for_onnx():  # a convolution takes a sixth of the time there
        windows = nn.functional.conv1d(profile.flatten(0, 1).unsqueeze(1), template[None, None])
        votes = windows.view(*profile.shape[:2], -1)
    else:
        votes = profile.unfold(-1, len(template), 1) @ template
    votes = votes + linear * offsets - (1 + square) * offsets**2
    return 4.0 * votes
