"""Camera poses and rays of an environment and the meaning of its actions, as plain numbers.

An environment offers them as `env.unwrapped.geometry`; policies that map pixels to places or place
feet are built from it, and from nothing else of the environment. See `Geometry`.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Footholds", "Geometry", "Mirror", "Reflection"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Footholds:
    """Feet that an action places, and where the observation says how the robot stands."""

    legs: int
    """How many."""
    actions: int
    """Count of the numbers in an action."""
    forward: tuple[int, ...]
    """Indices of the legs' forward offsets, one per leg."""
    speed: int
    """Index of the lateral speed."""
    reach_m: float
    """Forward offset that an action of 1 means, metres."""
    toe_radius_m: float
    """Radius of a foot, metres."""
    stance_m: tuple[tuple[float, float], ...]
    """Footholds (x, y) of each leg in the middle of a usual stance, level frame, metres."""
    stance_height_m: float
    """Height of the base above the standing toes' centres at the usual gait, metres."""
    proprio: str
    """Key of the part of the observation that the following indices refer to."""
    attitude: slice
    """Roll, pitch and yaw, radians."""
    velocity: slice
    """Forward, left and up in the level frame, metres a second."""
    height: int
    """Index of the base's height above the standing toes' centres, metres."""
    nominal: slice
    """Footholds (x, y) of each leg without an offset, level frame, metres."""
    lateral: tuple[int, ...] = ()
    """Indices of an action's lateral offsets, one per leg; empty if it has none."""
    yaw_rate: int | None = None
    """Index of an action's commanded yaw rate; None if the robot walks straight ahead."""
    odometry: slice | None = None
    """Odometry in the world frame (x, y), metres; None: not observed."""
    heading: slice | None = None
    """Sine and cosine of the yaw; None: not observed."""
    commanded_speed: int | None = None
    """Commanded forward speed, negative backward, metres per second; None: not observed."""
    toes: slice | None = None
    """Toe centres (x, y, z) of each leg, level frame, metres; None: not observed."""
    contacts: slice | None = None
    """Whether each foot touches the ground, 0 or 1; None: not observed."""


@dataclass(frozen=True)
class Geometry:
    """Cameras by the key of their images in the observation, and footholds.

    Coordinates are in the frame to which the cameras are fixed: the robot's base, or the world."""

    rays: Mapping[str, Floats]
    """Pixels' ray directions, of unit length along the optical axis: (height, width, 3), or
    (cameras, height, width, 3) where the images are of several."""
    positions_m: Mapping[str, Floats]
    """Optical centres, metres: (3,) or (cameras, 3)."""
    cameras: Mapping[str, tuple[str, ...]]
    """Names of the cameras, in the images' order."""
    image_scaling: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Offset and scale of an image's values, (zero, unit), by key of the observation."""
    moving: tuple[str, ...] = ()
    """Keys of images whose cameras move between episodes: rays and positions are those of the
    present episode, and a policy that is built once must not rely on them."""
    observed_poses: str | None = None
    """Key of the observation that holds the pose of each camera, in their order, six numbers each:
    optical centre (x, y, z), metres; pitch below forward, yaw and roll, radians. It may be wrong.
    None where no pose is observed."""
    footholds: Footholds | None = None
    """None if actions do not place feet."""
    appearances: Mapping[str, str] = field(default_factory=dict)
    """Keys of images (..., height, width, numbers) of the same pixels as depth images, by the key
    of these."""
    told_poses: InitVar[str | None] = None
    """Former name of `observed_poses`."""

    def __post_init__(self, told_poses: str | None) -> None:
        if told_poses is not None:
            object.__setattr__(self, "observed_poses", told_poses)


@dataclass(frozen=True)
class Reflection:
    """The effect of exchanging left and right on an array x: `x.take(order, axis) * sign`, the sign
    along that axis. Doing it twice gives x back."""

    order: tuple[int, ...]
    """Index that each number comes from."""
    sign: tuple[float, ...] = ()
    """1 or -1 for each number; empty: all 1."""
    axis: int = -1
    """Axis of the exchanged numbers."""


@dataclass(frozen=True)
class Mirror:
    """Left and right exchanged, under which a task stays the same.

    An environment offers it as `env.unwrapped.mirror`.
    """

    observation: Mapping[str, Reflection]
    """Reflections by key of the observation; other parts do not change."""
    action: Reflection
    """Reflection of the action's numbers, each about the middle of its range."""
