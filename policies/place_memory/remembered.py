"""The map of the ground that a policy remembers, which videos show below the frame."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import max_pool2d

_BEHIND_M, _AHEAD_M, _ASIDE_M = 0.8, 0.9, 0.3
_APART_M = 0.01
_JOINED = 7  # places to either side of a token


SHOWN = "stone, or never seen", "hole"


class RememberedGround(NamedTuple):
    """A map of the ground about the robot's base: `places` ahead of it in `rows` to its left.

    Ahead is along the path; where that turns, along the robot's heading. Where places have one
    dimension, along the path, there is one row.
    """

    forward_m: NDArray[np.float32]
    """(places,), rising and evenly apart; below 0 behind the base."""
    left_m: NDArray[np.float32]
    """(rows,), rising and evenly apart; below 0 to the right."""
    shares: NDArray[np.float32]
    """(rows, places): output of the memory, a share of holes from 0 to 1 apart from the errors of
    its feature map; about 0 where nothing was written."""
    seen: NDArray[np.bool_]
    """(rows, places): whether the camera sees it now."""
    feet_m: NDArray[np.float32]
    """Nominal footholds (legs, 2), ahead and to the left."""
    reach_m: float
    """How far ahead of and behind its nominal foothold a leg reads the memory."""
    shown: tuple[str, str] = SHOWN
    """Names of shares of 0 and of 1."""


def places_about(axes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The places of a map, ahead (places,) and to the left (rows,), metres; one row for places of
    one dimension."""
    behind, ahead = round(_BEHIND_M / _APART_M), round(_AHEAD_M / _APART_M)
    forward_m = torch.arange(-behind, ahead + 1) * _APART_M
    rows = 0 if axes == 1 else round(_ASIDE_M / _APART_M)
    left_m = torch.arange(-rows, rows + 1) * _APART_M
    return forward_m.to(like), left_m.to(like)


def seen_about(forward_m: Tensor, left_m: Tensor, tokens_m: Tensor) -> Tensor:
    """The places of a map (rows, places) that lie among tokens.

    Args:
        forward_m, left_m: of the map, (places,) and (rows,).
        tokens_m: tokens seen, ahead and to the left, (tokens, 2); left matters only if the map has
        rows.

    Returns:
        (rows, places) bool. Tokens up to 15 cm apart are joined, as pixels far ahead are.
    """
    along = ((tokens_m[:, 0] - forward_m[0]) / _APART_M).round().long()
    aside = ((tokens_m[:, 1] - left_m[0]) / _APART_M).round().long()
    if len(left_m) == 1:
        aside = torch.zeros_like(along)
    shape = len(left_m), len(forward_m)
    inside = (along >= 0) & (along < shape[1]) & (aside >= 0) & (aside < shape[0])
    hits = forward_m.new_zeros(1, *shape)
    hits[0, aside[inside], along[inside]] = 1
    return -_widened(-_widened(hits))[0] > 0


def _widened(hits: Tensor) -> Tensor:
    """The maximum within 7 cm of each element of (1, rows, places)."""
    reach = tuple(min(_JOINED, side // 2) for side in hits.shape[1:])
    return max_pool2d(hits, tuple(2 * side + 1 for side in reach), 1, reach)
