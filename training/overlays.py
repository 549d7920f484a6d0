"""An outside view with what a policy sees and its attention keeps, inset.

The layout is that of Fig. 4 in Choromanski et al. (2022), "Hybrid random features": the camera
images lie in the upper left corner, and pixels that attention masked out are red.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "INSET_PX",
    "MARGIN",
    "Inset",
    "compose",
    "font",
    "masked",
]

INSET_PX = (96, 128)
"""Most height and width of an inset, screen pixels."""
LEAST_WIDTH = 320
"""Of a frame; a narrower one is enlarged."""
MARGIN = 8
"""Pixels between the insets and the edge of the frame."""
MASKED_RED = np.array([215.0, 30.0, 30.0])
RED_WEIGHT = 0.75
"""Share of red in a masked pixel; the rest is its grey, so that the scene stays readable."""
_BLOCK = 16  # H.264 codes squares of this side


def masked(picture: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    """A picture (height, width, 3) as uint8, red where `kept` (height, width) is False."""
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
    and stand in rows from the upper left. Small frames are enlarged; sides are multiples of 16, as
    H.264 wants them.
    """
    from PIL import Image, ImageDraw

    enlarged = max(1, -(-LEAST_WIDTH // frame.shape[1]))
    frame = np.asarray(frame, np.uint8).repeat(enlarged, 0).repeat(enlarged, 1)
    below, beside = (-side % _BLOCK for side in frame.shape[:2])
    canvas = Image.fromarray(np.pad(frame, ((0, below), (0, beside), (0, 0))))
    draw = ImageDraw.Draw(canvas, "RGBA")
    left = top = MARGIN
    for inset in insets:
        picture = Image.fromarray(masked(inset.picture, inset.kept))
        size = _inset_size(picture.size, inset_px)
        if left > MARGIN and left + size[0] > canvas.width:
            left, top = MARGIN, top + inset_px[0] + 3 * MARGIN
        draw.rectangle((left - 1, top - 1, left + size[0], top + size[1]), outline="white")
        way = Image.Resampling.NEAREST if size[0] >= picture.width else Image.Resampling.BOX
        canvas.paste(picture.resize(size, way), (left, top))
        draw.text((left + 3, top + size[1] + 2), inset.name, fill="white",
                  font=font(13), stroke_width=1, stroke_fill="black")  # fmt: skip
        left += size[0] + MARGIN
    if caption:
        bar = canvas.height - 30
        draw.rectangle((0, bar, canvas.width, canvas.height), fill=(0, 0, 0, 140))
        draw.text((MARGIN, bar + 4), caption, fill="white", font=font(18))
    return np.asarray(canvas)


def _inset_size(width_height: tuple[int, int], most_px: tuple[int, int]) -> tuple[int, int]:
    """Width and height of an inset: a whole multiple of the picture's, or less than it."""
    width, height = width_height
    scale = min(most_px[1] / width, most_px[0] / height)
    scale = int(scale) if scale >= 1 else scale
    return max(1, round(width * scale)), max(1, round(height * scale))


def font(size: int) -> Any:
    """PIL's own font, `size` pixels high."""
    from PIL import ImageFont

    return ImageFont.load_default(size=size)
