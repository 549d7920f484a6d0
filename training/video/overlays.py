"""An outside view with insets of the policy's images and the pixels that attention keeps.

The layout is that of Fig. 4 in Choromanski et al. (2022), "Hybrid random features": the camera
images are in the upper left corner, and pixels that attention masked out are red.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

INSET_PX = (96, 128)
"""Most height and width of an inset, screen pixels."""
LEAST_WIDTH = 320
"""Of a frame; a narrower one is enlarged."""
MARGIN = 8
"""Pixels between the insets and the edge of the frame."""
CAPTION = 30
"""Height of the strip under a caption."""
WHITE = (255, 255, 255)
MASKED_RED = np.array([215.0, 30.0, 30.0])
RED_WEIGHT = 0.75
"""Share of red in a masked pixel; the rest is its grey, so that the scene stays readable."""
_BLOCK = 16  # encoders code squares of this side


def masked(picture: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    """An image (height, width, 3) as uint8, red where `kept` (height, width) is False."""
    picture = picture.astype(np.float64)
    if kept is not None:
        picture[~kept] = (1 - RED_WEIGHT) * picture[~kept] + RED_WEIGHT * MASKED_RED
    return picture.astype(np.uint8)


@dataclass(frozen=True)
class Inset:
    """An image that a policy sees."""

    name: str
    """Of the camera."""
    picture: np.ndarray
    """(height, width, 3) uint8."""
    kept: np.ndarray | None = None
    """(height, width), False where attention drops a pixel, which is drawn red."""


def compose(
    frame: np.ndarray,
    insets: Sequence[Inset] = (),
    caption: str = "",
    inset_px: tuple[int, int] = INSET_PX,
) -> np.ndarray:
    """A copy of `frame` (height, width, 3) uint8 with images inset and a caption below.

    Insets are enlarged by a whole factor, or made smaller, to at most `inset_px` (height, width),
    and stand in rows from the upper left, as many as there is room for. Small frames are enlarged;
    sides are multiples of 16, as encoders want them.
    """
    import cv2

    enlarged = max(1, -(-LEAST_WIDTH // frame.shape[1]))
    frame = np.asarray(frame, np.uint8).repeat(enlarged, 0).repeat(enlarged, 1)
    below, beside = (-side % _BLOCK for side in frame.shape[:2])
    canvas = np.pad(frame, ((0, below), (0, beside), (0, 0)))
    left = top = MARGIN
    for inset in insets:
        picture = _fitted(masked(inset.picture, inset.kept), inset_px)
        height, width = picture.shape[:2]
        if left > MARGIN and left + width > canvas.shape[1]:
            left, top = MARGIN, top + inset_px[0] + 3 * MARGIN
        place = canvas[top : top + height, left : left + width]
        place[:] = picture[: place.shape[0], : place.shape[1]]
        cv2.rectangle(canvas, (left - 1, top - 1), (left + width, top + height), WHITE)
        write(canvas, inset.name, (left + 2, top + height + 9), 13, edged=True)
        left += width + MARGIN
    if caption:
        strip = canvas[-CAPTION:]
        strip[:] = strip * 0.45
        write(canvas, caption, (MARGIN, len(canvas) - CAPTION // 2), 18)
    return canvas


def _fitted(picture: np.ndarray, most_px: tuple[int, int]) -> np.ndarray:
    """An image as an inset: a whole multiple of it, or means over areas where it is larger."""
    import cv2

    height, width = picture.shape[:2]
    scale = min(most_px[1] / width, most_px[0] / height)
    scale = int(scale) if scale >= 1 else scale
    size = max(1, round(width * scale)), max(1, round(height * scale))
    way = cv2.INTER_NEAREST if scale >= 1 else cv2.INTER_AREA
    return cv2.resize(picture, size, interpolation=way)


def write(
    canvas: np.ndarray, text: str, middle: tuple[int, int], pixels: int, edged: bool = False
) -> int:
    """Write a line of white text, `pixels` high, into an image; `middle` is the middle of its left
    edge, (x, y). `edged` letters have a black edge. Returns the text's width in pixels."""
    import cv2

    face = cv2.FONT_HERSHEY_SIMPLEX
    scale = cv2.getFontScaleFromHeight(face, round(0.7 * pixels), 1)
    (width, height), _ = cv2.getTextSize(text, face, scale, 1)
    corner = (middle[0], middle[1] + height // 2)
    if edged:
        cv2.putText(canvas, text, corner, face, scale, (0, 0, 0), 3, cv2.LINE_AA)
    cv2.putText(canvas, text, corner, face, scale, WHITE, 1, cv2.LINE_AA)
    return int(width)
