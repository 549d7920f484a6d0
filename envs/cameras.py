"""Depth cameras by exact ray-box intersection.

The scene a depth camera sees here is a set of boxes over a floor, for which the closed-form slab
test is exact, bitwise repeatable and several times faster than a rasteriser. Boxes may be turned
about the vertical: the rays are then turned into each box's frame.
Convention, for the whole project: an image is (height, width); depth is planar, metres along the
optical axis, as depth cameras report it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.camera_config import CameraConfig
from envs.compiled import compiled, product

__all__ = ["CameraConfig", "DepthCameras", "ray_directions"]

Floats = NDArray[np.float64]
Depths = NDArray[np.float32]

_AT_ONCE = 1024  # rays, whose numbers stay in the cache


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
        self.far_m, self._far_m = far_m, np.float32(far_m)
        rays = np.stack([ray_directions(camera) for camera in cameras])
        self.shape: tuple[int, ...] = rays.shape[:3]
        """(cameras, height, width)."""
        self._directions = np.ascontiguousarray(rays.reshape(-1, 3).T)  # (3, cameras * rays)
        self._positions = np.array([camera.position_m for camera in cameras])

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
        near_m = np.empty(self.shape, np.float32)
        turns = None
        if yaw_rad is None:
            origin, low, high = _along_axes(position_m, rotation, self._positions, low_m, high_m)
        else:
            origin = position_m + self._positions @ rotation.T
            turns = np.cos(yaw_rad), np.sin(yaw_rad)
            low, high = _in_own_frames(origin, low_m, high_m, *turns)
        rows_m, floors_m = near_m.reshape(len(origin), -1), floor_m - origin[:, 2]
        _meet(rows_m, rotation, self._directions, low, high, turns, floors_m, self._far_m)
        return near_m


@compiled
def _along_axes(
    position_m: Floats, rotation: Floats, positions_m: Floats, low_m: Floats, high_m: Floats
) -> tuple[Floats, Floats, Floats]:
    """The cameras (cameras, 3), and from each the corners (boxes, cameras, 3) of boxes."""
    origin = position_m + product(positions_m, rotation.T)
    low, high = np.empty((2, len(low_m), len(origin), 3))
    for box in range(len(low_m)):
        low[box] = low_m[box] - origin
        high[box] = high_m[box] - origin
    return origin, low, high


def _in_own_frames(
    origin: Floats, low_m: Floats, high_m: Floats, cos: Floats, sin: Floats
) -> tuple[Floats, Floats]:
    """Corners (boxes, cameras, 3) of turned boxes from the cameras (cameras, 3), each in the frame
    in which the box lies along the axes."""
    turns = np.zeros((len(cos), 1, 3, 3))  # from a box's frame to the world
    turns[:, 0, 0, 0] = turns[:, 0, 1, 1] = cos
    turns[:, 0, 1, 0] = sin
    turns[:, 0, 0, 1] = -sin
    turns[:, 0, 2, 2] = 1.0
    centre, half = (low_m + high_m) / 2, ((high_m - low_m) / 2)[:, None]
    own = ((centre[:, None] - origin)[:, :, None] @ turns)[:, :, 0]
    return own - half, own + half


@compiled
def _meet(
    near_m: Depths,
    rotation: Floats,
    directions: Floats,
    low: Floats,
    high: Floats,
    turns: tuple[Floats, Floats] | None,
    floors_m: Floats,
    far_m: np.float32,
) -> None:
    """Set the depths (cameras, rays) of rays, of directions (3, cameras * rays) in the base frame,
    that meet boxes of corners (boxes, cameras, 3), turned by angles of cosines and sines (boxes,),
    or a floor below each camera (cameras,).

    Each ray enters and leaves a box's three slabs; NaN, of a ray within a slab's side, is a miss.
    """
    one, zero = np.float32(1), np.float32(0)
    by_x, by_y, by_z = np.empty((3, _AT_ONCE), np.float32)
    for camera, start in np.ndindex(len(near_m), -(-near_m.shape[1] // _AT_ONCE)):
        near = near_m[camera, start * _AT_ONCE : (start + 1) * _AT_ONCE]
        first, rays = camera * near_m.shape[1] + start * _AT_ONCE, len(near)
        x, y, z = product(rotation, directions[:, first : first + rays]).astype(np.float32)
        for ray in range(rays):
            by_x[ray], by_y[ray], by_z[ray] = one / x[ray], one / y[ray], one / z[ray]
            down = by_z[ray] < zero
            near[ray] = np.float32(floors_m[camera] * by_z[ray]) if down else far_m
        for box in range(len(low)):
            if turns is not None:
                cos, sin = np.float32(turns[0][box]), np.float32(turns[1][box])
                for ray in range(rays):
                    by_x[ray] = one / (cos * x[ray] + sin * y[ray])
                    by_y[ray] = one / (cos * y[ray] - sin * x[ray])
            low_x, low_y, low_z = low[box, camera].astype(np.float32)
            high_x, high_y, high_z = high[box, camera].astype(np.float32)
            for ray in range(rays):
                ax, bx = low_x * by_x[ray], high_x * by_x[ray]
                ay, by = low_y * by_y[ray], high_y * by_y[ray]
                az, bz = low_z * by_z[ray], high_z * by_z[ray]
                in_x, out_x = (ax, bx) if ax < bx else (bx, ax)
                in_y, out_y = (ay, by) if ay < by else (by, ay)
                in_z, out_z = (az, bz) if az < bz else (bz, az)
                enter = in_x if in_x > in_y else in_y
                enter = enter if enter > in_z else in_z
                leave = out_x if out_x < out_y else out_y
                leave = leave if leave < out_z else out_z
                numbers = (
                    (ax == ax) & (bx == bx) & (ay == ay) & (by == by) & (az == az) & (bz == bz)
                )
                hit = numbers & (enter <= leave) & (enter > zero) & (enter < near[ray])
                near[ray] = enter if hit else near[ray]
        for ray in range(rays):
            near[ray] = min(near[ray], far_m)
