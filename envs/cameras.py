"""Depth cameras by exact ray-box intersection.

The scene a depth camera sees here is a set of boxes over a floor, for which the closed-form slab
test is exact, bitwise repeatable and several times faster than a rasteriser. Boxes may be turned
about the vertical: the rays are then turned into each box's frame.
Convention, for the whole project: an image is (height, width); depth is planar, metres along the
optical axis, as depth cameras report it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

__all__ = ["CameraConfig", "DepthCameras", "ray_directions"]

Floats = NDArray[np.float64]
Depths = NDArray[np.float32]

_SMALL = 40_000  # up to this number of rays times boxes, intersecting all pairs at once is faster
_BEHIND_M = 1e-3  # points nearer to the camera plane have no projection


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class CameraConfig:
    """One depth camera, fixed to the robot's base (x forward, y left, z up)."""

    position_m: tuple[float, float, float] = (0.197, 0.0, -0.115)
    """Optical centre in the base frame, metres."""
    pitch_deg: float = Field(default=90.0, ge=-90, le=90)
    """Angle of the optical axis below the forward direction, degrees; 90 looks straight down."""
    yaw_deg: float = Field(default=0.0, ge=-180, le=180)
    """Turn of the camera about the base's vertical axis, degrees; positive turns it left."""
    roll_deg: float = Field(default=0.0, ge=-180, le=180)
    """Turn of the camera about its optical axis, degrees; positive turns it clockwise, as seen from
    behind it."""
    width_along: Literal["travel", "lateral"] = "travel"
    """The direction that the image's columns span where yaw and roll are 0; the rows span the
    other."""
    fov_deg: float = Field(default=75.0, gt=0, lt=170)
    """Field of view over the image's height, degrees."""
    height_px: int = Field(default=24, ge=4, le=1024)
    """Rows of the image; pixels are square."""
    width_px: int = Field(default=32, ge=4, le=1024)
    """Columns of the image."""


def ray_directions(camera: CameraConfig) -> Floats:
    """Directions of a camera's pixel rays in the base frame, (height, width, 3).

    They have unit length along the optical axis, so a ray parameter is a planar depth. With
    `width_along="travel"` the columns run forward and the rows from left to right, so the image
    reads as a map seen from above; with "lateral" the rows run from far to near and the columns
    from left to right.
    """
    height, width = camera.height_px, camera.width_px
    half_height = np.tan(np.radians(camera.fov_deg) / 2)
    half_width = half_height * width / height
    rows = (1 - 2 * (np.arange(height) + 0.5) / height) * half_height
    columns = (2 * (np.arange(width) + 0.5) / width - 1) * half_width
    pitch = np.radians(camera.pitch_deg)
    axis = np.array([np.cos(pitch), 0.0, -np.sin(pitch)])
    ahead = np.array([np.sin(pitch), 0.0, np.cos(pitch)])
    left = np.array([0.0, 1.0, 0.0])
    row_axis, column_axis = (left, ahead) if camera.width_along == "travel" else (ahead, -left)
    rays: Floats = axis + rows[:, None, None] * row_axis + columns[None, :, None] * column_axis
    if camera.yaw_deg or camera.roll_deg:
        rays = rays @ _turned(axis, camera.roll_deg).T @ _turned(np.eye(3)[2], camera.yaw_deg).T
    return rays


def _turned(axis: Floats, angle_deg: float) -> Floats:
    """(3, 3) right-handed rotation about a unit vector (Rodrigues' formula)."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    angle = np.radians(angle_deg)
    turn: Floats = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return turn


class DepthCameras:
    """Several cameras of one image size, rendered together.

    Args:
        cameras: their configurations.
        far_m: depth reported where nothing nearer is hit.
    """

    def __init__(self, cameras: Sequence[CameraConfig], far_m: float) -> None:
        self.far_m = far_m
        rays = np.stack([ray_directions(camera) for camera in cameras])
        self.shape: tuple[int, ...] = rays.shape[:3]
        """(cameras, height, width)."""
        self._directions = np.ascontiguousarray(rays.reshape(-1, 3).T)  # (3, cameras * rays)
        self._positions = np.array([camera.position_m for camera in cameras])
        first, below, beside = rays[:, 0, 0], rays[:, 1, 0], rays[:, 0, 1]
        # A point in the base frame -> its depth, and depth times row, depth times column.
        self._pixels = np.linalg.inv(np.stack([first, below - first, beside - first], -1))

    def reach_m(self, height_m: float) -> tuple[float, float]:
        """How far behind and ahead the cameras see from a level base `height_m` above the floor."""
        along, _, up = self._directions.reshape(3, len(self._positions), -1)
        down = np.maximum(-up, 1e-6)
        depth_m = np.minimum((height_m + self._positions[:, 2, None]) / down, self.far_m)
        seen_m = self._positions[:, 0, None] + depth_m * along
        return -float(seen_m.min()), float(seen_m.max())

    def render(
        self,
        position_m: Floats,
        rotation: Floats,
        low_m: Floats,
        high_m: Floats,
        floor_m: float,
        yaw_rad: Floats | None = None,
    ) -> NDArray[np.float32]:
        """Depth images of boxes over a floor.

        Args:
            position_m: (3,) base position in the world.
            rotation: (3, 3) base-to-world rotation.
            low_m, high_m: (boxes, 3) opposite corners of the boxes, world.
            floor_m: height of the infinite floor, world.
            yaw_rad: (boxes,) how far each box is then turned to the left about the vertical through
                its centre; None: along the axes.

        Returns:
            (cameras, height, width) planar depth, metres.
        """
        origin = position_m + self._positions @ rotation.T  # (cameras, 3)
        direction = rotation.dot(self._directions).astype(np.float32)
        direction = direction.reshape(3, len(origin), -1)  # (3, cameras, rays)
        with np.errstate(divide="ignore"):
            inverse = np.float32(1) / direction
        near_m = ((floor_m - origin[:, 2, None]) * inverse[2]).astype(np.float32)
        np.copyto(near_m, np.float32(self.far_m), where=inverse[2] >= 0)
        low = (low_m[:, None] - origin).astype(np.float32)  # (boxes, cameras, 3)
        high = (high_m[:, None] - origin).astype(np.float32)
        if yaw_rad is not None:
            self._meet_turned(near_m, direction, rotation, origin, (low_m, high_m, yaw_rad))
        elif len(low) * near_m.size <= _SMALL:
            _meet_all(near_m, inverse, low, high)
        else:
            images, by_image = near_m.reshape(self.shape), inverse.reshape(3, *self.shape)
            for box, camera, rows, columns in self._seen(_corners(low, high), rotation):
                part = (camera, slice(*rows), slice(*columns))
                corners = low[box, camera][:, None, None], high[box, camera][:, None, None]
                _meet(images[part], by_image[:, *part], *corners)
        return np.minimum(near_m, np.float32(self.far_m)).reshape(self.shape)

    def _meet_turned(
        self,
        near_m: Depths,
        direction: NDArray[np.float32],
        rotation: Floats,
        origin: Floats,
        boxes: tuple[Floats, Floats, Floats],
    ) -> None:
        """Intersect turned boxes with the rays (3, cameras, rays) from (cameras, 3), in place."""
        low_m, high_m, yaw_rad = boxes
        turns = np.zeros((len(yaw_rad), 1, 3, 3))  # from a box's frame to the world
        turns[:, 0, 0, 0] = turns[:, 0, 1, 1] = np.cos(yaw_rad)
        turns[:, 0, 1, 0] = np.sin(yaw_rad)
        turns[:, 0, 0, 1] = -turns[:, 0, 1, 0]
        turns[:, 0, 2, 2] = 1.0
        centre, half = (low_m + high_m) / 2, ((high_m - low_m) / 2)[:, None]
        own = ((centre[:, None] - origin)[:, :, None] @ turns)[:, :, 0]  # (boxes, cameras, 3)
        low, high = (own - half).astype(np.float32), (own + half).astype(np.float32)
        images, rays = near_m.reshape(self.shape), direction.reshape(3, *self.shape)
        _, height, width = self.shape
        seen: Iterable[tuple[int, int | slice, list[int], list[int]]]
        if len(low) * near_m.size <= _SMALL:
            seen = [(box, slice(None), [0, height], [0, width]) for box in range(len(low))]
        else:
            seen = self._seen(turns @ _corners(low, high), rotation)
        for box, camera, rows, columns in seen:
            part = (camera, slice(*rows), slice(*columns))
            x, y, z = rays[:, *part]
            cos, sin = np.float32(turns[box, 0, 0, 0]), np.float32(turns[box, 0, 1, 0])
            with np.errstate(divide="ignore"):
                inverse = np.float32(1) / np.stack([cos * x + sin * y, cos * y - sin * x, z])
            corners = (side[box, camera].T[..., None, None] for side in (low, high))
            _meet(images[part], inverse, *corners)

    def _seen(
        self, corners: Floats, rotation: Floats
    ) -> Iterator[tuple[int, int, list[int], list[int]]]:
        """Each box, camera, and the first and last (excluded) rows and columns that the box, of
        corners (boxes, cameras, 3, 8) as seen from the camera, may be seen in."""
        scaled = self._pixels @ rotation.T @ corners
        depth_m, places = scaled[:, :, 0], scaled[:, :, 1:]
        size = np.array(self.shape[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            places = places / depth_m[:, :, None]
        first = np.floor(np.clip(places.min(-1) - 1, 0, size))
        last = np.ceil(np.clip(places.max(-1) + 2, 0, size))
        near = (depth_m <= _BEHIND_M).any(-1, keepdims=True)
        first, last = np.where(near, 0, first).astype(int), np.where(near, size, last).astype(int)
        seen = (first < last).all(-1) & (depth_m > _BEHIND_M).any(-1)
        for box, camera in np.argwhere(seen).tolist():
            (top, left), (bottom, right) = first[box, camera], last[box, camera]
            yield box, camera, [top, bottom], [left, right]


def _corners(low: NDArray[np.float32], high: NDArray[np.float32]) -> Floats:
    """All corners (boxes, cameras, 3, 8) of boxes by two opposite ones (boxes, cameras, 3)."""
    sides = np.stack([low, high], -1).astype(float)
    choice = np.indices((2, 2, 2)).reshape(3, 8)
    found: Floats = sides[:, :, np.arange(3)[:, None], choice]
    return found


def _meet_all(
    near_m: Depths, inverse: Depths, low: NDArray[np.float32], high: NDArray[np.float32]
) -> None:
    """`_meet` of boxes, of corners (boxes, cameras, 3), and rays (cameras, rays), all at once."""
    if not len(low):
        return
    shape = (len(low), *inverse.shape)
    a, b = np.empty(shape, np.float32), np.empty(shape, np.float32)
    a[...], b[...] = low.transpose(0, 2, 1)[..., None], high.transpose(0, 2, 1)[..., None]
    a *= inverse  # corners are spread before: NumPy is slow where one number meets many
    b *= inverse
    enter, leave = np.minimum(a, b).max(1), np.maximum(a, b, out=a).min(1)
    enter[~((enter <= leave) & (enter > 0))] = np.inf
    np.minimum(near_m, enter.min(0), out=near_m)


def _meet(near_m: Depths, inverse: Any, low: Any, high: Any) -> None:
    """Update the hits of rays (...), of inverse directions (3, ...), by a box of corners (3,
    ...)."""
    a, b = low * inverse, high * inverse  # one slab an axis
    enter, leave = np.minimum(a, b).max(0), np.maximum(a, b).min(0)
    hit = (enter <= leave) & (enter > 0) & (enter < near_m)
    np.copyto(near_m, enter, where=hit)
