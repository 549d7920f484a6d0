"""Projection of depth pixels to the plane of the stones' tops, and detection of holes.

The plane lies below the base by its height, level by the estimated attitude; the toes stand on it.
A pixel whose point is deeper than the plane by some centimetres is a hole; its place is where its
ray meets the plane, not the point below.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attention.joining import joined
from policies.common.geometry import Footholds, Geometry, moving_images, observed_poses, yaw_rate_of
from policies.common.observation import ImageInput, Observations
from policies.place_memory.config import CUE

POSE = 6
"""Numbers of a camera's pose: place, then pitch, yaw and roll."""
LANE_M = 0.18
"""Half width of the remembered ground on either side of the feet, metres."""
MIDDLE_M, SPAN_M = 0.45, 0.3
"""Middle and half the length of the ground ahead that a camera may see."""
_DOWN = 0.05  # rays that fall by less a metre of depth meet the plane nowhere near
_AHEAD_M = 0.8  # beyond, a pixel is as large as a gap
_CUE_CELL_M = 0.04
_TURNS_DEG = 12  # largest pitch error of a camera, up or down
_IN_PLANE_M = 0.01


@dataclass(frozen=True)
class PlacePlan:
    """Cameras, footholds, and the position of proprioception in the observation's vector."""

    geometry: Geometry
    footholds: Footholds
    proprio: slice
    images: Sequence[ImageInput]
    """The depth images; `high` is the depth without a return."""
    pose_key: str | None
    """Key of the camera poses in the observation; None: poses are those of the geometry."""

    @property
    def numbers(self) -> int:
        """Size of proprioception."""
        return int(self.proprio.stop - self.proprio.start)

    @property
    def is_plane(self) -> bool:
        """Whether places have two dimensions: the robot turns."""
        return yaw_rate_of(self.footholds) is not None


def place_plan(
    observations: Observations,
    geometry: Geometry | None,
    has_footholds: bool,
    is_projected: bool,
) -> PlacePlan:
    """The plan of a robot for a memory of places; with camera poses if pixels are projected.

    Raises:
        ValueError: if the geometry or the observation lacks a part.
    """
    if geometry is None or geometry.footholds is None or not has_footholds:
        raise ValueError(
            "place_memory needs an environment whose geometry has cameras and footholds "
            "(env.unwrapped.geometry), and actions that place feet"
        )
    looks = getattr(geometry, "appearances", {}).values()
    depths = [part for part in observations.image_parts if part.key not in looks]
    if not depths:
        raise ValueError("place_memory needs depth images, and the observation holds none")
    if yaw_rate_of(geometry.footholds) is not None:
        for part in ("odometry", "heading"):
            if getattr(geometry.footholds, part, None) is None:
                raise ValueError(
                    f"place_memory needs {part} in the observation of a robot that turns, and the "
                    "geometry has none"
                )
    pose_key = observed_poses(geometry)
    for images in depths if is_projected else ():
        if images.key not in geometry.rays or images.key not in geometry.positions_m:
            raise ValueError(
                f"place_memory needs the poses of the cameras of {images.key}, and the geometry "
                "has none"
            )
        if images.key in moving_images(geometry) and pose_key is None:
            raise ValueError(
                f"place_memory needs the poses of the cameras of {images.key} in the observation "
                "because they change with each episode, and the observation has none"
            )
    return PlacePlan(
        geometry,
        geometry.footholds,
        observations.slice_of(geometry.footholds.proprio),
        depths,
        pose_key,
    )


class SeenGround(NamedTuple):
    """The ground seen by pixels, each (batch, pixels); forward is along the path, and where
    that turns, along the robot's heading."""

    forward_m: Tensor
    lateral_m: Tensor
    holes: Tensor
    """1 where it is deeper than the plane, else 0."""
    near: Tensor
    """bool, whether the ray meets the plane not too far ahead, in an image with any return."""

    @property
    def weights(self) -> Tensor:
        """1 for pixels between the feet of both sides, which are remembered, else 0."""
        return (self.near & (self.lateral_m.abs() < LANE_M)).to(self.holes)


class Ground(nn.Module):
    """Projects the depth images of all cameras.

    Args:
        plan: cameras and footholds.
        hole_m: how much deeper than the plane a hole is, metres.
    """

    rays: Tensor
    """(pixels, 3), base frame."""
    places_m: Tensor
    """(pixels, 3), the optical centre of each pixel's camera."""
    angles: Tensor
    """(cameras, 2), pitch below forward and yaw, that the rays are of."""
    corrections: Tensor
    """Corrections of the pitch that `in_plane` tries, radians."""

    def __init__(self, plan: PlacePlan, hole_m: float) -> None:
        super().__init__()
        self.footholds, self.hole_m, self.pose_key = plan.footholds, hole_m, plan.pose_key
        self.is_plane = plan.is_plane
        rays, places, angles = [], [], []
        self.images = plan.images
        for key in (images.key for images in plan.images):
            own = plan.geometry.rays[key].reshape(-1, *plan.geometry.rays[key].shape[-3:])
            at_m = plan.geometry.positions_m[key].reshape(-1, 3)
            for directions, place_m in zip(own, at_m, strict=True):
                flat = directions.reshape(-1, 3)
                rays.append(torch.from_numpy(flat).float())
                places.append(torch.from_numpy(place_m).float().expand(len(flat), 3))
                angles.append(_angles(flat))
        self.pixels = [len(part) for part in rays]
        degrees = torch.arange(-_TURNS_DEG, _TURNS_DEG + 1.0)
        for name, values in (
            ("rays", torch.cat(rays)), ("places_m", torch.cat(places)),
            ("angles", torch.tensor(angles)), ("corrections", degrees * (math.pi / 180)),
        ):  # fmt: skip
            self.register_buffer(name, values, persistent=False)

    def forward(
        self, observations: Mapping[str, Tensor], correction: Tensor | None = None
    ) -> SeenGround:
        """Project observations, each part (batch, ...) in the space's format, with a correction
        (batch,) of the cameras' pitch, radians.
        """
        proprio, depth_m, returned = self._read(observations)
        attitude = proprio[..., self.footholds.attitude]
        rotation = levelled(attitude)
        rays, cameras = self._cameras(observations)
        turn = rotation if correction is None else rotation @ _pitched(correction)
        rays, cameras = rays @ turn.mT, cameras @ rotation.mT  # (batch, pixels, 3)
        down = -rays[..., 2]
        plane_m = (self._height(proprio) + cameras[..., 2]) / down.clamp_min(_DOWN)
        forward_m, lateral_m, _ = (cameras + plane_m.unsqueeze(-1) * rays).unbind(-1)
        if not self.is_plane:
            forward_m, lateral_m = turned(forward_m, lateral_m, attitude[..., 2:])
        holes = ((depth_m - plane_m) * down > self.hole_m).float()
        near = returned & (down > _DOWN) & (forward_m < _AHEAD_M)
        return SeenGround(forward_m, lateral_m, holes, near)

    def in_plane(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Number of pixels within 1 cm of the plane for each of `corrections` added to the cameras'
        pitch: (batch, corrections).
        """
        proprio, depth_m, returned = self._read(observations)
        rotation = levelled(proprio[:, self.footholds.attitude])
        rays, cameras = self._cameras(observations)
        fall = -(rotation[:, None, 2:] @ _pitched(self.corrections)).squeeze(-2)  # (batch, c, 3)
        down = rays @ fall.mT  # (batch, pixels, corrections)
        height_m = self._height(proprio) + (cameras @ rotation.mT)[..., 2]
        miss_m = (depth_m.unsqueeze(-1) * down - height_m.unsqueeze(-1)).abs()
        fits = (miss_m < _IN_PLANE_M) & (down > _DOWN) & returned.unsqueeze(-1)
        return fits.float().sum(1)

    def _read(self, observations: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Proprioception, depths (batch, pixels), and whether a pixel's images show anything."""
        proprio = observations[self.footholds.proprio].float()
        depths = [observations[part.key].float().flatten(1) for part in self.images]
        shown = [
            (depth_m < part.high).any(1, keepdim=True).expand_as(depth_m)
            for part, depth_m in zip(self.images, depths, strict=True)
        ]
        return proprio, joined(depths, 1), joined(shown, 1)

    def _height(self, proprio: Tensor) -> Tensor:
        """Height of the base above the plane, (batch, 1), metres."""
        return proprio[..., self.footholds.height].unsqueeze(-1) + self.footholds.toe_radius_m

    def _cameras(self, observations: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Rays and optical centres, (1 or batch, pixels, 3), base frame: from the observation
        if it holds the cameras' poses."""
        if self.pose_key is None:
            return self.rays.unsqueeze(0), self.places_m.unsqueeze(0)
        poses = observations[self.pose_key].float().unflatten(-1, (-1, POSE))  # (batch, cameras, 6)
        pitch, yaw = self.angles.unbind(-1)  # roll is fixed by the geometry
        turns = _yawed(poses[..., 4]) @ _pitched(poses[..., 3] - pitch) @ _yawed(-yaw)
        parts = zip(self.rays.split(self.pixels), turns.unbind(1), strict=True)
        centres = [
            place.unsqueeze(1).expand(-1, count, -1)
            for place, count in zip(poses[..., :3].unbind(1), self.pixels, strict=True)
        ]
        return torch.cat([rays @ turn.mT for rays, turn in parts], 1), torch.cat(centres, 1)


def _angles(rays: NDArray[np.float64]) -> tuple[float, float]:
    """Pitch below forward and yaw, radians, of the optical axis of rays (pixels, 3): all of them
    have length 1 along it."""
    x, y, z = np.linalg.lstsq(rays, np.ones(len(rays)), rcond=None)[0]
    level = float(np.hypot(x, y))
    is_vertical = level < 1e-6
    return float(np.arctan2(-z, level)), 0.0 if is_vertical else float(np.arctan2(y, x))


def _pitched(angle: Tensor) -> Tensor:
    """Turn downward, (...) radians -> (..., 3, 3)."""
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = [cos, zero, sin, zero, zero + 1, zero, -sin, zero, cos]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def _yawed(angle: Tensor) -> Tensor:
    """Turn to the left, (...) radians -> (..., 3, 3)."""
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = [cos, -sin, zero, sin, cos, zero, zero, zero, zero + 1]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def levelled(attitude: Tensor) -> Tensor:
    """Roll, pitch (and yaw, which is left out) (batch, 3), radians -> base to level frame, (batch,
    3, 3)."""
    roll, pitch, *_ = attitude.unbind(-1)
    cr, sr, cp, sp = roll.cos(), roll.sin(), pitch.cos(), pitch.sin()
    zero = torch.zeros_like(roll)
    rows = [cp, sp * sr, sp * cr, zero, cr, -sr, -sp, cp * sr, cp * cr]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def turned(x: Tensor, y: Tensor, yaw: Tensor) -> tuple[Tensor, Tensor]:
    """Forward and left in the level frame, (batch, n) each, and yaw (batch, 1), radians -> along
    and across the path."""
    cos, sin = yaw.cos(), yaw.sin()
    return cos * x - sin * y, sin * x + cos * y


def lateral_cue(seen: SeenGround) -> Tensor:
    """The current distribution of holes across the path: (batch, 36).

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
