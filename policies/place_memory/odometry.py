"""Where a robot is along its path, and where its feet would go: what proprioception tells."""

from collections.abc import Mapping

import torch
from torch import Tensor

from policies.common.geometry import Footholds
from policies.footholds.ground import turned

__all__ = ["feet_and_speed", "told_place", "way"]


def feet_and_speed(
    observations: Mapping[str, Tensor], footholds: Footholds
) -> tuple[Tensor, Tensor]:
    """Observations, each part (batch, ...) -> nominal footholds along the path from the base,
    (batch, legs), metres; and the velocity along it, (batch,), metres a second."""
    proprio = observations[footholds.proprio].float()
    yaw = proprio[..., footholds.attitude][..., 2:]
    feet_x, feet_y = proprio[..., footholds.nominal].unflatten(-1, (-1, 2)).unbind(-1)
    speed_x, speed_y = proprio[..., footholds.velocity][..., :2].split(1, -1)
    return turned(feet_x, feet_y, yaw)[0], turned(speed_x, speed_y, yaw)[0].squeeze(-1)


def way(speeds: Tensor, starts: Tensor, before: Tensor, decision_s: float) -> Tensor:
    """Way made since the episode began, the integral of velocity by the trapezoidal rule.

    Args:
        speeds: (batch, steps), metres a second.
        starts: (batch, steps) bool, where an episode begins.
        before: way and speed at the step before the first, (batch, 2).
        decision_s: from a step to the next, seconds.

    Returns:
        (batch, steps), metres.
    """
    way_m, speed = before.unbind(-1)
    found = []
    for now, begins in zip(speeds.unbind(1), starts.unbind(1), strict=True):
        way_m, speed = way_m.masked_fill(begins, 0), speed.masked_fill(begins, 0)
        way_m = way_m + decision_s / 2 * (speed + now)
        speed = now
        found.append(way_m)
    return torch.stack(found, 1)


def told_place(observations: Mapping[str, Tensor], footholds: Footholds) -> Tensor | None:
    """Where the robot believes to be in the world, (batch, 2), metres; None where the observation
    does not tell."""
    own = getattr(footholds, "odometry", None)
    return None if own is None else observations[footholds.proprio].float()[:, own]
