"""An outside view with what a policy's depth cameras see and its attention keeps, inset.

The layout is that of Fig. 4 in Choromanski et al. (2022), "Hybrid random features": the camera
images lie in the upper left corner, grey by depth, and pixels that attention masked out are red.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["FAR_M", "INSET_SCALE", "MARGIN", "NEAR_M", "compose", "depth_picture", "font"]

NEAR_M, FAR_M = 0.25, 1.25
"""Depths drawn white and black."""
INSET_SCALE = 4
"""Screen pixels a depth pixel."""
MARGIN = 8
"""Pixels between the insets and the edge of the frame."""
MASKED_RED = np.array([215.0, 30.0, 30.0])
RED_WEIGHT = 0.75
"""Share of red in a masked pixel; the rest is its grey, so that the scene stays readable."""


def depth_picture(depth_m: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
    """Grey picture (height, width, 3) uint8 of a depth image (height, width) in metres.

    Near is bright. Pixels where `kept` (height, width) is False are red.
    """
    closeness = np.clip((FAR_M - depth_m) / (FAR_M - NEAR_M), 0.0, 1.0)
    picture = np.repeat(255.0 * closeness[..., None], 3, axis=-1)
    if kept is not None:
        picture[~kept] = (1 - RED_WEIGHT) * picture[~kept] + RED_WEIGHT * MASKED_RED
    return picture.astype(np.uint8)


def compose(
    frame: np.ndarray,
    depths_m: Sequence[np.ndarray] | np.ndarray = (),
    kept: np.ndarray | None = None,
    caption: str = "",
    names: Sequence[str] = ("front", "belly"),
) -> np.ndarray:
    """A copy of `frame` (height, width, 3) uint8 with depth images inset and a caption below.

    `depths_m` and `kept` are (cameras, rows, columns): metres, and True where a pixel is kept.
    """
    from PIL import Image, ImageDraw

    canvas = Image.fromarray(np.ascontiguousarray(frame, dtype=np.uint8))
    draw = ImageDraw.Draw(canvas, "RGBA")
    left = MARGIN
    for camera, depth_m in enumerate(depths_m):
        picture = Image.fromarray(depth_picture(depth_m, None if kept is None else kept[camera]))
        size = (picture.width * INSET_SCALE, picture.height * INSET_SCALE)
        draw.rectangle((left - 1, MARGIN - 1, left + size[0], MARGIN + size[1]), outline="white")
        canvas.paste(picture.resize(size, Image.Resampling.NEAREST), (left, MARGIN))
        if camera < len(names):
            draw.text((left + 3, MARGIN + size[1] + 2), names[camera], fill="white",
                      font=font(13), stroke_width=1, stroke_fill="black")  # fmt: skip
        left += size[0] + MARGIN
    if caption:
        top = canvas.height - 30
        draw.rectangle((0, top, canvas.width, canvas.height), fill=(0, 0, 0, 140))
        draw.text((MARGIN, top + 4), caption, fill="white", font=font(18))
    return np.asarray(canvas)


def font(size: int) -> Any:
    """PIL's own font, `size` pixels high."""
    from PIL import ImageFont

    return ImageFont.load_default(size=size)
