"""A camera's image beside its attention overlay: bright where the policy attends, else dimmed."""

import math

import numpy as np

from training.video.overlays import WHITE, write

LEAST_SHARE, MOST_SHARE = 0.25, 16.0
"""Attention drawn darkest and brightest, in multiples of an even share of it."""
DIMMED = 0.35
"""Brightness of the scene where attention is least."""
HEAT_WEIGHT = 0.75
"""Share of the heat's colour where attention is most."""
_HEAT = np.array([[30.0, 20.0, 90.0], [190.0, 40.0, 130.0], [250.0, 140.0, 40.0], [255, 250, 160]])
_BAR = (160, 12)
_GAP, _CAPTION, _LEAST_WIDTH = 6, 36, 400
_BLOCK = 16  # encoders code squares of this side
_BACKGROUND = (24, 24, 28)


def heat_picture(picture: np.ndarray, attention: np.ndarray) -> np.ndarray:
    """The image (height, width, 3) uint8 in grey, lit where `attention` (height, width) is.

    Brightness follows the logarithm of attention, from LEAST_SHARE to MOST_SHARE times its mean:
    the same in every frame, so that frames and policies can be compared.
    """
    import cv2

    grey = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY).astype(np.float64)
    even = max(float(attention.mean()), np.finfo(np.float32).tiny)
    return _lit(grey, attention / even)


def _lit(grey: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Grey (...) and attention in even shares (...) -> colours (..., 3) uint8."""
    heat = _heat(shares)[..., None]
    stops = np.linspace(0, 1, len(_HEAT))
    colours = [np.interp(heat[..., 0], stops, _HEAT[:, channel]) for channel in range(3)]
    weight = HEAT_WEIGHT * heat
    scene = grey[..., None] * (DIMMED + (1 - DIMMED) * heat)
    return ((1 - weight) * scene + weight * np.stack(colours, axis=-1)).astype(np.uint8)


def _heat(shares: np.ndarray) -> np.ndarray:
    """Even shares of attention -> 0 (least) to 1 (most)."""
    times_least = np.clip(shares, LEAST_SHARE, MOST_SHARE) / LEAST_SHARE
    heat: np.ndarray = np.log(times_least) / math.log(MOST_SHARE / LEAST_SHARE)
    return heat


def side_by_side(
    picture: np.ndarray, attention: np.ndarray | None = None, caption: str = ""
) -> np.ndarray:
    """The image (height, width, 3) uint8 and, right of it, the same under attention.

    `attention` (height, width), none of it below 0. A strip below shows the caption and the
    attention scale. Images narrower than 400 pixels are enlarged by a whole factor. The frame's
    sides are multiples of 16, as encoders want them.
    """
    import cv2

    pictures = [picture] if attention is None else [picture, heat_picture(picture, attention)]
    scale = math.ceil(_LEAST_WIDTH / picture.shape[1])
    height, width = (scale * side for side in picture.shape[:2])
    frame = (
        _whole_blocks(height + _GAP + _CAPTION),
        _whole_blocks(len(pictures) * (width + _GAP) + _GAP),
    )
    canvas = np.full((*frame, 3), _BACKGROUND, np.uint8)
    gap = (frame[1] - len(pictures) * width) // (len(pictures) + 1)
    for index, one in enumerate(pictures):
        left = gap + index * (width + gap)
        enlarged = cv2.resize(one, (width, height), interpolation=cv2.INTER_NEAREST)
        canvas[_GAP : _GAP + height, left : left + width] = enlarged
    middle = (height + _GAP + frame[0]) // 2
    write(canvas, caption, (gap, middle), 18)
    if attention is not None:
        _draw_scale(canvas, 2 * gap + width, middle)
    return canvas


def _draw_scale(canvas: np.ndarray, left: int, middle: int) -> None:
    """Draw a colour bar from least to most attention with labelled ends."""
    import cv2

    width, height = _BAR
    shares = np.broadcast_to(np.geomspace(LEAST_SHARE, MOST_SHARE, width), (height, width))
    label = f"attention, in even shares:  {LEAST_SHARE:g}"
    left += write(canvas, label, (left, middle), 13) + 6
    top, bottom = middle - height // 2, middle + height - height // 2
    place = canvas[top:bottom, left : left + width]
    place[:] = _lit(np.full((height, width), 128.0), shares)[:, : place.shape[1]]
    even = left + round(width * float(_heat(np.array(1.0))))
    cv2.line(canvas, (even, top), (even, bottom), WHITE)
    write(canvas, f"{MOST_SHARE:g}", (left + width + 6, middle), 13)


def _whole_blocks(length: int) -> int:
    return -(-length // _BLOCK) * _BLOCK
