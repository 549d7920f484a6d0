"""Places in two dimensions, for paths that turn: points of the ground by the told odometry.

The ground's two axes each end where they begin, so that places lie on a torus. What is seen and
what is read is turned to the world by the told heading.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from policies.common.geometry import Footholds
from policies.footholds.ground import SeenGround, lateral_cue
from policies.place_memory.config import PlaceMemoryConfig
from policies.place_memory.odometry import told_place

__all__ = ["banded_cue", "check_plane", "on_plane", "wide_weights"]

_ASIDE_M = (-0.04, 0.0, 0.04)
_BANDS_M = (0.0, 0.4, 0.6, 0.8)
_WIDE_M = 0.36


def check_plane(config: PlaceMemoryConfig) -> None:
    """ValueError, one sentence, for settings that paths that turn do not take."""
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
            "controller must be another than vote where the path turns, for vote gives no yaw rate"
        )


def on_plane(
    observations: Mapping[str, Tensor], footholds: Footholds, pixels_m: Tensor, reads_m: Tensor,
    circle_m: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Where the robot is, what it sees and what it reads, on the torus.

    Args:
        observations: each part (batch, ...).
        footholds: of the robot.
        pixels_m: forward and left of it, (batch, pixels, 2), metres.
        reads_m: how far ahead of a nominal foothold a leg reads, (n,), metres.
        circle_m: length of each axis of the torus, metres.

    Returns:
        The robot's place (batch, 2), those of pixels (batch, pixels, 2), and those that are read,
        (batch, legs 3 n, 2), metres: of each leg n places to the right, in the middle, to the left.
    """
    proprio = observations[footholds.proprio].float()
    place_m, heading = told_place(observations, footholds), getattr(footholds, "heading")  # noqa: B009
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
