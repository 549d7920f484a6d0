"""How deep each foot stands, from proprioception alone.

The base's height above the plane of the ground follows from the standing feet whose depth is known;
between footfalls the vertical velocity is integrated. A foot that is not felt to be deeper than
`snap_m` stands on the plane, which ends drift. A foot above the plane means that the plane was that
of sunk feet, and many deep feet in a row that it was lost: it then moves to them.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

_BLEND = 0.5  # share of a measured height that corrects the integrated one
_JUDGED = 3  # steps that a foot has stood when it is judged
_LOST = 20  # deep feet in a row


class Stance(NamedTuple):
    """What is known of the feet, (batch, ...)."""

    height_m: Tensor
    """Height of the base above the plane, (batch, 1)."""
    depth_m: Tensor
    """Depth of each foot that stands and was judged, (batch, legs)."""
    judged: Tensor
    """1 for these feet, else 0, (batch, legs)."""
    held: Tensor
    """Steps for which each foot has stood, (batch, legs)."""
    deep: Tensor
    """Deep feet in a row, (batch, 1); -1 before the first step."""


class Feeling(nn.Module):
    """Judges footfalls.

    Args:
        toe_radius_m: radius of a foot.
        decision_s: time from one step to the next, seconds.
        snap_m: depth up to which a foot stands on the plane.
    """

    def __init__(self, toe_radius_m: float, decision_s: float, snap_m: float) -> None:
        super().__init__()
        self.toe_radius_m, self.decision_s, self.snap_m = toe_radius_m, decision_s, snap_m

    def start(self, like: Tensor, legs: int) -> Stance:
        """Before the first step of episodes; `like` is (batch, ...)."""
        batch = len(like)
        nothing, feet = like.new_zeros(batch, 1), like.new_zeros(batch, legs)
        return Stance(nothing, feet, feet, feet, nothing - 1)

    def forward(
        self, stance: Stance, toes_m: Tensor, touches: Tensor, rise_m_s: Tensor
    ) -> tuple[Tensor, Tensor, Stance]:
        """A step.

        Args:
            stance: what is known before it.
            toes_m: height of each toe's centre above the base, (batch, legs).
            touches: 1 for feet that touch the ground, else 0, (batch, legs).
            rise_m_s: vertical velocity of the base, (batch, 1).

        Returns:
            Depth of feet, metres, and 1 for those that are judged now, both (batch, legs); and what
            is known then.
        """
        height, depth, judged, held, deep = stance
        held, first = (held + 1) * touches, deep < 0
        sole = self.toe_radius_m - toes_m  # the base's height above each foot's sole
        judged = torch.where(first, 1.0, judged * touches)  # the robot starts standing on the plane
        depth = depth * judged
        height = height + self.decision_s * rise_m_s
        off = sole - depth - height
        firm = judged * (first | (off.abs() < self.snap_m))  # not of feet that slip or lift off
        mean = (firm * off).sum(1, keepdim=True) / firm.sum(1, keepdim=True).clamp_min(1)
        height = height + torch.where(first, 1.0, _BLEND) * mean
        new = touches * (1 - judged) * (held == _JUDGED)
        found = (sole - height) * new
        # A foot above the plane: the plane was that of sunk feet.
        up = torch.where(found < -self.snap_m, -found, 0.0).amax(1, keepdim=True)
        height, found, depth = height - up, (found + up) * new, (depth + up) * judged
        # Many deep feet in a row: the plane was lost.
        is_deep = (found > self.snap_m).to(found)
        count = torch.where((new - is_deep).sum(1, keepdim=True) > 0, 0.0, deep.clamp_min(0))
        count = count + is_deep.sum(1, keepdim=True)
        down = torch.where(count >= _LOST, (is_deep * found).amax(1, keepdim=True), 0.0)
        count = torch.where(count >= _LOST, 0.0, count)
        height = height + down
        found, depth = (found - down) * new, (depth - down).clamp_min(0) * judged
        depth = torch.where(new > 0, found * (found > self.snap_m), depth)
        return found, new, Stance(height, depth, judged + new, held, count)
