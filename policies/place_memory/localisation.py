"""The places of the robot, its feet and the pixels, from proprioception.

On a straight path places are distances along it, integrated from the velocity. Where the path
turns they are points of the ground by the estimated position and heading; the ground's two axes
each end where they begin, so that places lie on a torus.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from policies.common.geometry import Footholds
from policies.footholds.ground import Ground, SeenGround, lateral_cue, turned
from policies.place_memory.config import PlaceMemoryConfig

_LATE = 0.98  # factor by which a step discounts the pixels in favour of a correction
_ASIDE_M = (-0.04, 0.0, 0.04)
_BANDS_M = (0.0, 0.4, 0.6, 0.8)
_WIDE_M = 0.36


def feet_and_speed(
    observations: Mapping[str, Tensor], footholds: Footholds
) -> tuple[Tensor, Tensor]:
    """Observations, each part (batch, ...) -> nominal footholds along the path from the base,
    (batch, legs), metres; and the velocity along it, (batch,), metres per second."""
    proprio = observations[footholds.proprio].float()
    yaw = proprio[..., footholds.attitude][..., 2:]
    feet_x, feet_y = proprio[..., footholds.nominal].unflatten(-1, (-1, 2)).unbind(-1)
    speed_x, speed_y = proprio[..., footholds.velocity][..., :2].split(1, -1)
    return turned(feet_x, feet_y, yaw)[0], turned(speed_x, speed_y, yaw)[0].squeeze(-1)


def way(speeds: Tensor, starts: Tensor, before: Tensor, decision_s: float) -> Tensor:
    """Distance since the episode's start: the velocity integrated by the trapezoidal rule.

    Args:
        speeds: (batch, steps), metres per second.
        starts: (batch, steps) bool, where an episode begins.
        before: distance and speed at the step before the first, (batch, 2).
        decision_s: time between steps, seconds.

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


def place_of(observations: Mapping[str, Tensor], footholds: Footholds) -> Tensor | None:
    """The estimated position in the world, (batch, 2), metres; None if the observation has none."""
    own = getattr(footholds, "odometry", None)
    return None if own is None else observations[footholds.proprio].float()[:, own]


def fitted_pitch(
    ground: Ground, observations: Mapping[str, Tensor], starts: Tensor, votes: Tensor
) -> tuple[Tensor, Tensor]:
    """Corrections of the cameras' pitch, radians, fitted to the plane of the stones' tops.

    The correction that recently placed the most pixels in the plane is used. Nothing is learned.

    Args:
        ground: defines the candidate corrections.
        observations: each part (batch times steps, ...).
        starts: (batch, steps) bool, where an episode begins.
        votes: state before the first step, (batch, corrections).

    Returns:
        A correction for each step (batch times steps,), and the next state.
    """
    pixels = ground.in_plane(observations).unflatten(0, starts.shape)
    usual = (ground.corrections == 0).float()  # the choice if nothing was seen
    best = []
    for now, begins in zip(pixels.unbind(1), starts.unbind(1), strict=True):
        votes = _LATE * votes.masked_fill(begins.unsqueeze(-1), 0) + now
        best.append((votes + usual).argmax(-1))
    return ground.corrections[torch.stack(best, 1).flatten()], votes


def check_plane(config: PlaceMemoryConfig) -> None:
    """ValueError for settings that paths that turn do not take."""
    for key, taken in (
        ("memory", ("none", "linear", "grid", "gru")),
        ("keys", ("geometry",)),
        ("feature_map", ("harmonic",)),
        ("pool_m", (None,)),
        ("write_tokens", (None,)),
    ):
        if getattr(config, key) not in taken:
            allowed = " or ".join("null" if one is None else one for one in taken)
            raise ValueError(
                f"{key} must be {allowed} where the path turns, so that places have two "
                f"dimensions, got {getattr(config, key)}"
            )
    if config.controller == "vote":
        raise ValueError(
            "controller must not be vote where the path turns, because vote has no yaw rate"
        )


def on_plane(
    observations: Mapping[str, Tensor], footholds: Footholds, pixels_m: Tensor, reads_m: Tensor,
    circle_m: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The places of the robot, its pixels and its reads on the torus.

    Args:
        observations: each part (batch, ...).
        footholds: footholds of the robot.
        pixels_m: pixels forward and left of the robot, (batch, pixels, 2), metres.
        reads_m: distances ahead of a nominal foothold that a leg reads, (n,), metres.
        circle_m: length of each axis of the torus, metres.

    Returns:
        The robot's place (batch, 2), those of pixels (batch, pixels, 2), and those that are read,
        (batch, legs 3 n, 2), metres: of each leg n places to the right, in the middle, to the left.
    """
    proprio = observations[footholds.proprio].float()
    place_m, heading = place_of(observations, footholds), getattr(footholds, "heading")  # noqa: B009
    assert place_m is not None  # see `policies.footholds.ground.place_plan`
    sine, cosine = proprio[:, heading].unbind(-1)
    rows = torch.stack((cosine, sine, -sine, cosine), -1).unflatten(-1, (2, 2))  # of row vectors
    now_m = place_m.remainder(circle_m)
    aside_m = reads_m.new_tensor(_ASIDE_M)
    offsets_m = torch.cartesian_prod(aside_m, reads_m).flip(-1)  # (3 n, 2): forward, left
    feet_m = proprio[:, footholds.nominal].unflatten(-1, (-1, 1, 2))
    asked_m = (feet_m + offsets_m).flatten(1, 2)
    here = now_m.unsqueeze(1)
    return now_m, here + pixels_m @ rows, here + asked_m @ rows


def wide_weights(seen: SeenGround) -> Tensor:
    """1 for pixels that are remembered, (batch, pixels): the ground's sides too, else 0."""
    return (seen.near & (seen.lateral_m.abs() < _WIDE_M)).to(seen.holes)


def banded_cue(seen: SeenGround) -> Tensor:
    """`lateral_cue` of the ground up to 40 cm, 60 cm and 80 cm ahead, each from the last on, so
    that a turn of the path shows: (batch, 108)."""
    cues = []
    for near_m, far_m in pairwise(_BANDS_M):
        is_in = (seen.forward_m >= near_m) & (seen.forward_m < far_m)
        cues.append(lateral_cue(seen._replace(near=seen.near & is_in)))
    return torch.cat(cues, -1)
