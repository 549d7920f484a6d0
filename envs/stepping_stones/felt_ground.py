"""Felt ground: a row of touching tiles, flat to depth, some of which give way.

Each tile has an appearance. On a trial strip at the beginning a false tile lies a few centimetres
lower than it looks; beyond the strip it does not collide at all. Which appearances are false is
drawn in each episode, so that only the feet can find out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.geometry import Geometry
from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.felt_config import FIRST_M, FeltGroundConfig
from envs.stepping_stones.felt_textures import SIDE, TEXTURE_M, textures
from envs.stepping_stones.straight_course import StraightCourse
from envs.stepping_stones.terrain import START_M, STONE_THICKNESS_M, Body, Stones

Floats = NDArray[np.float64]

_LIMIT = 100.0  # of a number of an appearance
_WAVES = 24  # of a random smooth function
_CLEAR = 0.5  # tiles of smooth whose firmness is nearer to the border, in deviations, are not laid
_SAMPLES = 512  # that firmness is scaled by
_DECODER_SEED = 57  # appearances of hidden factors are the same in all episodes
_LIGHT = (0.85, 1.15)
_LEVELS = 10.0  # of 255, unit of the noise of pictures
_SAME_M = 0.02  # a pixel whose depth differs by more shows something else


@dataclass(frozen=True)
class FeltStones(Stones):
    """The row; `edges_m` are the stretches that hold a foot.

    Attributes:
        tiles_m: (tiles, 2) near and far edge; the first is the plain slab at the start.
        looks: (tiles, d) appearance, or textures (tiles, height, width, 3) with columns ahead.
        tops_m: (tiles,) height; NaN where it does not collide.
        strip_end_m: where the trial strip ends.
    """

    tiles_m: Floats
    looks: NDArray[Any]
    tops_m: Floats
    strip_end_m: float

    @property
    def low_m(self) -> Floats:
        return np.array([[self.tiles_m[0, 0], -self.width_m / 2, -STONE_THICKNESS_M]])

    @property
    def high_m(self) -> Floats:
        return np.array([[self.tiles_m[-1, 1], self.width_m / 2, 0.0]])

    def bodies(self) -> Iterator[Body]:
        """Neighbours of one height are one box."""
        for near, far, top in _joined(self.tiles_m, self.tops_m):
            half = ((far - near) / 2, self.width_m / 2, STONE_THICKNESS_M / 2)
            yield Body(half, ((near + far) / 2, 0.0, top - STONE_THICKNESS_M / 2), 0.0)

    @property
    def false(self) -> NDArray[np.bool_]:
        """(tiles,) whether it gives way."""
        return self.tops_m != 0

    def shown_m(self) -> Iterator[tuple[Floats, Floats]]:
        """Lower and upper corners (3,) of each tile as it looks."""
        half_m = self.width_m / 2
        for near, far in self.tiles_m:
            yield np.array([near, -half_m, -STONE_THICKNESS_M]), np.array([far, half_m, 0.0])

    @property
    def has_textures(self) -> bool:
        """Whether appearances are textures."""
        return self.looks.ndim > 2

    def colours(self) -> Floats:
        """(tiles, 3) red, green and blue, from 0 to 1, for people: equal ones look equal."""
        if self.has_textures:
            return self.looks.mean((1, 2)) / 255
        seen = self.looks[:, :3] if self.looks.shape[1] > 2 else np.repeat(self.looks, 3, 1)[:, :3]
        return 1 / (1 + np.exp(-4.0 * seen * np.sqrt(self.looks.shape[1]) / 3))

    def index(self, x_m: Floats) -> NDArray[np.int64]:
        """The tile at each place along the row."""
        found = np.searchsorted(self.tiles_m[:, 0], x_m, "right") - 1
        return np.clip(found, 0, len(self.tiles_m) - 1)


def _joined(tiles_m: Floats, tops_m: Floats) -> list[tuple[float, float, float]]:
    """Near edge, far edge and height of neighbours of one height; without those of height NaN."""
    runs: list[tuple[float, float, float]] = []
    for (near, far), top in zip(tiles_m.tolist(), tops_m.tolist(), strict=True):
        if runs and runs[-1][1:] == (near, top):
            runs[-1] = (runs[-1][0], far, top)
        elif not np.isnan(top):
            runs.append((near, far, top))
    return runs


class FeltCourse(StraightCourse):
    """Felt ground, on which success is to come some way beyond the trial strip."""

    stones: FeltStones

    def has_succeeded(self) -> bool:
        return self._along_m >= self.stones.strip_end_m + self._config.felt_ground.beyond_m


def draw_felt_ground(config: SteppingStonesConfig, rng: np.random.Generator) -> FeltStones:
    """A random row, longer than the robot can walk in an episode."""
    felt = config.felt_ground
    worlds: dict[str, type[_World]] = {"smooth": _SmoothWorld, "pictures": _PicturesWorld}
    draw = worlds.get(felt.world, _KindsWorld)(felt, rng)
    strip = draw.strip()
    tiles, lengths = [*strip], [*rng.uniform(*felt.tile_m, len(strip))]
    strip_end_m = FIRST_M + float(sum(lengths))
    end_m, since = strip_end_m, 0
    while end_m < config.row_end_m:
        is_false = since >= felt.firm_between and rng.random() < felt.false_share
        tiles.append(draw.one(is_false))
        lengths.append(rng.uniform(*felt.tile_m))
        end_m, since = end_m + lengths[-1], 0 if is_false else since + 1
    looks, false = (np.array(part) for part in zip(*tiles, strict=True))
    edges = np.concatenate([[START_M, FIRST_M], FIRST_M + np.cumsum(lengths)])
    tiles_m = np.column_stack([edges[:-1], edges[1:]])
    gives_way = np.concatenate([[False], false])
    beyond = np.arange(len(tiles_m)) > len(strip)
    tops_m = np.where(gives_way, np.where(beyond, np.nan, -felt.sink_m), 0.0)
    held = _joined(tiles_m, np.where(np.isnan(tops_m), np.nan, 0.0))
    return FeltStones(
        edges_m=np.array(held)[:, :2],
        width_m=config.stone_width_m,
        tiles_m=tiles_m,
        looks=np.concatenate([np.full_like(looks[:1], draw.plain), looks]),
        tops_m=tops_m,
        strip_end_m=strip_end_m,
    )


Tile = tuple[NDArray[Any], bool]
"""Appearance, and whether it is false."""


class _World(Protocol):
    """Draws the tiles of an episode."""

    plain: float
    """Appearance of the slab at the start."""

    def __init__(self, felt: FeltGroundConfig, rng: np.random.Generator) -> None:
        """Draw which appearances are false."""

    def strip(self) -> list[Tile]:
        """The tiles of the trial strip."""

    def one(self, false: bool) -> Tile:
        """Another tile."""


class _KindsWorld:
    """Kinds with one appearance each, half of them false."""

    plain = 0.0

    def __init__(self, felt: FeltGroundConfig, rng: np.random.Generator) -> None:
        self._felt, self._rng = felt, rng
        self._false = self._labels()
        self._looks = self._drawn()

    def _labels(self) -> NDArray[np.bool_]:
        """Whether each kind is false."""
        kinds = self._felt.kinds
        false = np.zeros(kinds, bool)
        false[self._rng.permutation(kinds)[: kinds // 2]] = True
        return false

    def _drawn(self) -> NDArray[Any]:
        """Appearance of each kind."""
        felt, rng, kinds = self._felt, self._rng, self._felt.kinds
        if felt.world == "conjunctions":
            first, second = (_unit(rng.standard_normal((n, felt.dim))) for n in felt.parts)
            half = felt.dim // 2
            first, second = _unit(first[:, :half]), _unit(second[:, half:])
            pairs = rng.permutation(len(first) * len(second))[:kinds]
            both = [first[pairs // len(second)], second[pairs % len(second)]]
            return np.concatenate(both, 1) / np.sqrt(2)
        return _unit(rng.standard_normal((kinds, felt.dim)))

    def strip(self) -> list[Tile]:
        count = self._felt.strip_tiles
        if not self._felt.labels_change:
            return self._stretch(count)
        first = self._stretch(count // 2)
        self._false = self._labels()
        return first + self._stretch(count - count // 2)

    def _stretch(self, count: int) -> list[Tile]:
        """Tiles of all kinds, as equally often as possible."""
        kinds = self._felt.kinds
        rounds = [self._rng.permutation(kinds) for _ in range(-(-count // kinds))]
        return [self._tile(int(kind)) for kind in np.concatenate(rounds)[:count]]

    def one(self, false: bool) -> Tile:
        return self._tile(int(self._rng.choice(np.flatnonzero(self._false == false))))

    def _tile(self, kind: int) -> Tile:
        look = self._looks[kind]
        noise = self._felt.tile_noise / np.sqrt(len(look)) * self._rng.standard_normal(len(look))
        return look + noise, bool(self._false[kind])


class _PicturesWorld(_KindsWorld):
    """Kinds with one texture each; a tile is a piece of it in another light."""

    plain = 128.0

    def _drawn(self) -> NDArray[Any]:
        every = textures(self._felt.textures)
        return every[self._rng.permutation(len(every))[: self._felt.kinds]]

    def _tile(self, kind: int) -> Tile:
        shift, light = self._rng.integers(0, SIDE, 2), self._rng.uniform(*_LIGHT)
        piece = np.roll(self._looks[kind], shift.tolist(), (0, 1)) * light
        return piece.clip(0, 255).astype(np.uint8), bool(self._false[kind])


class _SmoothWorld:
    """Hidden factors of a tile, of which its firmness is a random smooth function."""

    plain = 0.0

    def __init__(self, felt: FeltGroundConfig, rng: np.random.Generator) -> None:
        self._felt, self._rng = felt, rng
        fixed = np.random.default_rng(_DECODER_SEED)
        self._decoder = (
            fixed.standard_normal((felt.factors, 2 * felt.dim)) / np.sqrt(felt.factors),
            fixed.standard_normal((2 * felt.dim, felt.dim)),
        )
        self._waves = rng.standard_normal((_WAVES, felt.factors)) / 1.5
        self._shifts = rng.uniform(0, 2 * np.pi, _WAVES)
        found = np.cos(rng.standard_normal((_SAMPLES, felt.factors)) @ self._waves.T + self._shifts)
        weights = rng.standard_normal(_WAVES)
        values = found @ weights
        self._weights, self._middle, self._unit = weights, np.median(values), values.std()

    def strip(self) -> list[Tile]:
        return [self._drawn() for _ in range(self._felt.strip_tiles)]

    def one(self, false: bool) -> Tile:
        while True:
            tile = self._drawn()
            if tile[1] == false:
                return tile

    def _drawn(self) -> Tile:
        while True:
            factors = self._rng.standard_normal(self._felt.factors)
            waves = np.cos(self._waves @ factors + self._shifts)
            firmness = (waves @ self._weights - self._middle) / self._unit
            if abs(firmness) > _CLEAR:
                inner, outer = self._decoder
                return _unit(np.tanh(factors @ inner) @ outer), bool(firmness > 0)


def _unit(x: Floats) -> Floats:
    found: Floats = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return found


def appearance_key(key: str) -> str:
    """Key of the appearances of a depth image's pixels."""
    return key.replace("depth", "appearance", 1)


def appearance_space(felt: FeltGroundConfig, shape: tuple[int, ...]) -> spaces.Box:
    """Space of the appearances of images of a shape."""
    if felt.world == "pictures":
        return spaces.Box(0, 255, (*shape, 3), np.uint8)
    return spaces.Box(-_LIMIT, _LIMIT, (*shape, felt.dim), np.float32)


class Appearances:
    """What cameras see of the tiles: each pixel's appearance, zeros where it shows no tile.

    Args:
        felt: settings of the tiles.
        stones: the row.
        rng: source of the pixels' noise.
    """

    def __init__(
        self, felt: FeltGroundConfig, stones: FeltStones, rng: np.random.Generator
    ) -> None:
        self._felt, self._stones, self._rng = felt, stones, rng

    def observe(
        self,
        position_m: Floats,
        rotation: Floats,
        geometry: Geometry,
        key: str,
        depth_m: NDArray[np.float32],
    ) -> NDArray[Any]:
        """The appearances (..., height, width, d) of pixels of depth (..., height, width)."""
        optic = geometry.positions_m[key] @ rotation.T + position_m
        rays = geometry.rays[key] @ rotation.T
        x, y, z = np.moveaxis(optic[..., None, None, :] + depth_m[..., None] * rays, -1, 0)
        ground = (np.abs(z) < _SAME_M) & (np.abs(y) <= self._stones.width_m / 2)
        looks, is_picture = self._looks(x[ground], y[ground]), self._stones.has_textures
        noise = self._felt.pixel_noise / np.sqrt(looks.shape[-1]) * (_LEVELS if is_picture else 1.0)
        seen = np.zeros((*depth_m.shape, looks.shape[-1]), np.float32)
        seen[ground] = looks + noise * self._rng.standard_normal(looks.shape)
        if is_picture:
            return seen.round().clip(0, 255).astype(np.uint8)
        return seen.clip(-_LIMIT, _LIMIT)

    def _looks(self, x_m: Floats, y_m: Floats) -> NDArray[Any]:
        """Appearance at places (n,), (n, d)."""
        tiles = self._stones.index(x_m)
        if not self._stones.has_textures:
            return self._stones.looks[tiles]
        from_edge_m = np.stack(
            (self._stones.width_m / 2 - y_m, x_m - self._stones.tiles_m[tiles, 0])
        )
        row, column = (from_edge_m * (SIDE / TEXTURE_M)).astype(int) % SIDE
        return self._stones.looks[tiles, row, column]
