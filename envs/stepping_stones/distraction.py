"""False depth returns and clutter beside the path, to test policies rather than to train them.

False returns are rectangles of 2 to 5 pixels a side that report one wrong depth, log-uniform
between half of the nearest depth in them and `camera_far_m`: on a stone about a third lie too near,
in a gap about half. They are redrawn for every image, as mismatches of stereo, flying pixels
and multipath are: these depend on a pixel's noise and on exact angles, and a trotting robot sees
neither twice.

Dropped blocks are rectangles of 4 to 8 pixels a side that return nothing, so `camera_far_m`. They
keep their place in the image for 5 images (0.25 s) on average, each ending independently, as
glare and surfaces that mirror or swallow the light do: what lost the signal once loses it again
until the robot has moved on.

Patches are a stationary Poisson process of rectangles, some of them partly outside the image, so
that every pixel of every camera is equally likely to be false at any position. Their sides are
those in an image of 24 x 32 pixels; in a finer one they have more pixels, and the same share of it.

Blackouts are times in which all cameras together return nothing, as when a driver stalls. All have
the same length; the number of images between two of them is geometrically distributed. An episode
does not begin with one: what was never seen cannot be remembered.

Clutter is boxes that stand on the floor beside the stones. Cameras alone see them: nothing collides
with them. The default cameras look straight down and, at the height of the stones' tops, hardly
beyond the stones' sides; so clutter shows in a few outer rows and at both ends of gaps, where the
floor beside the path would be, and more of it on one side when the robot rolls or strays.
"""

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.terrain import FLOOR_M, Stones
from envs.stepping_stones.turned_stones import TurnedStones

Floats = NDArray[np.float64]
Images = NDArray[np.float32]

_FALSE_SIDES, _FALSE_IMAGES = (2, 5), 1
_BLOCK_SIDES, _BLOCK_IMAGES = (4, 8), 5
_IMAGE_PX = np.array([24, 32])  # that the sides are pixels of
_CLUTTER_LENGTH_M, _CLUTTER_WIDTH_M, _CLUTTER_HEIGHT_M = (0.05, 0.30), (0.05, 0.20), (0.20, 0.60)
_CLUTTER_ASIDE_M = (0.0, 0.10)  # from the edge of the stones to the nearer side of a box


class Distraction:
    """Corrupts the depth images of an episode.

    Args:
        false_returns: expected share of an image's pixels in false returns, in [0, 1).
        dropped_blocks: expected share in dropped blocks, which hide false returns.
        far_m: depth of a pixel that returns nothing.
        rng: source of random numbers.
    """

    def __init__(
        self, false_returns: float, dropped_blocks: float, far_m: float, rng: np.random.Generator
    ) -> None:
        self._far_m = far_m
        self._rng, false_rng, block_rng = rng, *rng.spawn(2)
        self._false = _Patches(false_returns, _FALSE_SIDES, _FALSE_IMAGES, false_rng)
        self._blocks = _Patches(dropped_blocks, _BLOCK_SIDES, _BLOCK_IMAGES, block_rng)

    def depth(self, depth_m: Images) -> Images:
        """The next images, (cameras, height, width), with false returns and dropped blocks."""
        lying = depth_m.copy()
        for patch in self._false.next(depth_m.shape):
            nearest_m = max(float(depth_m[patch].min()), 0.01)  # noise may reach below 0
            low, high = np.log(nearest_m / 2), np.log(self._far_m)
            lying[patch] = np.exp(self._rng.uniform(low, high))
        for patch in self._blocks.next(depth_m.shape):
            lying[patch] = self._far_m
        return lying


class Blackouts:
    """When all cameras of an episode return nothing.

    Args:
        share: expected share of a long time that is dark, in [0, 0.5].
        images: length of a blackout.
        rng: source of their beginnings.
    """

    def __init__(self, share: float, images: int, rng: np.random.Generator) -> None:
        self._images, self._rng = images, rng
        # The light between two has (1 - p) / p images on average.
        self._begins = share / (share + images * (1 - share))
        self._left: int | None = None

    def next(self) -> bool:
        """Whether the next images are dark."""
        if self._left is None:
            self._left = 0
            return False
        if self._left == 0 and self._rng.random() < self._begins:
            self._left = self._images
        dark = self._left > 0
        self._left -= dark
        return dark


class _Patches:
    """Rectangles that appear and disappear in the images of several cameras.

    Args:
        share: expected share of the pixels that they cover together.
        sides: smallest and largest side, pixels of an image of 24 x 32.
        images: mean number of images for which a rectangle stays.
        rng: source of the rectangles.
    """

    def __init__(
        self, share: float, sides: tuple[int, int], images: int, rng: np.random.Generator
    ) -> None:
        self._share, self._sides, self._images, self._rng = share, sides, images, rng
        self._patches: NDArray[np.int64] | None = None  # (patches, 5): camera, rows, columns

    def next(self, shape: tuple[int, ...]) -> list[tuple[int, slice, slice]]:
        """Camera, rows and columns of the rectangles in the next images (cameras, height,
        width)."""
        if self._share == 0:
            return []
        if self._patches is None:
            self._cameras, self._image = shape[0], np.array(shape[1:])
            side = self._pixels(np.arange(self._sides[0], self._sides[1] + 1)[:, None])
            rows, columns = (side / (self._image + side - 1)).T
            # A pixel of one camera stays free with probability exp(-count hit).
            hit = np.mean(rows) * np.mean(columns)
            self._expected = -np.log1p(-self._share) / hit * self._cameras
            self._patches = self._born(self._expected)
        else:
            stays = self._rng.random(len(self._patches)) >= 1 / self._images
            born = self._born(self._expected / self._images)
            self._patches = np.concatenate([self._patches[stays], born])
        return [(c, slice(top, end), slice(a, b)) for c, top, end, a, b in self._patches.tolist()]

    def _pixels(self, sides: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sides (..., 2) along rows and columns, in pixels of these images."""
        pixels: NDArray[np.int64] = np.rint(sides * self._image / _IMAGE_PX).astype(np.int64)
        return np.maximum(pixels, 1)

    def _born(self, expected: float) -> NDArray[np.int64]:
        camera = self._rng.integers(self._cameras, size=self._rng.poisson(expected))
        size = self._rng.integers(self._sides[0], self._sides[1] + 1, (len(camera), 2))
        size = self._pixels(size)
        corner = self._rng.integers(1 - size, self._image)
        low, high = np.maximum(corner, 0), np.minimum(corner + size, self._image)
        return np.column_stack([camera, low[:, 0], high[:, 0], low[:, 1], high[:, 1]])


def draw_clutter(
    per_m: float, stones: Stones | TurnedStones, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Lower and upper corners (boxes, 3) of the boxes beside a row of stones, metres.

    Of the same stones and seed, more clutter holds all the boxes of less.
    """
    start_m, end_m = stones.edges_m[0, 0], stones.edges_m[-1, 1]
    ranges = [
        _CLUTTER_LENGTH_M,
        _CLUTTER_WIDTH_M,
        _CLUTTER_HEIGHT_M,
        _CLUTTER_ASIDE_M,
        (start_m, end_m),
        (-1, 1),
    ]
    count = round(per_m * (end_m - start_m))
    low, high = np.array(ranges).T
    length, width, height, aside, x, side = rng.uniform(low, high, (count, 6)).T
    inner = stones.width_m / 2 + aside
    low_y = np.where(side > 0, inner, -inner - width)
    floor = np.full(count, FLOOR_M)
    return (
        np.column_stack([x - length / 2, low_y, floor]),
        np.column_stack([x + length / 2, low_y + width, floor + height]),
    )
