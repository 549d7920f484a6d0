"""Intrinsics and poses of cameras, computed from the rays of the geometry."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.geometry import Geometry
from policies.common.geometry import observed_poses

_SAME = 1e-5


def described(geometry: Geometry | None) -> list[dict[str, Any]]:
    """Input, size, intrinsics and pose of each camera; whether poses are observed or drawn."""
    found = []
    for key, names in ({} if geometry is None else geometry.cameras).items():
        assert geometry is not None
        rays = geometry.rays[key].reshape(-1, *geometry.rays[key].shape[-3:])
        places = geometry.positions_m[key].reshape(-1, 3)
        for index, (name, own, place_m) in enumerate(zip(names, rays, places, strict=True)):
            found.append(
                {
                    "name": name,
                    "input": key,
                    "index": index if len(rays) > 1 else None,
                    "frame": "the base, or the world where the camera is fixed to that",
                    "position_m": _rounded(place_m),
                    **_pinhole(own),
                    "moves": key in geometry.moving,
                    "pose_told_by": observed_poses(geometry),
                }
            )
    return found


def _pinhole(rays: NDArray[np.float64]) -> dict[str, Any]:
    """Size, intrinsics in pixels and axes of rays (height, width, 3), of length 1 along the axis.

    The rotation's columns are the camera's axes: x along columns, y along rows, z ahead. Rays that
    are not those of a pinhole camera have only their number.
    """
    height, width, _ = rays.shape
    size = {"height_px": height, "width_px": width, "intrinsics_px": None, "rotation": None}
    if min(height, width) < 2:
        return size
    first = rays[0, 0]
    across = (rays[0, -1] - first) / (width - 1)
    down = (rays[-1, 0] - first) / (height - 1)
    rows, columns = np.indices((height, width))
    flat = first + rows[..., None] * down + columns[..., None] * across
    if not np.allclose(flat, rays, rtol=0, atol=_SAME):
        return size
    fx, fy = 1 / np.linalg.norm(across), 1 / np.linalg.norm(down)
    x, y = across * fx, down * fy
    z = np.cross(x, y)
    intrinsics = {"fx": fx, "fy": fy, "cx": -fx * (first @ x), "cy": -fy * (first @ y)}
    return {
        **size,
        "intrinsics_px": {name: round(float(v), 6) for name, v in intrinsics.items()},
        "rotation": [_rounded(row) for row in np.stack([x, y, z], -1)],
    }


def _rounded(numbers: NDArray[np.float64]) -> list[float]:
    return [round(float(v), 9) + 0.0 for v in numbers]
