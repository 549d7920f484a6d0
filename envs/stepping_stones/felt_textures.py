"""Textures of tiles: two sets that share no pattern, drawn by OpenCV."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

TEXTURES, SIDE = 24, 64
"""Textures of a set, and pixels of a side of one."""
TEXTURE_M = 0.32
"""Length of a side on the ground, metres."""

Image = NDArray[np.uint8]
_Drawer = Callable[[Image, tuple[int, ...], np.random.Generator], None]


@lru_cache
def textures(name: str) -> Image:
    """The textures of a set, training or unseen: (24, 64, 64, 3), the same in every process."""
    import cv2

    drawers = _PATTERNS[name]
    rng = np.random.default_rng([*name.encode()])
    found = []
    for number in range(TEXTURES):
        hues = (rng.uniform(0, 180), rng.uniform(0, 180))
        tones = [(hue, rng.uniform(60, 255), rng.uniform(70, 255)) for hue in hues]
        ground, ink = cv2.cvtColor(np.array([tones], np.uint8), cv2.COLOR_HSV2RGB)[0].tolist()
        image = np.full((SIDE, SIDE, 3), ground, np.uint8)
        drawers[number % len(drawers)](image, tuple(ink), rng)
        found.append(cv2.GaussianBlur(image, (3, 3), 0))
    return np.stack(found)


def _stripes(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    gap, slope = int(rng.integers(7, 17)), int(rng.integers(-64, 65))
    for x in range(-SIDE, 2 * SIDE, gap):
        cv2.line(image, (x, 0), (x + slope, SIDE), ink, max(2, gap // 2))


def _dots(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    gap = int(rng.integers(8, 17))
    for x, y in np.ndindex(SIDE // gap + 1, SIDE // gap + 1):
        cv2.circle(image, (x * gap + gap // 2 * (y % 2), y * gap), gap // 3, ink, -1)


def _checks(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    side = int(rng.integers(4, 13))
    rows, columns = np.indices(image.shape[:2]) // side
    image[(rows + columns) % 2 == 0] = ink


def _grain(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    noise = cv2.GaussianBlur(rng.standard_normal(image.shape[:2]), (0, 0), rng.uniform(1, 4))
    image[noise > np.quantile(noise, rng.uniform(0.4, 0.8))] = ink


def _bricks(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    height = int(rng.integers(6, 15))
    for row, y in enumerate(range(0, SIDE, height)):
        cv2.line(image, (0, y), (SIDE, y), ink, 2)
        for x in range(height * (row % 2), SIDE, 2 * height):
            cv2.line(image, (x, y), (x, y + height), ink, 2)


def _triangles(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    side = int(rng.integers(8, 19))
    for x, y in np.ndindex(SIDE // side + 1, SIDE // side + 1):
        corners = np.array([(0, 0), (side - 2, 0), (0, side - 2)], np.int32)
        cv2.fillPoly(image, [corners], ink, offset=(x * side, y * side))


def _rings(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    gap = int(rng.integers(5, 13))
    for radius in range(gap, 2 * SIDE, 2 * gap):
        cv2.circle(image, (SIDE // 2, SIDE // 2), radius, ink, gap)


def _crosses(image: Image, ink: tuple[int, ...], rng: np.random.Generator) -> None:
    import cv2

    gap = int(rng.integers(10, 19))
    for x, y in np.ndindex(SIDE // gap + 1, SIDE // gap + 1):
        at = (x * gap, y * gap)
        cv2.drawMarker(image, at, ink, cv2.MARKER_CROSS, gap - 3, 3)


_PATTERNS: dict[str, tuple[_Drawer, ...]] = {
    "training": (_stripes, _dots, _checks, _grain),
    "unseen": (_bricks, _triangles, _rings, _crosses),
}
