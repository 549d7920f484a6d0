"""Drawings on the frames of a video: camera insets, attention and memory.

* `compose`: an outside view with insets of the policy's images, in red the pixels that attention
  drops; the layout of Fig. 4 in Choromanski et al. (2022), "Hybrid random features".
* `side_by_side`: a camera's image beside itself, bright where the policy attends, else dimmed.
* `with_memory`: below a frame, the memory of the ground around the robot from above: a strip along
  the robot, ahead being to the right; for places in two dimensions a map with left at the top. It
  shows the share of holes that the memory returns, bright where the camera sees the ground now.
  Triangles are nominal footholds, the lines through them the places that the legs read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from policies.place_memory.remembered import RememberedGround

INSET_PX = (96, 128)
"""Most height and width of an inset, screen pixels."""
LEAST_WIDTH = 320
"""Pixels; a narrower frame is enlarged."""
MARGIN = 8
"""Pixels between the insets and the edge of the frame."""
CAPTION = 30
"""Height of the strip under a caption."""
WHITE = (255, 255, 255)
MASKED_RED = np.array([215.0, 30.0, 30.0])
RED_WEIGHT = 0.75
"""Share of red in a masked pixel; the rest is its grey, so that the scene stays readable."""
_BLOCK = 16  # encoders code squares of this side
_BACKGROUND = (24, 24, 28)


def masked(image: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    """An image (height, width, 3) as uint8, red where `kept` (height, width) is False."""
    image = image.astype(np.float64)
    if kept is not None:
        image[~kept] = (1 - RED_WEIGHT) * image[~kept] + RED_WEIGHT * MASKED_RED
    return image.astype(np.uint8)


@dataclass(frozen=True)
class Inset:
    """An image that a policy observes."""

    name: str
    image: np.ndarray
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
    enlarged = max(1, -(-LEAST_WIDTH // frame.shape[1]))
    frame = np.asarray(frame, np.uint8).repeat(enlarged, 0).repeat(enlarged, 1)
    below, beside = (_whole_blocks(side) - side for side in frame.shape[:2])
    canvas = np.pad(frame, ((0, below), (0, beside), (0, 0)))
    left = top = MARGIN
    for inset in insets:
        image = _fitted(masked(inset.image, inset.kept), inset_px)
        height, width = image.shape[:2]
        if left > MARGIN and left + width > canvas.shape[1]:
            left, top = MARGIN, top + inset_px[0] + 3 * MARGIN
        place = canvas[top : top + height, left : left + width]
        place[:] = image[: place.shape[0], : place.shape[1]]
        cv2.rectangle(canvas, (left - 1, top - 1), (left + width, top + height), WHITE)
        write(canvas, inset.name, (left + 2, top + height + 9), 13, edged=True)
        left += width + MARGIN
    if caption:
        strip = canvas[-CAPTION:]
        strip[:] = strip * 0.45
        write(canvas, caption, (MARGIN, len(canvas) - CAPTION // 2), 18)
    return canvas


def _fitted(image: np.ndarray, most_px: tuple[int, int]) -> np.ndarray:
    """An image as an inset: a whole multiple of it, or means over areas where it is larger."""
    height, width = image.shape[:2]
    scale = min(most_px[1] / width, most_px[0] / height)
    scale = int(scale) if scale >= 1 else scale
    size = max(1, round(width * scale)), max(1, round(height * scale))
    way = cv2.INTER_NEAREST if scale >= 1 else cv2.INTER_AREA
    return cv2.resize(image, size, interpolation=way)


def write(
    canvas: np.ndarray, text: str, middle: tuple[int, int], pixels: int, edged: bool = False
) -> int:
    """Write a line of white text, `pixels` high, into an image; `middle` is the middle of its left
    edge, (x, y). `edged` letters have a black edge. Returns the text's width in pixels."""
    face = cv2.FONT_HERSHEY_SIMPLEX
    scale = cv2.getFontScaleFromHeight(face, round(0.7 * pixels), 1)
    (width, height), _ = cv2.getTextSize(text, face, scale, 1)
    corner = (middle[0], middle[1] + height // 2)
    if edged:
        cv2.putText(canvas, text, corner, face, scale, (0, 0, 0), 3, cv2.LINE_AA)
    cv2.putText(canvas, text, corner, face, scale, WHITE, 1, cv2.LINE_AA)
    return int(width)


LEAST_SHARE, MOST_SHARE = 0.25, 16.0
"""Attention drawn darkest and brightest, in multiples of an even share of it."""
_DIMMED_SCENE = 0.35
"""Brightness of the scene where attention is least."""
HEAT_WEIGHT = 0.75
"""Share of the heat's colour where attention is most."""
_HEAT = np.array([[30.0, 20.0, 90.0], [190.0, 40.0, 130.0], [250.0, 140.0, 40.0], [255, 250, 160]])
_SCALE_PX = (160, 12)
_GAP, _CAPTION, _LEAST_WIDTH = 6, 36, 400


def heat_image(image: np.ndarray, attention: np.ndarray) -> np.ndarray:
    """The image (height, width, 3) uint8 in grey, lit where `attention` (height, width) is.

    Brightness follows the logarithm of attention, from LEAST_SHARE to MOST_SHARE times its mean:
    the same in every frame, so that frames and policies can be compared.
    """
    grey = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY).astype(np.float64)
    even = max(float(attention.mean()), np.finfo(np.float32).tiny)
    return _lit(grey, attention / even)


def _lit(grey: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Grey (...) and attention in even shares (...) -> colours (..., 3) uint8."""
    heat = _heat(shares)[..., None]
    stops = np.linspace(0, 1, len(_HEAT))
    colours = [np.interp(heat[..., 0], stops, _HEAT[:, channel]) for channel in range(3)]
    weight = HEAT_WEIGHT * heat
    scene = grey[..., None] * (_DIMMED_SCENE + (1 - _DIMMED_SCENE) * heat)
    return ((1 - weight) * scene + weight * np.stack(colours, axis=-1)).astype(np.uint8)


def _heat(shares: np.ndarray) -> np.ndarray:
    """Even shares of attention -> 0 (least) to 1 (most)."""
    times_least = np.clip(shares, LEAST_SHARE, MOST_SHARE) / LEAST_SHARE
    heat: np.ndarray = np.log(times_least) / math.log(MOST_SHARE / LEAST_SHARE)
    return heat


def side_by_side(
    image: np.ndarray, attention: np.ndarray | None = None, caption: str = ""
) -> np.ndarray:
    """The image (height, width, 3) uint8 and, right of it, the same under attention.

    `attention` (height, width), none of it below 0. A strip below shows the caption and the
    attention scale. Images narrower than 400 pixels are enlarged by a whole factor. The frame's
    sides are multiples of 16, as encoders want them.
    """
    images = [image] if attention is None else [image, heat_image(image, attention)]
    scale = math.ceil(_LEAST_WIDTH / image.shape[1])
    height, width = (scale * side for side in image.shape[:2])
    frame = (
        _whole_blocks(height + _GAP + _CAPTION),
        _whole_blocks(len(images) * (width + _GAP) + _GAP),
    )
    canvas = np.full((*frame, 3), _BACKGROUND, np.uint8)
    gap = (frame[1] - len(images) * width) // (len(images) + 1)
    for index, one in enumerate(images):
        left = gap + index * (width + gap)
        enlarged = cv2.resize(one, (width, height), interpolation=cv2.INTER_NEAREST)
        canvas[_GAP : _GAP + height, left : left + width] = enlarged
    middle = (height + _GAP + frame[0]) // 2
    write(canvas, caption, (gap, middle), 18)
    if attention is not None:
        _draw_attention_scale(canvas, 2 * gap + width, middle)
    return canvas


def _draw_attention_scale(canvas: np.ndarray, left: int, middle: int) -> None:
    """Draw a colour bar from least to most attention with labelled ends."""
    width, height = _SCALE_PX
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


STONE, HOLE = np.array([226.0, 218.0, 200.0]), np.array([30.0, 90.0, 220.0])
"""Colours of a share of holes of 0 and of 1."""
DIMMED = 0.5
"""Brightness of places that the camera does not see now."""
_GREY, _FOOT = (160, 160, 165), (255, 190, 0)
_ABOVE, _STRIP, _BELOW = 50, 30, 64  # heights of the panel's parts
_TEXT, _TITLE_TEXT = 13, 15
_TICK_M = 0.2
_BAR = 60  # length of the scale of colours
_TITLE = "memory of the ground from above, ahead to the right:   "
_LEGEND = "yellow: nominal footholds of rear and front legs, and the stretch that each leg reads"
_DARK, _BRIGHT = "dark: out of sight, as the memory has it", "bright: the camera sees it now"
_BLIND = "the camera sees nothing of it now"

_Column = Callable[[float], int]


def ground_image(ground: RememberedGround) -> np.ndarray:
    """The map alone, one pixel per place: (rows, places, 3) uint8, with the robot's left at the
    top."""
    light = np.where(ground.seen, 1.0, DIMMED)[..., None]
    return np.asarray((light * _coloured(ground.shares))[::-1], np.uint8)


def _coloured(shares: np.ndarray) -> np.ndarray:
    """Shares of holes (...) -> colours (..., 3)."""
    shares = np.clip(shares, 0.0, 1.0)[..., None]
    colours: np.ndarray = (1 - shares) * STONE + shares * HOLE
    return colours


def with_memory(frame: np.ndarray, ground: RememberedGround) -> np.ndarray:
    """A frame (height, width, 3) uint8 with the map below it.

    The panel's height is a multiple of 16, as encoders want it, and the same in all of a video.
    """
    width = frame.shape[1]
    first_m, last_m = float(ground.forward_m[0]), float(ground.forward_m[-1])
    scale = (width - 4 * MARGIN) / (last_m - first_m)  # pixels a metre
    across = scale * float(ground.left_m[-1] - ground.left_m[0])
    top, bottom = _ABOVE, _ABOVE + max(_STRIP, round(across))
    height = _whole_blocks(bottom + _BELOW)
    panel = np.full((height, width, 3), _BACKGROUND, np.uint8)

    def column(forward_m: float) -> int:
        return 2 * MARGIN + round(scale * (forward_m - first_m))

    place = panel[top:bottom, column(first_m) : column(last_m)]
    place[:] = cv2.resize(ground_image(ground), place.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    _draw_memory_scale(panel, ground.shown)
    _draw_view(panel, ground, column, top - 6)
    cv2.line(panel, (column(0), top - 3), (column(0), bottom + 3), WHITE)
    for forward_m, left_m in ground.feet_m:
        at = (top + bottom) // 2 - round(scale * float(left_m)) if across else bottom + 9
        first, middle, last = (
            column(float(forward_m) + shift) for shift in (-ground.reach_m, 0.0, ground.reach_m)
        )
        cv2.line(panel, (first, at), (last, at), _FOOT)
        corners = np.array([(middle, at - 6), (middle - 5, at + 4), (middle + 5, at + 4)])
        cv2.fillPoly(panel, [corners], _FOOT)
    _draw_metres(panel, column, ground, bottom + 26)
    write(panel, _LEGEND, (2 * MARGIN, bottom + 50), _TEXT)
    return np.concatenate((frame, panel))


def _draw_memory_scale(panel: np.ndarray, shown: tuple[str, str]) -> None:
    """Draw the title and the colour scale."""
    left, middle = 2 * MARGIN, 14
    left += write(panel, _TITLE + shown[0], (left, middle), _TITLE_TEXT) + 6
    bar = _coloured(np.broadcast_to(np.linspace(0, 1, _BAR), (10, _BAR)))
    place = panel[middle - 5 : middle + 5, left : left + _BAR]
    place[:] = bar[:, : place.shape[1]]
    write(panel, shown[1], (left + _BAR + 6, middle), _TITLE_TEXT)


def _draw_view(panel: np.ndarray, ground: RememberedGround, column: _Column, at: int) -> None:
    """Draw the legend of dark and bright, and a bracket over the camera's view."""
    end = 2 * MARGIN + write(panel, _DARK, (2 * MARGIN, at - 10), _TEXT)
    seen = ground.forward_m[ground.seen.any(0)]
    if not len(seen):
        write(panel, _BLIND, (end + 2 * MARGIN, at - 10), _TEXT)
        return
    first, last = column(float(seen[0])), column(float(seen[-1]))
    corners = np.array([(first, at + 4), (first, at), (last, at), (last, at + 4)])
    cv2.polylines(panel, [corners], False, WHITE)
    write(panel, _BRIGHT, (max(first, end + 2 * MARGIN), at - 10), _TEXT)


def _draw_metres(panel: np.ndarray, column: _Column, ground: RememberedGround, at: int) -> None:
    """Ticks every 20 cm, from the base."""
    first, last = (round(float(ground.forward_m[end]) / _TICK_M) for end in (0, -1))
    for tick in range(first, last + 1):
        middle = column(tick * _TICK_M)
        cv2.line(panel, (middle, at - 7), (middle, at - 4), _GREY)
        label = f"{tick * _TICK_M:+.1f} m" if tick else "robot's base"
        write(panel, label, (max(MARGIN // 2, middle - 3 * len(label)), at + 4), _TEXT)
