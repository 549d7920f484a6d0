"""CarRacing-v3 drawn fast: the same pixels, without what lies outside the image.

Gymnasium turns, scales and filters every polygon of grass and track one by one in Python; here they
are moved together, and only those that meet the window are drawn.
"""

from typing import Any

import numpy as np
from gymnasium.envs.box2d import car_racing
from gymnasium.envs.box2d.car_racing import CarRacing
from numpy.typing import NDArray
from pygame import gfxdraw

Floats = NDArray[np.float64]

_MARGIN_PX = 2  # a polygon's blurred edge
_FIELD = np.array([[[1, 1], [1, -1], [-1, -1], [-1, 1]]]) * car_racing.PLAYFIELD


def _grass() -> Floats:
    """(polygons, 4, 2): every second square of the field, world."""
    corners = np.array([[1, 0], [0, 0], [0, 1], [1, 1]])
    places = np.array([[x, y] for x in range(-20, 20, 2) for y in range(-20, 20, 2)])
    return car_racing.GRASS_DIM * (places[:, None] + corners)


_GRASS = _grass()


class FastCarRacing(CarRacing):
    """CarRacing-v3 that draws frames only while `drawing`; the last image stands otherwise."""

    drawing = True

    def _create_track(self) -> bool:
        self._road: Floats | None = None
        return bool(super()._create_track())

    def _render(self, mode: str) -> Any:
        if mode == "state_pixels" and not self.drawing:
            return self.state
        return super()._render(mode)

    def image(self) -> Any:
        """Return the current image, (96, 96, 3) uint8."""
        self.state = super()._render("state_pixels")
        return self.state

    def _render_road(self, zoom: float, translation: Any, angle: float) -> None:
        if self._road is None:
            self._road = np.array([polygon for polygon, _ in self.road_poly])

        surface: Any = self.surf

        def draw(polygons: Floats, colours: list[Any], clip: bool = True) -> None:
            turned = polygons @ np.array([[cos, sin], [-sin, cos]])
            x, y = (turned * zoom + np.array([translation[0], translation[1]])).transpose(2, 0, 1)
            seen = (
                (x.max(1) >= -_MARGIN_PX)
                & (x.min(1) <= car_racing.WINDOW_W + _MARGIN_PX)
                & (y.max(1) >= -_MARGIN_PX)
                & (y.min(1) <= car_racing.WINDOW_H + _MARGIN_PX)
            )
            for i in np.flatnonzero(seen) if clip else range(len(polygons)):
                points = list(zip(x[i].tolist(), y[i].tolist(), strict=True))
                colour = [int(part) for part in colours[i % len(colours)]]
                gfxdraw.aapolygon(surface, points, colour)
                gfxdraw.filled_polygon(surface, points, colour)

        cos, sin = np.cos(angle), np.sin(angle)
        draw(_FIELD, [self.bg_color], clip=False)
        draw(_GRASS, [self.grass_color])
        draw(self._road, [colour for _, colour in self.road_poly])
