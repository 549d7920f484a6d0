"""What votes for footholds need to know of cameras, at any pose and resolution.

A picture is read in lines across the direction of travel, along which a pixel sees ground equally
far ahead: its columns, or its rows where the picture is turned, or single pixels where neither is
so. Lines are blurred over what two of them are apart on the ground, lanes over what two pixels of a
line are: at the published resolution and finer by the same lengths as ever, so that a template
means the same to each.

Depth is planar, along a camera's own axis. Where that is not straight down, or a camera hangs at
another height, `as_heights` brings it to what a camera there would measure that looks straight down
from where the published ones do, so that pixels of equal height have equal values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from policies.geometry import (
    PUBLISHED_HALF_HEIGHT,
    Footholds,
    Geometry,
    published_rays,
)
from policies.images import Prepared
from policies.observation import Observations

__all__ = ["VotePlan", "vote_plan"]

Floats = NDArray[np.float64]

_LANE_M = 0.05
"""Half-width of a lane."""
_LINE_M = 0.024
"""Half-width of a line's part in a profile: what lines are apart, a pixel on the ground."""
_FINE = 1.25  # times as far apart they may be
_CAMERA_M, _NEAR_M = (
    -0.11,
    0.01,
)  # height of the published cameras in the base frame, to a centimetre
_STEEP = 0.05  # rays that fall less, for a length of 1 along the axis, see no ground
_BESIDE_M = 0.05  # a foothold is seen where a pixel is so near


@dataclass(frozen=True)
class _View:
    """One part's cameras, their pixels in lines: arrays (cameras, across, lines)."""

    rays: Floats
    """(cameras, across, lines, 3)."""
    positions_m: Floats
    """(cameras, 3)."""
    picture: tuple[int, int, int, int]
    """(cameras, 1, height, width)."""
    lines: str
    """"columns", "rows" or "pixels" of the picture."""
    published: bool
    """Whether the cameras look as the published ones do, from their height."""

    @property
    def shape(self) -> tuple[int, int, int]:
        cameras, across, lines, _ = self.rays.shape
        return cameras, across, lines

    def on_ground(self, base_m: float) -> tuple[Floats, Floats]:
        """Ahead and left, where the pixels of a level robot's cameras meet the ground, (cameras,
        across, lines); far away where they do not."""
        fall = np.maximum(-self.rays[..., 2], _STEEP)
        drop = (base_m + self.positions_m[:, 2])[:, None, None]
        ahead, left = (
            self.positions_m[:, axis, None, None] + drop * self.rays[..., axis] / fall
            for axis in (0, 1)
        )
        return ahead, left

    def falls(self) -> tuple[Tensor, Tensor] | None:
        """Factor and shift of `VotePlan.as_heights`, (cameras, 1, height, width) and (cameras, 1,
        1, 1); None where nothing changes."""
        if self.published:
            return None
        fall = self.rays[..., 2].swapaxes(1, 2) if self.lines == "rows" else self.rays[..., 2]
        shift = _CAMERA_M - self.positions_m[:, 2]
        shift = np.where(np.abs(shift) < _NEAR_M, 0.0, shift)
        return _float(-fall.reshape(self.picture)), _float(shift).view(-1, 1, 1, 1)


class VotePlan:
    """Cameras and footholds, ready for `VoteController`.

    Args:
        views: the cameras of each part of the observation that is images.
        footholds: of the geometry.
        proprio: where in the observation's vector they are told.
    """

    def __init__(self, views: Sequence[_View], footholds: Footholds, proprio: slice) -> None:
        self.views, self.footholds, self.proprio = list(views), footholds, proprio
        base_m = footholds.stance_height_m + footholds.toe_radius_m
        ground = [view.on_ground(base_m) for view in views]
        along = [_apart(ahead.mean(1, keepdims=True), view, -1)
                 for view, (ahead, _) in zip(self.views, ground, strict=True)]  # fmt: skip
        across = [_apart(left, view, 1) for view, (_, left) in zip(self.views, ground, strict=True)]
        self.lane_m = _width(across, _LANE_M)
        self.line_m = _width(along, _LINE_M)
        self.areas = None if self._is_even(along, across) else _areas(along, across)
        self._falls = [view.falls() for view in self.views]

    @staticmethod
    def _is_even(along: list[Floats], across: list[Floats]) -> bool:
        """Whether all pixels see about as much ground."""
        area = np.concatenate([(a * b).flatten() for a, b in zip(along, across, strict=True)])
        return bool(np.abs(area / area.mean() - 1).max() < 0.2) if area.mean() > 0 else True

    def rays_and_places(self) -> Tensor:
        """Ray and camera of each pixel in lines, (2, pixels, 3), float32."""
        rays = [_published(view) if view.published else _float(view.rays) for view in self.views]
        places = [
            _float(view.positions_m)[:, None, None].expand(*view.shape, 3) for view in self.views
        ]
        both = (torch.cat([part.reshape(-1, 3) for part in parts]) for parts in (rays, places))
        return torch.stack([*both])

    def in_lines(self, pictures: Sequence[Tensor]) -> Tensor:
        """Groups of pictures (batch, cameras, 1, height, width) -> (batch, pixels)."""
        parts = [
            (picture.mT if view.lines == "rows" else picture).flatten(1)
            for picture, view in zip(pictures, self.views, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def line_sums(self, pixels: Tensor) -> Tensor:
        """(..., pixels) -> (..., lines)."""
        return self._each(pixels, lambda part: part.sum(-2))

    def line_means(self, pixels: Tensor) -> Tensor:
        """(..., pixels) -> (..., lines)."""
        return self._each(pixels, lambda part: part.mean(-2))

    def _each(self, pixels: Tensor, reduce: Any) -> Tensor:
        sizes = [int(np.prod(view.shape)) for view in self.views]
        parts = [
            reduce(part.unflatten(-1, view.shape)).flatten(-2)
            for part, view in zip(pixels.split(sizes, -1), self.views, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def as_heights(self, index: int, depth_m: Tensor) -> Tensor:
        """Depth (batch, cameras, 1, height, width) of a part's cameras, metres -> what cameras that
        look straight down would measure, see above."""
        found = self._falls[index]
        if found is None:
            return depth_m
        fall, shift = (part.to(depth_m) for part in found)
        return depth_m * fall + shift


def vote_plan(
    observations: Observations, images: Sequence[Prepared], geometry: Geometry | None,
    action_space: gymnasium.Space[Any],
) -> VotePlan | str:  # fmt: skip
    """The plan; or what is missing for one, as "controller vote needs ..." goes on."""
    footholds = None if geometry is None else geometry.footholds
    if geometry is None or footholds is None:
        return "a geometry that tells of footholds, and this environment gives none"
    if action_space.shape != (footholds.actions,):
        return f"actions of shape ({footholds.actions},), got {action_space.shape}"
    told = {vector.key: vector.size for vector in observations.vectors}
    least = max(part.stop for part in (footholds.attitude, footholds.velocity, footholds.nominal))
    if told.get(footholds.proprio, 0) < max(least, footholds.height + 1):
        return (
            f"a vector {footholds.proprio} of at least {least} numbers, got "
            f"{told.get(footholds.proprio, 'none')}"
        )
    if not images:
        return "images, and this observation has none"
    views = [_view(part, geometry) for part in images]
    for view in views:
        if isinstance(view, str):
            return view
    plan = VotePlan(
        [view for view in views if isinstance(view, _View)],
        footholds,
        observations.slice_of(footholds.proprio),
    )
    return _unseen(plan) or plan


def _view(images: Prepared, geometry: Geometry) -> _View | str:
    """A part's cameras; or what is missing."""
    seen = images.pictures
    rays, places = _at(geometry.rays, seen.key), _at(geometry.positions_m, seen.key)
    shape = (seen.count, seen.height, seen.width, 3)
    if rays is None or places is None or rays.size != np.prod(shape):
        return f"the rays and the place of each camera of {seen.key}, and the geometry gives none"
    if seen.channels != 1 or images.scale.fixed is None:
        return f"{seen.key} to be depth in metres, of one channel and a scale"
    top, bottom, left, right = images.crop
    rays = rays.reshape(shape)[:, top : shape[1] - bottom, left : shape[2] - right]
    if images.size is not None:
        moved = torch.from_numpy(np.ascontiguousarray(rays)).movedim(-1, 1)
        rays = interpolate(moved, images.size, mode="area").movedim(1, -1).numpy()
    places = np.asarray(places, np.float64).reshape(-1, 3)
    height, width = rays.shape[1:3]
    published = np.allclose(rays, published_rays(height, width), rtol=0, atol=1e-6)
    published &= bool((np.abs(places[:, 2] - _CAMERA_M) < _NEAR_M).all())
    lines = _lines(rays)
    if lines == "rows":
        rays = rays.swapaxes(1, 2)
    elif lines == "pixels":
        rays = rays.reshape(len(rays), 1, -1, 3)
    picture = len(rays), 1, height, width
    return _View(rays, places, picture, lines, bool(published))


def _at(values: Mapping[str, Any], key: str) -> Floats | None:
    return np.asarray(values[key], np.float64) if key in values else None


def _lines(rays: Floats) -> str:
    """Along what of the pictures (cameras, height, width, 3) the ground is equally far ahead."""
    ahead = rays[..., 0] / np.maximum(-rays[..., 2], _STEEP)
    sees = -rays[..., 2] > _STEEP
    for name, axis in (("columns", 1), ("rows", 2)):
        spread = np.ptp(np.where(sees, ahead, ahead.mean(axis, keepdims=True)), axis=axis)
        middle = ahead.mean(axis)
        apart = np.abs(np.diff(middle, axis=1)).min(initial=np.inf)
        if spread.max() < 0.5 * apart:
            return name
    return "pixels"


def _apart(places: Floats, view: _View, axis: int) -> Floats:
    """How far neighbours along an axis are apart; of single pixels it is not told."""
    if places.shape[axis] < 2 or view.lines == "pixels":
        return np.zeros_like(places)
    found: Floats = np.abs(np.gradient(places, axis=axis))
    return found


def _width(apart: list[Floats], least: float) -> float | Tensor:
    """Half-widths of what is so far apart: one for all where none needs more."""
    every = np.concatenate([part.flatten() for part in apart])
    if every.max(initial=0.0) <= _FINE * least:
        return least
    return _float(np.maximum(every, least))


def _areas(along: list[Floats], across: list[Floats]) -> Tensor:
    """Ground that each pixel sees, its mean over pixels being 1; what is far away counts no more
    than three times what is usual."""
    area = np.concatenate([(a * b).flatten() for a, b in zip(along, across, strict=True)])
    area = np.minimum(area, 3 * np.median(area))
    return _float(area / area.mean())


def _unseen(plan: VotePlan) -> str | None:
    """What is missing where some foothold of a usual walk is in no picture."""
    footholds = plan.footholds
    base_m = footholds.stance_height_m + footholds.toe_radius_m
    ground = [view.on_ground(base_m) for view in plan.views]
    ahead, left = (np.concatenate([g[i].flatten() for g in ground]) for i in (0, 1))
    for x, y in footholds.stance_m:
        lane = np.abs(left - y) < _BESIDE_M
        for reach in (-footholds.reach_m, 0.0, footholds.reach_m):
            if not (np.abs(ahead[lane] - x - reach) < _BESIDE_M).any():
                return (
                    "cameras that see where feet may land, and none sees the ground "
                    f"{x + reach:.2f} m ahead and {y:.2f} m to the left of the base"
                )
    return None


def _published(view: _View) -> Tensor:
    """Rays of the published cameras, computed in float32 as they were for published policies."""
    cameras, height, width = view.shape
    rows = (1 - 2 * (torch.arange(height) + 0.5) / height) * PUBLISHED_HALF_HEIGHT
    columns = (2 * (torch.arange(width) + 0.5) / width - 1) * PUBLISHED_HALF_HEIGHT * width / height
    left, ahead = torch.meshgrid(rows, columns, indexing="ij")
    rays = torch.stack([ahead, left, -torch.ones_like(left)], -1)
    return rays.expand(cameras, -1, -1, -1)


def _float(values: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float64)).float()
