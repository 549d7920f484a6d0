"""The images that foothold votes read, rendered from cameras at any pose and resolution.

Votes, and the attention before them, read two images taken straight down, as the published
cameras take them. From other cameras these images are rendered: the depth of each pixel, planar
along its camera's axis, is converted to the depth from a camera that looks straight down from the
published height, and each pixel of the two images is interpolated linearly between the pixels of a
camera that sees the same ground. So pixels, tokens and places mean the same for all cameras."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from attention.joining import joined
from policies.common.geometry import (
    PUBLISHED_HALF_HEIGHT,
    PUBLISHED_POSITIONS_M,
    PUBLISHED_SHAPE,
    Footholds,
    Geometry,
    moving_images,
    published_rays,
    yaw_rate_of,
)
from policies.common.observation import Observations, Prepared

Floats = NDArray[np.float64]

_SAME = 1e-6  # rays and positions that differ by less are the same
_SIDE_M = 0.26  # how far to either side the ends of stones are looked for
_LEAST_SEEN = 0.9  # share of the ground about the feet that must be in some image
_FOOT_M = 0.05  # and about each foot
_FINEST = 8  # times as many rows as the published images have
_LEAST_FALL = 0.05  # rays that fall less, for a length of 1 along the axis, see no ground


@dataclass(frozen=True)
class _Camera:
    """A camera of the environment; rays (height, width, 3), place (3,), metres."""

    rays: Floats
    place_m: Floats

    def pixels_of(self, points_m: Floats) -> Floats:
        """Image coordinates of points (..., 3): row and column (..., 2), fractions of pixels;
        NaN behind the camera."""
        height, width, _ = self.rays.shape
        first = self.rays[0, 0]
        down = (self.rays[-1, 0] - first) / max(1, height - 1)
        across = (self.rays[0, -1] - first) / max(1, width - 1)
        axes = np.stack([first, down, across], -1)
        found = (points_m - self.place_m) @ np.linalg.inv(axes).T
        depth = np.where(found[..., :1] > 0, found[..., :1], np.nan)
        pixels: Floats = (found[..., 1:] / depth).round(6)
        return pixels

    @property
    def is_pinhole(self) -> bool:
        """Whether rays are equally spaced over pixels."""
        steps = [np.diff(self.rays, axis=axis) for axis in (0, 1)]
        return min(self.rays.shape[:2]) > 1 and all(
            np.allclose(step, step[:1, :1], rtol=0, atol=_SAME) for step in steps
        )

    def ground_m(self, base_m: float) -> Floats:
        """Ground points of pixels under a level base, forward and left, (height, width, 2)."""
        fall = np.maximum(-self.rays[..., 2:], _LEAST_FALL)
        ground: Floats = self.place_m[:2] + (base_m + self.place_m[2]) * self.rays[..., :2] / fall
        return ground


class GroundView:
    """Renders the two images, (cameras, height, width), from those of an environment's cameras.

    Args:
        cameras: the environment's, in the order of the observation.
        base_m: nominal height of the base above the ground, metres.
    """

    def __init__(self, cameras: Sequence[_Camera], base_m: float) -> None:
        self._cameras, self._base_m = list(cameras), base_m
        finest_m = min(_pixel_m(camera, base_m) for camera in cameras)
        finer = round(_pixel_m(PUBLISHED[0], base_m) / finest_m)
        factor = min(max(1, finer), _FINEST)
        height, width = (factor * side for side in PUBLISHED_SHAPE)
        self.shape = (len(PUBLISHED), height, width)
        self._own = [_Camera(published_rays(height, width), place.place_m) for place in PUBLISHED]
        self.is_theirs = len(cameras) == len(self._own) and all(
            _same(mine, theirs) for mine, theirs in zip(self._own, cameras, strict=True)
        )
        if not self.is_theirs:
            self._choose()

    def _choose(self) -> None:
        """Choose four camera pixels, with weights, for each pixel of the view."""
        ends = np.cumsum([0, *(camera.rays[..., 0].size for camera in self._cameras)])
        index, weight, shift, seen, ground, chosen = [], [], [], [], [], []
        for own in self._own:
            flat = own.ground_m(self._base_m).reshape(-1, 2)
            points = np.concatenate([flat, np.full((len(flat), 1), -self._base_m)], -1)
            found = [_between(camera, points) for camera in self._cameras]
            outside = np.stack([f.outside for f in found])  # (cameras, pixels)
            apart = [np.linalg.norm(camera.place_m - own.place_m) for camera in self._cameras]
            # The nearest camera that sees the ground has the most similar perspective.
            best = (outside + 1e-3 * np.array(apart)[:, None]).argmin(0)
            every = np.arange(len(flat))
            index.append(np.stack([f.index + ends[i] for i, f in enumerate(found)])[best, every])
            weight.append(np.stack([f.weight for f in found])[best, every])
            seen.append(outside[best, every] <= 0.5)
            ground.append(flat)
            chosen.append(best)
            shift.append(np.array([own.place_m[2] - c.place_m[2] for c in self._cameras])[best])
        self.index = torch.from_numpy(np.concatenate(index))
        self.weight = torch.from_numpy(np.concatenate(weight)).float()
        self._chosen = torch.from_numpy(np.concatenate(chosen)).view(self.shape)
        self._seen, self._ground = np.concatenate(seen), np.concatenate(ground)
        fall = [-camera.rays[..., 2].flatten() for camera in self._cameras]
        self.fall = torch.from_numpy(np.concatenate(fall)).float()
        self.shift = torch.from_numpy(np.concatenate(shift)).float()

    def __call__(self, depth_m: Sequence[Tensor]) -> Tensor:
        """Depth of the cameras, groups of (batch, cameras, 1, height, width), metres -> that of the
        view (batch, 2, 1, height, width)."""
        if self.is_theirs:
            return joined(depth_m, 1)
        flat = torch.cat([part.flatten(1) for part in depth_m], 1)
        fall, shift, weight = (v.to(flat) for v in (self.fall, self.shift, self.weight))
        falls = flat * fall
        seen = (falls[:, self.index.to(flat.device)] * weight).sum(-1) + shift
        cameras, height, width = self.shape
        return seen.view(-1, cameras, 1, height, width)

    def back(self, kept: Tensor) -> list[Tensor]:
        """Map bool masks of each camera's pixels, (height, width), to the view's pixels (2, height,
        width); False elsewhere.
        """
        if self.is_theirs:
            return [*kept]
        found = []
        for i, camera in enumerate(self._cameras):
            flat = camera.ground_m(self._base_m)
            points = np.concatenate([flat, np.full((*flat.shape[:2], 1), -self._base_m)], -1)
            mask = torch.zeros(flat.shape[:2], dtype=torch.bool, device=kept.device)
            given = kept & (self._chosen.to(kept.device) == i)
            for own, image in zip(self._own, given, strict=True):
                pixels = np.nan_to_num(own.pixels_of(points).round(), nan=-1.0)
                sides = np.array(image.shape)
                inside = ((pixels >= 0) & (pixels < sides)).all(-1)
                row, column = (torch.from_numpy(p) for p in pixels[inside].astype(np.int64).T)
                mask[torch.from_numpy(inside)] |= image[row, column]
            found.append(mask)
        return found

    def unseen(self, footholds: Footholds) -> str | None:
        """The missing item if too much of the ground around the feet is in no image, else None."""
        if self.is_theirs:
            return None
        ahead = [x for x, _ in footholds.stance_m]
        first, last = min(ahead) - footholds.reach_m, max(ahead) + footholds.reach_m
        x, y = self._ground.T
        about = [(x > first) & (x < last) & (np.abs(y) < _SIDE_M)]
        for foot_x, foot_y in footholds.stance_m:
            about.append((np.abs(x - foot_x) < footholds.reach_m) & (np.abs(y - foot_y) < _FOOT_M))
        share = min(float(self._seen[part].mean()) for part in about)
        if share >= _LEAST_SEEN:
            return None
        return (
            f"cameras that see the ground from {first:.2f} to {last:.2f} m ahead of the base and "
            f"{_SIDE_M} m to either side, and these see {100 * share:.0f} % of it or of a foot's "
            "part"
        )


PUBLISHED = tuple(
    _Camera(published_rays(*PUBLISHED_SHAPE), np.array(place)) for place in PUBLISHED_POSITIONS_M
)


@dataclass(frozen=True)
class VotePlan:
    """The data that `VoteController` needs."""

    view: GroundView
    footholds: Footholds
    proprio: slice
    """Find the slices of the footholds in the observation's vector."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the images: cameras, height and width."""
        return self.view.shape

    def rays_and_places(self) -> Tensor:
        """Ray and camera of each pixel, (2, 3, pixels), rows without gaps: in float32 as they were
        computed for published policies."""
        cameras, height, width = self.shape
        rows = (1 - 2 * (torch.arange(height) + 0.5) / height) * PUBLISHED_HALF_HEIGHT
        columns = (2 * (torch.arange(width) + 0.5) / width - 1) * PUBLISHED_HALF_HEIGHT
        left, ahead = torch.meshgrid(rows, columns * width / height, indexing="ij")
        rays = torch.stack([ahead, left, -torch.ones_like(left)], -1).view(1, -1, 3)
        places = torch.tensor(PUBLISHED_POSITIONS_M).view(-1, 1, 3)
        size = height * width
        both = torch.stack([rays.expand(cameras, -1, -1), places.expand(-1, size, -1)])
        return both.view(2, -1, 3).mT.contiguous()


def vote_plan(
    observations: Observations, images: Sequence[Prepared], geometry: Geometry | None,
    action_space: gymnasium.Space[Any],
) -> VotePlan | str:  # fmt: skip
    """The plan, or the missing item that completes "controller vote needs ..."."""
    footholds = None if geometry is None else geometry.footholds
    if geometry is None or footholds is None:
        return "a geometry that tells of footholds, and this environment gives none"
    if yaw_rate_of(footholds) is not None:
        return "a robot that walks straight on, and this action turns it"
    if action_space.shape != (footholds.actions,):
        return f"actions of shape ({footholds.actions},), got {action_space.shape}"
    sizes = {vector.key: vector.size for vector in observations.vectors}
    least = max(part.stop for part in (footholds.attitude, footholds.velocity, footholds.nominal))
    if sizes.get(footholds.proprio, 0) < max(least, footholds.height + 1):
        return (
            f"a vector {footholds.proprio} of at least {least} numbers, got "
            f"{sizes.get(footholds.proprio, 'none')}"
        )
    moving = moving_images(geometry)
    if moving:
        return (
            "cameras that stay where they are, and those of "
            f"{', '.join(moving)} are elsewhere each episode"
        )
    if not images:
        return "images, and this observation has none"
    cameras: list[_Camera] = []
    for part in images:
        found = _cameras(part, geometry)
        if isinstance(found, str):
            return found
        cameras += found
    view = GroundView(cameras, footholds.stance_height_m + footholds.toe_radius_m)
    plan = VotePlan(view, footholds, observations.slice_of(footholds.proprio))
    return view.unseen(footholds) or plan


def _cameras(images: Prepared, geometry: Geometry) -> list[_Camera] | str:
    """A part's cameras, or what is missing."""
    seen = images.part
    rays, places = _at(geometry.rays, seen.key), _at(geometry.positions_m, seen.key)
    shape = (seen.count, seen.height, seen.width, 3)
    if rays is None or places is None or rays.size != np.prod(shape):
        return f"the rays and the place of each camera of {seen.key}, and the geometry gives none"
    if seen.channels != 1 or images.scale is None:
        return f"{seen.key} to be depth in metres, of one channel and a scale"
    top, bottom, left, right = images.crop
    rays = rays.reshape(shape)[:, top : shape[1] - bottom, left : shape[2] - right]
    if images.size is not None:
        moved = torch.from_numpy(np.ascontiguousarray(rays)).movedim(-1, 1)
        rays = interpolate(moved, images.size, mode="area").movedim(1, -1).numpy()
    found = [_Camera(own, place) for own, place in zip(rays, places.reshape(-1, 3), strict=True)]
    if not all(camera.is_pinhole for camera in found):
        return f"{seen.key} to be of pinhole cameras, whose rays are a plane's points"
    return found


def _at(values: Mapping[str, Any], key: str) -> Floats | None:
    return np.asarray(values[key], np.float64) if key in values else None


def _same(mine: _Camera, theirs: _Camera) -> bool:
    return mine.rays.shape == theirs.rays.shape and all(
        np.allclose(a, b, rtol=0, atol=_SAME)
        for a, b in ((mine.rays, theirs.rays), (mine.place_m, theirs.place_m))
    )


def _pixel_m(camera: _Camera, base_m: float) -> float:
    """Distance on the ground between neighbouring pixels in the middle of the image."""
    ground = camera.ground_m(base_m)
    height, width, _ = ground.shape
    row, column = height // 2, width // 2
    steps = ground[row, column] - np.stack([ground[row - 1, column], ground[row, column - 1]])
    return float(np.sqrt(np.prod([np.linalg.norm(step) for step in steps])))


@dataclass(frozen=True)
class _Found:
    """Four pixels of a camera about each point, (points, 4), their weights, and by how many pixels
    a point is outside of the image, (points,); infinitely where it is behind."""

    index: NDArray[np.int64]
    weight: Floats
    outside: Floats


def _between(camera: _Camera, points_m: Floats) -> _Found:
    height, width, _ = camera.rays.shape
    pixels = camera.pixels_of(points_m)
    last = np.array([height - 1, width - 1])
    outside = np.maximum(np.maximum(-pixels, pixels - last), 0).max(-1)
    inside = np.nan_to_num(pixels).clip(0, last)
    low = np.minimum(np.floor(inside), last - 1).astype(np.int64)
    (row, column), (down, across) = low.T, (inside - low).T
    corners = [
        (row + i, column + j, abs(1 - i - down), abs(1 - j - across))
        for i in (0, 1)
        for j in (0, 1)
    ]
    index = np.stack([r * width + c for r, c, _, _ in corners], -1)
    weight = np.stack([wr * wc for _, _, wr, wc in corners], -1)
    return _Found(index, weight, np.nan_to_num(outside, nan=np.inf))
