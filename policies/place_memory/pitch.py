"""The pitch of a camera that is not quite where it is believed: fitted to the plane of the tops.

Of some corrections, the one counts that has let most pixels lie in the plane, of late. This is what
an engineer would do before anything is learned.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from policies.footholds.ground import Ground

__all__ = ["fitted_pitch"]

_LATE = 0.98  # what a step leaves of the pixels that spoke for a correction


def fitted_pitch(
    ground: Ground, observations: Mapping[str, Tensor], starts: Tensor, votes: Tensor
) -> tuple[Tensor, Tensor]:
    """Corrections of the cameras' pitch, radians.

    Args:
        ground: has the corrections that are tried.
        observations: each part (batch times steps, ...).
        starts: (batch, steps) bool, where an episode begins.
        votes: what is carried to the first step, (batch, corrections).

    Returns:
        Of each step (batch times steps,), and what is carried on.
    """
    pixels = ground.in_plane(observations).unflatten(0, starts.shape)
    usual = (ground.corrections == 0).float()  # the choice where nothing was seen
    best = []
    for now, begins in zip(pixels.unbind(1), starts.unbind(1), strict=True):
        votes = _LATE * votes.masked_fill(begins.unsqueeze(-1), 0) + now
        best.append((votes + usual).argmax(-1))
    return ground.corrections[torch.stack(best, 1).flatten()], votes
