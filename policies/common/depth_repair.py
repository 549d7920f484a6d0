"""Repair of depth images before a policy sees them, by OpenCV.

Holes are pixels without a return: the upper bound of the observation space, 0 or less, or no finite
number. Each takes the depth of the nearest pixel with a return; `cv2.inpaint` would smear an edge
over the hole. A connected region of more than a third of the image without a return is not a hole
but the distance, and stays.

False returns are recognised by time, because true ones are seen again. The last images are shifted
to the best fit with the new one (template matching, whole pixels). A pixel counts as true where the
last image, repaired or as reported, has nearly its depth close by; so a new object counts when it
is seen for the second time. All other pixels, and holes, take the value of the last repaired image.
The first image of an episode is smoothed by a median instead. Neither the pose of the camera nor
its field of view is needed; the scene may move by a twelfth of the image between two frames.
"""

import copy
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate_extras import require
from policies.common.observation import ImageInput, flat

Depth = NDArray[np.float32]
Mask = NDArray[np.bool_]

_DISTANCE = 1 / 3  # larger shares of the image are background, not holes
_ALIKE = float(np.log(1.08))  # depths within 8 % are of one thing
_ROWS, _REACH = 24, 2  # things move by at most _REACH pixels in an image of _ROWS rows
_REST = 1e-4
_LEAST, _FARTHEST = np.float32(1e-3), 1e6
_BYTE = 255.0


class DepthRepair:
    """Repairs the depth images of successive observations, each image separately.

    Depth images are the parts named "depth..."; if there are none, the parts with one channel that
    are not uint8.

    Args:
        by_time: whether false returns are repaired as well as holes.
        parts: the parts of the observation that are images.

    Raises:
        ValueError: if there is no depth image. MissingExtraError: OpenCV is not installed.
    """

    def __init__(self, by_time: bool, parts: Sequence[ImageInput]) -> None:
        require("policy.repair", "sim", "cv2")
        grey = [part for part in parts if "C" not in part.layout and part.high != _BYTE]
        self._parts = [part for part in parts if "depth" in part.key] or grey
        if not self._parts:
            keys = ", ".join(part.key for part in parts) or "no images"
            raise ValueError(
                "repair must be none without depth images, which are named depth... or have one "
                f"channel that is no byte, got {keys}"
            )
        self._by_time = by_time
        self.reset()

    def reset(self) -> None:
        """Reset the state from an earlier episode."""
        self._memory: dict[tuple[Any, ...], _Memory] = {}
        self._last: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}

    def __call__(self, observation: Any) -> dict[str, NDArray[Any]]:
        """The parts of the next observation by name, with repaired depth images."""
        parts = flat(observation)
        for part in self._parts:
            given = np.array(parts[part.key])
            parts[part.key] = self._repaired(part, given)
            self._last[part.key] = given, parts[part.key]
        return parts

    def seen(self, observation: Any) -> dict[str, NDArray[Any]]:
        """The result for the last observation, or for another one without a change of state."""
        parts = flat(observation)
        for part in self._parts:
            last = self._last.get(part.key)
            if last is None or not np.array_equal(last[0], parts[part.key], equal_nan=True):
                return copy.deepcopy(self)(observation)
            parts[part.key] = last[1]
        return parts

    def _repaired(self, part: ImageInput, given: NDArray[Any]) -> NDArray[Any]:
        repaired, far = given.copy(), min(part.high, _FARTHEST)
        order = [part.layout.index(axis) for axis in "NTCHW" if axis in part.layout]
        images = repaired.transpose(order)  # a view
        for place in np.ndindex(images.shape[:-2]):
            depth = np.array(images[place], np.float32, order="C")
            nothing = ~(depth > 0) | ~np.isfinite(depth)
            depth[nothing] = far
            holes = holes_in(depth, far)
            better = fill_holes(depth, holes)
            wrong = holes
            if self._by_time:
                memory = self._memory.setdefault((part.key, *place), _Memory())
                wrong, better = memory.next(better, holes)
            wrong |= nothing
            whole = np.issubdtype(given.dtype, np.integer)
            images[place][wrong] = np.rint(better[wrong]) if whole else better[wrong]
        return repaired


class _Memory:
    """The last image of one camera: logarithms of depth, repaired and as reported (holes: inf)."""

    def __init__(self) -> None:
        self.repaired: Depth | None = None
        self.reported: Depth | None = None

    def next(self, depth: Depth, holes: Mask) -> tuple[Mask, Depth]:
        """The mask of wrong pixels of the next image, and an image with correct values there.

        Args:
            depth: (height, width), holes filled.
            holes: mask of the holes.
        """
        import cv2

        log = np.log(np.maximum(depth, _LEAST))
        if self.repaired is None or self.reported is None:
            better = cv2.medianBlur(depth, 5)
            wrong = holes | (np.abs(np.log(np.maximum(better, _LEAST)) - log) > _ALIKE)
        else:
            wrong, better = self._disbelieved(log, holes)
        self.repaired = np.log(np.maximum(np.where(wrong, better, depth), _LEAST))
        self.reported = np.where(holes, np.float32(np.inf), log)
        return wrong, better

    def _disbelieved(self, log: Depth, holes: Mask) -> tuple[Mask, Depth]:
        import cv2

        step = max(1, round(min(log.shape) / _ROWS))
        reach = _REACH * step
        around = reach + step
        last: list[Any] = [self.repaired, self.reported]
        repaired, reported = (
            cv2.copyMakeBorder(one, around, around, around, around, cv2.BORDER_REPLICATE)
            for one in last
        )
        window = repaired[step:-step, step:-step]
        down, right = reach, reach
        if not holes.all():
            fit = cv2.matchTemplate(window, log, cv2.TM_SQDIFF, mask=np.float32(~holes))
            away = np.abs(np.arange(-reach, reach + 1))
            fit += _REST * holes.size * (away[:, None] + away)  # without contrast, assume no motion
            down, right = (int(i) for i in np.unravel_index(fit.argmin(), fit.shape))
        height, width = log.shape
        believed = np.zeros(log.shape, bool)
        for i, j in product(range(-step, step + 1, step), repeat=2):
            part = np.s_[down + step + i :, right + step + j :]
            for one in (repaired, reported):
                believed |= np.abs(one[part][:height, :width] - log) < _ALIKE
        there = repaired[down + step :, right + step :][:height, :width]
        return holes | ~believed, np.exp(there)


def holes_in(depth: Depth, far: float) -> Mask:
    """Pixels (height, width) without a return, except regions of more than a third of the image."""
    holes = depth >= np.float32(far)
    if np.count_nonzero(holes) > _DISTANCE * holes.size:
        import cv2

        shape = holes.view(np.uint8)
        _, pieces, sizes, _ = cv2.connectedComponentsWithStats(shape, connectivity=4)
        large = sizes[:, cv2.CC_STAT_AREA] > _DISTANCE * holes.size
        holes &= ~large[pieces]
    return holes


def fill_holes(depth: Depth, holes: Mask) -> Depth:
    """A copy of an image (height, width) whose holes have the depth of the nearest other pixel."""
    filled = depth.copy()
    if holes.any() and not holes.all():
        import cv2

        _, nearest = cv2.distanceTransformWithLabels(
            holes.view(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
        )
        values = np.zeros(nearest.max() + 1, np.float32)
        values[nearest[~holes]] = depth[~holes]
        filled[holes] = values[nearest[holes]]
    return filled
