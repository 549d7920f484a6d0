"""Depth pixels on the plane of the stones' tops: where their rays meet it, and what is deeper.

The plane lies below the base by its height, level by the estimated attitude; the toes stand on it.
A pixel whose point is deeper than the plane by some centimetres is a hole; where, is the place at
which its ray meets the plane, not the place that it sees below.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from policies.geometry import Footholds, Geometry
from policies.observation import Observations
from policies.place_config import CUE

__all__ = ["Ground", "PlacePlan", "SeenGround", "lateral_cue", "levelled", "place_plan", "turned"]

_DOWN = 0.05  # rays that fall by less a metre of depth meet the plane nowhere near
_AHEAD_M = 0.8  # beyond, a pixel is as large as a gap
_LANE_M = 0.18  # to either side: where the feet are
_CUE_CELL_M = 0.04


@dataclass(frozen=True)
class PlacePlan:
    """Cameras, footholds, and where proprioception stands in the observation's vector."""

    geometry: Geometry
    footholds: Footholds
    proprio: slice

    @property
    def numbers(self) -> int:
        """Of proprioception."""
        return int(self.proprio.stop - self.proprio.start)


def place_plan(
    observations: Observations, geometry: Geometry | None, has_footholds: bool
) -> PlacePlan:
    """What a memory of places needs of a robot.

    Raises:
        ValueError: one sentence, where it is not told.
    """
    if geometry is None or geometry.footholds is None or not has_footholds:
        raise ValueError(
            "place_memory needs an environment whose geometry tells cameras and footholds "
            "(env.unwrapped.geometry), and actions that place feet"
        )
    for pictures in observations.pictures:
        if pictures.key not in geometry.rays or pictures.key not in geometry.positions_m:
            raise ValueError(
                f"place_memory needs to know where the cameras of {pictures.key} are, and the "
                "geometry tells of none"
            )
    if not observations.pictures:
        raise ValueError("place_memory needs depth images, and the observation holds none")
    proprio = observations.slice_of(geometry.footholds.proprio)
    return PlacePlan(geometry, geometry.footholds, proprio)


class SeenGround(NamedTuple):
    """What pixels show of the ground, each (batch, pixels); forward is along the path."""

    forward_m: Tensor
    lateral_m: Tensor
    holes: Tensor
    """1 where it is deeper than the plane, else 0."""
    near: Tensor
    """bool, whether the ray meets the plane, and not too far ahead."""

    @property
    def weights(self) -> Tensor:
        """1 for pixels between the feet of both sides, which are remembered, else 0."""
        return (self.near & (self.lateral_m.abs() < _LANE_M)).to(self.holes)


@dataclass(frozen=True)
class _Eye:
    """Images of one key: their pixels, and the camera that each is of."""

    key: str
    cameras: int
    pixels: int


class Ground(nn.Module):
    """Projects the depth images of all cameras.

    Args:
        plan: cameras and footholds.
        hole_m: how much deeper than the plane a hole is, metres.
    """

    rays: Tensor
    places_m: Tensor

    def __init__(self, plan: PlacePlan, hole_m: float) -> None:
        super().__init__()
        self.footholds, self.hole_m = plan.footholds, hole_m
        rays, places = [], []
        self.eyes: list[_Eye] = []
        for key, directions in plan.geometry.rays.items():
            own = torch.from_numpy(directions).float().reshape(-1, *directions.shape[-3:])
            at = torch.from_numpy(plan.geometry.positions_m[key]).float().reshape(-1, 3)
            self.eyes.append(_Eye(key, len(own), own[0, ..., 0].numel()))
            rays.append(own.flatten(0, 2))
            places.append(at.repeat_interleave(self.eyes[-1].pixels, 0))
        self.register_buffer("rays", torch.cat(rays), persistent=False)
        self.register_buffer("places_m", torch.cat(places), persistent=False)

    def forward(self, observations: Mapping[str, Tensor]) -> SeenGround:
        """Observations, each part (batch, ...) as the space has it -> what they show."""
        proprio = observations[self.footholds.proprio].float()
        depth_m = torch.cat([observations[eye.key].float().flatten(1) for eye in self.eyes], 1)
        attitude = proprio[:, self.footholds.attitude]
        rotation = levelled(attitude)
        rays, cameras = self.rays @ rotation.mT, self.places_m @ rotation.mT  # (batch, pixels, 3)
        height_m = proprio[:, self.footholds.height, None] + self.footholds.toe_radius_m
        down = -rays[..., 2]
        plane_m = (height_m + cameras[..., 2]) / down.clamp_min(_DOWN)
        place = (cameras + plane_m.unsqueeze(-1) * rays)[..., :2]
        forward_m, lateral_m = turned(place, attitude[:, 2:]).unbind(-1)
        holes = ((depth_m - plane_m) * down > self.hole_m).float()
        return SeenGround(forward_m, lateral_m, holes, (down > _DOWN) & (forward_m < _AHEAD_M))


def levelled(attitude: Tensor) -> Tensor:
    """Roll, pitch (and yaw, which is left out) (batch, 3), radians -> base to level frame, (batch,
    3, 3)."""
    roll, pitch = attitude[:, 0], attitude[:, 1]
    cr, sr, cp, sp = roll.cos(), roll.sin(), pitch.cos(), pitch.sin()
    zero = torch.zeros_like(roll)
    rows = [cp, sp * sr, sp * cr, zero, cr, -sr, -sp, cp * sr, cp * cr]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def turned(places: Tensor, yaw: Tensor) -> Tensor:
    """(batch, n, 2), level frame, and yaw (batch, 1), radians -> along and across the path."""
    x, y = places.unbind(-1)
    cos, sin = yaw.cos(), yaw.sin()
    return torch.stack((cos * x - sin * y, sin * x + cos * y), -1)


def lateral_cue(seen: SeenGround) -> Tensor:
    """How holes lie across the path now: (batch, 36).

    For each of 18 cells of 4 cm from right to left, about the base: the share of its pixels that
    are holes, from -0.5 to 0.5, and 0 where none is seen; then, whether one is seen.
    """
    edge_m = CUE * _CUE_CELL_M / 2
    weights = (seen.near & (seen.lateral_m.abs() < edge_m)).float()
    cells = ((seen.lateral_m + edge_m) / _CUE_CELL_M).long().clamp(0, CUE - 1)
    nothing = weights.new_zeros(len(weights), CUE)
    count = nothing.scatter_add(1, cells, weights)
    holes = nothing.scatter_add(1, cells, weights * seen.holes)
    is_seen = (count > 0).float()
    return torch.cat(((holes / count.clamp_min(1) - 0.5) * is_seen, is_seen), -1)
