"""A policy's memory of the ground around its robot, drawn as a top view below a frame.

A strip along the robot, ahead being to the right: the share of holes that the memory answers,
bright where the camera sees the ground now, dark where it does not. For places in two dimensions it
is a map with left at the top. Triangles are nominal footholds, the lines on them what their legs
read.
"""

from collections.abc import Callable

import numpy as np

from policies.place_memory.remembered import RememberedGround
from training.video.overlays import MARGIN, WHITE, write

STONE, HOLE = np.array([226.0, 218.0, 200.0]), np.array([30.0, 90.0, 220.0])
"""Colours of a share of holes of 0 and of 1."""
DIMMED = 0.5
"""Brightness of what the camera does not see now."""
_BACKGROUND, _GREY, _FOOT = (24, 24, 28), (160, 160, 165), (255, 190, 0)
_ABOVE, _STRIP, _BELOW = 50, 30, 64  # heights of the panel's parts
_TEXT, _TITLE_TEXT = 13, 15
_TICK_M = 0.2
_BAR = 60  # length of the scale of colours
_TITLE = "memory of the ground from above, ahead to the right:   stone, or never seen"
_LEGEND = "yellow: nominal footholds of rear and front legs, and the stretch that each leg reads"
_DARK, _BRIGHT = "dark: out of sight, as the memory has it", "bright: the camera sees it now"
_BLIND = "the camera sees nothing of it now"
_BLOCK = 16  # encoders code squares of this side

_Column = Callable[[float], int]


def ground_picture(ground: RememberedGround) -> np.ndarray:
    """The map alone, a pixel a place: (rows, places, 3) uint8, what is left of the robot up."""
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
    import cv2

    width = frame.shape[1]
    first_m, last_m = float(ground.forward_m[0]), float(ground.forward_m[-1])
    scale = (width - 4 * MARGIN) / (last_m - first_m)  # pixels a metre
    across = scale * float(ground.left_m[-1] - ground.left_m[0])
    top, bottom = _ABOVE, _ABOVE + max(_STRIP, round(across))
    height = -(-(bottom + _BELOW) // _BLOCK) * _BLOCK
    panel = np.full((height, width, 3), _BACKGROUND, np.uint8)

    def column(forward_m: float) -> int:
        return 2 * MARGIN + round(scale * (forward_m - first_m))

    place = panel[top:bottom, column(first_m) : column(last_m)]
    place[:] = cv2.resize(
        ground_picture(ground), place.shape[1::-1], interpolation=cv2.INTER_NEAREST
    )
    _draw_scale(panel)
    _draw_sight(panel, ground, column, top - 6)
    cv2.line(panel, (column(0), top - 3), (column(0), bottom + 3), WHITE)
    for forward_m, left_m in ground.feet_m:
        at = (top + bottom) // 2 - round(scale * float(left_m)) if across else bottom + 9
        _draw_foot(panel, column, float(forward_m), ground.reach_m, at)
    _draw_metres(panel, column, ground, bottom + 26)
    write(panel, _LEGEND, (2 * MARGIN, bottom + 50), _TEXT)
    return np.concatenate((frame, panel))


def _draw_scale(panel: np.ndarray) -> None:
    """Draw the title and the colour scale."""
    left, middle = 2 * MARGIN, 14
    left += write(panel, _TITLE, (left, middle), _TITLE_TEXT) + 6
    bar = _coloured(np.broadcast_to(np.linspace(0, 1, _BAR), (10, _BAR)))
    place = panel[middle - 5 : middle + 5, left : left + _BAR]
    place[:] = bar[:, : place.shape[1]]
    write(panel, "hole", (left + _BAR + 6, middle), _TITLE_TEXT)


def _draw_sight(panel: np.ndarray, ground: RememberedGround, column: _Column, at: int) -> None:
    """Draw the legend of dark and bright, and a bracket over the camera's view."""
    import cv2

    end = 2 * MARGIN + write(panel, _DARK, (2 * MARGIN, at - 10), _TEXT)
    seen = ground.forward_m[ground.seen.any(0)]
    if not len(seen):
        write(panel, _BLIND, (end + 2 * MARGIN, at - 10), _TEXT)
        return
    first, last = column(float(seen[0])), column(float(seen[-1]))
    corners = np.array([(first, at + 4), (first, at), (last, at), (last, at + 4)])
    cv2.polylines(panel, [corners], False, WHITE)
    write(panel, _BRIGHT, (max(first, end + 2 * MARGIN), at - 10), _TEXT)


def _draw_foot(
    panel: np.ndarray, column: _Column, forward_m: float, reach_m: float, at: int
) -> None:
    """Draw a nominal foothold in a row of the panel, and the places that its leg reads."""
    import cv2

    first, last = column(forward_m - reach_m), column(forward_m + reach_m)
    cv2.line(panel, (first, at), (last, at), _FOOT)
    middle = column(forward_m)
    corners = np.array([(middle, at - 6), (middle - 5, at + 4), (middle + 5, at + 4)])
    cv2.fillPoly(panel, [corners], _FOOT)


def _draw_metres(panel: np.ndarray, column: _Column, ground: RememberedGround, at: int) -> None:
    """Ticks every 20 cm, from the base."""
    import cv2

    first, last = (round(float(ground.forward_m[end]) / _TICK_M) for end in (0, -1))
    for tick in range(first, last + 1):
        middle = column(tick * _TICK_M)
        cv2.line(panel, (middle, at - 7), (middle, at - 4), _GREY)
        label = f"{tick * _TICK_M:+.1f} m" if tick else "robot's base"
        write(panel, label, (max(MARGIN // 2, middle - 3 * len(label)), at + 4), _TEXT)
