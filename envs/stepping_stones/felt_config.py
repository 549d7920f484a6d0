"""Settings of felt ground: tiles whose appearance tells, anew in each episode, which hold."""

import math
from dataclasses import fields
from importlib.util import find_spec
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from envs.stepping_stones.felt_textures import TEXTURES

FIRST_M = 0.36
"""Where the first tile begins, after a plain and firm slab, metres."""


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class FeltGroundConfig:
    """A row of touching tiles. Half of their kinds, drawn in each episode, are false: on a trial
    strip a false tile sinks and holds, beyond it a foot falls through."""

    world: Literal["none", "vectors", "conjunctions", "pictures", "smooth"] = "none"
    """Appearance of tiles: unit vectors, one a kind; conjunctions of two parts, of which either
    alone says nothing; pictures: textures, which a colour camera sees; smooth: no kinds, hidden
    factors shape the appearance and the firmness. none: stones with gaps instead of tiles."""
    kinds: int = Field(default=8, ge=2, le=256)
    """Kinds of tiles; not of smooth."""
    dim: int = Field(default=16, ge=2, le=256)
    """Numbers of an appearance; of pictures 3, red, green and blue."""
    parts: tuple[int, int] = (4, 4)
    """How many first and second parts conjunctions combine."""
    factors: int = Field(default=3, ge=1, le=8)
    """Hidden factors of smooth."""
    textures: Literal["training", "unseen"] = "training"
    """Set of 24 textures that pictures choose from; the two share no pattern."""
    strip_tiles: int = Field(default=16, ge=2, le=512)
    """Tiles of the trial strip; all kinds lie on it, as equally often as possible."""
    labels_change: bool = False
    """Whether the false kinds are drawn anew half-way along the trial strip; not of smooth."""
    tile_m: tuple[float, float] = (0.12, 0.18)
    """Range of tile lengths along the direction of travel, metres."""
    false_share: float = Field(default=0.5, ge=0, le=1)
    """Chance of a false tile beyond the strip, wherever one may lie."""
    firm_between: int = Field(default=2, ge=1, le=20)
    """Firm tiles, at least, after each false one beyond the strip."""
    sink_m: float = Field(default=0.03, ge=0.01, le=0.06)
    """How much lower than it looks a false tile of the strip lies, metres."""
    tile_noise: float = Field(default=0.3, ge=0, le=10)
    """Norm of a tile's deviation from its kind, whose appearance has norm 1."""
    pixel_noise: float = Field(default=0.5, ge=0, le=10)
    """Norm of a pixel's deviation from its tile, in each image anew; of pictures in 10 levels of
    255."""
    beyond_m: float = Field(default=1.5, ge=0, le=100)
    """How far beyond the strip a successful episode leads, metres."""

    strip_s: float = Field(default=3.0, ge=0, le=600)
    """Time for the trial strip: an episode is so much longer than `episode_s`, seconds."""
    row_m: float = Field(default=12.0, ge=1, le=200)
    """Length of the row at least; it is longer where the robot may walk further, metres."""

    @property
    def is_on(self) -> bool:
        """Whether there are tiles."""
        return self.world != "none"

    @property
    def without_effect(self) -> list[str]:
        """Settings without effect in this world."""
        own = {
            "vectors": ("kinds", "labels_change", "dim", "tile_noise", "pixel_noise"),
            "conjunctions": ("kinds", "labels_change", "dim", "parts", "tile_noise", "pixel_noise"),
            "pictures": ("kinds", "labels_change", "textures", "pixel_noise"),
            "smooth": ("dim", "factors", "pixel_noise"),
        }.get(self.world, ())
        every = ["kinds", "labels_change", "dim", "parts", "factors", "textures", "tile_noise",
                 "pixel_noise"]  # fmt: skip
        if not self.is_on:
            every = [part.name for part in fields(self) if part.name != "world"]
        return [f"felt_ground.{name}" for name in every if name not in own]

    @model_validator(mode="after")
    def _possible(self) -> Self:
        low, high = self.tile_m
        if not 0.05 <= low <= high <= 0.5:
            raise ValueError(
                "felt_ground.tile_m must be [low, high] with 0.05 <= low <= high <= 0.5 metres, "
                f"got [{low}, {high}]"
            )
        appearances = {"conjunctions": math.prod(self.parts), "pictures": TEXTURES}
        most = appearances.get(self.world, self.kinds)
        if min(self.parts) < 1 or self.kinds > most:
            raise ValueError(
                f"felt_ground.kinds must be at most the {most} appearances of {self.world}, got "
                f"{self.kinds}"
            )
        least = self.kinds * (2 if self.labels_change else 1)
        if self.world not in ("none", "smooth") and self.strip_tiles < least:
            where = "each half of the trial strip" if self.labels_change else "the trial strip"
            raise ValueError(
                f"felt_ground.strip_tiles must be at least {least}, as all {self.kinds} kinds lie "
                f"on {where}, got {self.strip_tiles}"
            )
        if self.world == "pictures" and find_spec("cv2") is None:
            raise ValueError(
                "felt_ground.world = pictures needs OpenCV: pip install opencv-python-headless"
            )
        longest_m = FIRST_M + self.strip_tiles * high + self.beyond_m
        if longest_m > self.row_m:
            raise ValueError(
                f"felt_ground.row_m must be at least {longest_m:.4g} for {self.strip_tiles} tiles "
                f"of the trial strip and {self.beyond_m:g} m beyond it, got {self.row_m:g}"
            )
        return self
