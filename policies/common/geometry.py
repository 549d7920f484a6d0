"""The environment's `geometry`: a robot and its cameras, as far as a policy may know them.

An environment offers it as `env.unwrapped.geometry`, any object with the attributes of `Geometry`.
Policies do not import environments.

Policies saved before geometry was added, and callers without one, refer to the robot at that time.
`published` recognises its spaces and returns its geometry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Footholds:
    """Footholds chosen by an action, and where the observation holds the robot's attitude.

    The defaults are those of the robot for which policies were published.
    """

    legs: int = 4
    actions: int = 9
    """Count of the numbers in an action."""
    forward: tuple[int, ...] = (0, 1, 2, 3)
    """Indices of the legs' forward offsets in the action."""
    speed: int = 8
    """Index of the lateral speed."""
    reach_m: float = 0.12
    """Forward offset that an action of 1 means."""
    toe_radius_m: float = 0.03
    stance_m: Sequence[tuple[float, float]] = (
        (0.30, -0.115), (0.30, 0.115), (-0.135, -0.115), (-0.135, 0.115),
    )  # fmt: skip
    """Nominal footholds (x, y) of each leg in mid-stance, level frame."""
    stance_height_m: float = 0.463
    """Nominal height of the base above the standing toes' centres."""
    proprio: str = "proprio"
    """Key of the part of the observation that the following slices index."""
    attitude: slice = field(default_factory=lambda: slice(0, 3))  # no default: unhashable
    """Roll, pitch and yaw, radians."""
    velocity: slice = field(default_factory=lambda: slice(6, 9))
    """Forward, left and up in the level frame, metres per second."""
    height: int = 9
    """Index of the height of the base above the standing toes' centres, metres."""
    nominal: slice = field(default_factory=lambda: slice(22, 30))
    """Footholds (x, y) of each leg without an offset, level frame, metres."""
    lateral: tuple[int, ...] = ()
    """Indices of the legs' lateral offsets; used if the robot turns."""
    toes: slice | None = None
    """Toe centres (x, y, z) of each leg, level frame, metres; None: not observed."""
    contacts: slice | None = None
    """Whether each foot touches the ground, 0 or 1; None: not observed."""


@dataclass(frozen=True)
class Geometry:
    """Cameras by the key of their images in the observation, and footholds."""

    rays: Mapping[str, Floats]
    """Pixels' ray directions in the base frame, of unit length along the optical axis:
    (height, width, 3), or (cameras, height, width, 3) where the images are of several."""
    positions_m: Mapping[str, Floats]
    """Optical centres in the base frame: (3,) or (cameras, 3)."""
    image_scaling: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"depth": (0.5, 0.3)}
    )
    """Offset and scale of an image's values: (zero, unit)."""
    footholds: Footholds | None = field(default_factory=Footholds)
    """None if actions place no feet."""


PUBLISHED_POSITIONS_M = ((0.197, 0.0, -0.115), (-0.092, 0.0, -0.105))
"""Front and belly camera; both look straight down, rows from left to right, columns ahead."""
PUBLISHED_HALF_HEIGHT = 0.7673269879789604
"""Tangent of half their field of view, 75 degrees over the rows."""
PUBLISHED_SHAPE = (24, 32)
"""Rows and columns of their images."""
_PROPRIO = 45


def geometry_of(env: gymnasium.Env[Any, Any]) -> Any:
    """The `geometry` that an environment offers; None without one, also where it means something
    else by that name."""
    found = getattr(env.unwrapped, "geometry", None)
    return found if isinstance(getattr(found, "rays", None), Mapping) else None


def camera_rays(env: gymnasium.Env[Any, Any]) -> Mapping[str, Any]:
    """The rays of an environment's cameras by the key of their images; empty without a geometry."""
    geometry = geometry_of(env)
    return {} if geometry is None else geometry.rays


def published(
    observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> Geometry | None:
    """The geometry of policies saved without one: a Dict of `depth` (cameras, height, width) and
    `proprio` (k,) with actions (9,). Camera poses are known for two cameras and k = 45. None for
    other spaces."""
    parts = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {}
    depth, proprio = (getattr(parts.get(key), "shape", None) or () for key in ("depth", "proprio"))
    fits = len(parts) == 2 and len(depth) == 3 and len(proprio) == 1
    if not fits or action_space.shape != (Footholds.actions,):
        return None
    cameras, height, width = (int(side) for side in depth)
    rays = published_rays(height, width)
    positions = np.array(PUBLISHED_POSITIONS_M)
    known = cameras == len(positions) and proprio == (_PROPRIO,)
    return Geometry(
        {"depth": np.broadcast_to(rays, (cameras, *rays.shape))},
        {"depth": positions} if known else {},
    )


def published_rays(height: int, width: int) -> Floats:
    """Rays of a camera of the published policies, (height, width, 3)."""
    ahead = (2 * (np.arange(width) + 0.5) / width - 1) * PUBLISHED_HALF_HEIGHT * width / height
    left = (1 - 2 * (np.arange(height) + 0.5) / height) * PUBLISHED_HALF_HEIGHT
    down = np.full((height, width), -1.0)
    return np.stack([*np.broadcast_arrays(ahead, left[:, None]), down], -1)


def moving_images(geometry: Geometry) -> tuple[str, ...]:
    """Keys of images whose cameras move between episodes; empty if the geometry names none."""
    found: tuple[str, ...] = getattr(geometry, "moving", ())
    return found


def observed_poses(geometry: object) -> str | None:
    """Key of the camera poses in the observation; None if they are not observed."""
    former = getattr(geometry, "told_poses", None)
    found: str | None = getattr(geometry, "observed_poses", former)
    return found


def yaw_rate_of(footholds: Footholds) -> int | None:
    """Index of the yaw rate in the action; None for a robot that walks straight ahead."""
    found: int | None = getattr(footholds, "yaw_rate", None)
    return found
