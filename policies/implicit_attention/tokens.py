"""Conversion of images to tokens and back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import fold, pad

from attention.joining import joined
from policies.common.limits import reserve
from policies.common.settings import Edges

_CHUNK = 1024
_PLACE_SCALE = 0.3
_LEAST_PART = 30  # share of the unit for pixels that hardly vary
PLACE = 6
"""Numbers of a token's place code."""


@dataclass(frozen=True)
class Grid:
    """Patches of images of one size: `count` images of (channels, height, width)."""

    count: int
    channels: int
    height: int
    width: int
    patch: tuple[int, int]
    stride: tuple[int, int]
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        """Number of tokens of all images."""
        return self.count * self.rows * self.columns

    @property
    def pixels(self) -> int:
        """Numbers in all images."""
        return self.count * self.channels * self.height * self.width

    @property
    def covered(self) -> tuple[int, int]:
        """Rows and columns of pixels from the first patch to the last."""
        down, across = self.stride
        return (self.rows - 1) * down + self.patch[0], (self.columns - 1) * across + self.patch[1]

    @property
    def is_tiling(self) -> bool:
        """Whether every pixel is in exactly one patch, and nothing else is."""
        return self.patch == self.stride and self.covered == (self.height, self.width)


def grid_of(
    count: int, shape: tuple[int, int, int], patch: tuple[int, int],
    stride: tuple[int, int] | None = None, edges: Edges = "auto",
) -> Grid:  # fmt: skip
    """The patches of images (channels, height, width); see `PatchTokens`."""
    step = stride or patch
    fills = edges == "pad" or (edges == "auto" and step == patch)
    channels, height, width = shape
    number = [
        1 + max(0, -(-(side - size) // by) if fills else (side - size) // by)
        for side, size, by in zip((height, width), patch, step, strict=True)
    ]
    return Grid(count, channels, height, width, patch, step, *number)


class PatchTokens(nn.Module):
    """Cuts images into patches: one token a patch, all channels of its pixels, and its place.

    Patches stand in rows from the first pixel on, a stride apart. If the last patch would exceed
    the image, it is padded with zeros (edges "pad") or dropped (edges "drop"); "auto" fills patches
    that stand side by side and leaves out those of another stride. An image smaller than a patch is
    filled up to one. Images of different sizes make tokens of one length, shorter ones filled up
    with zeros.

    The place is a fixed code of six numbers: 1, then the image, row and column (from -1 to 1) and
    the squares of the last two, these five scaled by 0.3 so that content weighs more than position.

    Args:
        groups: for each group of images, their number and (channels, height, width).
        patch: rows and columns of a patch.
        stride: rows and columns between patches; None: those of a patch.
        edges: treatment of patches that do not fit.
        standardise: whether `set_statistics` may give each pixel its own zero and unit; the state
            then holds them.
    """

    places: Tensor
    zero_m: Tensor | None
    unit_m: Tensor | None

    def __init__(
        self,
        groups: Sequence[tuple[int, tuple[int, int, int]]],
        patch: tuple[int, int],
        stride: tuple[int, int] | None = None,
        edges: Edges = "auto",
        standardise: bool = False,
    ) -> None:
        super().__init__()
        self.grids = [grid_of(count, shape, patch, stride, edges) for count, shape in groups]
        self.count = sum(grid.tokens for grid in self.grids)
        self.size = max(grid.channels for grid in self.grids) * patch[0] * patch[1]
        sizes = {grid.channels for grid in self.grids}
        self.is_tiling = len(sizes) == 1 and all(grid.is_tiling for grid in self.grids)
        self.register_buffer("places", self._places(), persistent=False)
        self.num_features = self.size + PLACE
        self._least = [1 / _LEAST_PART] * len(self.grids)
        shape = self._state_shape()
        if standardise:
            reserve(2, *shape)
        for name, value in (("zero_m", 0.0), ("unit_m", 1.0)):
            self.register_buffer(name, torch.full(shape, value) if standardise else None)

    def _places(self) -> Tensor:
        numbers = _centred(sum(grid.count for grid in self.grids))
        codes, first = [], 0
        for grid in self.grids:
            own = numbers[first : first + grid.count]
            first += grid.count
            axes = own, _centred(grid.rows), _centred(grid.columns)
            image, row, column = torch.meshgrid(*axes, indexing="ij")
            place = [_PLACE_SCALE * c for c in (image, row, column, row**2, column**2)]
            code = [torch.ones_like(image), *place]
            codes.append(torch.stack([c.reshape(-1) for c in code], -1))
        return torch.cat(codes)

    def _state_shape(self) -> tuple[int, ...]:
        """Shape of the pixels' statistics: that of images with one channel and size, else flat."""
        first = self.grids[0]
        if len(self.grids) == 1 and first.channels == 1:
            return first.count, first.height, first.width
        return (sum(grid.pixels for grid in self.grids),)

    def start_statistics(self, scales: Sequence[tuple[float, float] | None]) -> None:
        """Zero and unit of each group of images, until `set_statistics` gives each pixel its
        own."""
        if self.zero_m is None or self.unit_m is None:
            return
        self._least = [(scale or (0.0, 1.0))[1] / _LEAST_PART for scale in scales]
        for name, index in (("zero_m", 0), ("unit_m", 1)):
            pieces = [
                torch.full((grid.pixels,), (scale or (0.0, 1.0))[index])
                for grid, scale in zip(self.grids, scales, strict=True)
            ]
            getattr(self, name).copy_(torch.cat(pieces).view(getattr(self, name).shape))

    @torch.no_grad()
    def set_statistics(self, groups: Sequence[Tensor]) -> None:
        """Normalise each pixel to mean 0 and variance 1 over images as for `standardised`.

        Pixels that hardly vary are divided by a thirtieth of their initial unit. Nothing
        happens without `standardise`.
        """
        if self.zero_m is None or self.unit_m is None:
            return
        zeros, units = [], []
        for images, least in zip(groups, self._least, strict=True):
            zero = images.mean(0, dtype=torch.float32)
            squares = torch.zeros_like(zero)
            for part in images.split(_CHUNK):  # never all in float32 at once
                squares += (part - zero).square().sum(0)
            zeros.append(zero.flatten())
            units.append((squares / len(images)).sqrt().clamp_min(least).flatten())
        self.zero_m.copy_(torch.cat(zeros).view(self.zero_m.shape))
        self.unit_m.copy_(torch.cat(units).view(self.unit_m.shape))

    def _per_group(self, values: Tensor) -> list[Tensor]:
        parts = values.flatten().split([grid.pixels for grid in self.grids])
        return [
            part.view(grid.count, grid.channels, grid.height, grid.width)
            for part, grid in zip(parts, self.grids, strict=True)
        ]

    @property
    def standardises(self) -> bool:
        """Whether each pixel has a separate zero and unit."""
        return self.zero_m is not None

    def standardised(self, groups: Sequence[Tensor]) -> list[Tensor]:
        """Images from a camera -> normalised with each pixel's zero and unit."""
        assert self.zero_m is not None
        assert self.unit_m is not None
        zeros, units = self._per_group(self.zero_m), self._per_group(self.unit_m)
        return [(p - z) / u for p, z, u in zip(groups, zeros, units, strict=True)]

    def forward(self, groups: Sequence[Tensor]) -> Tensor:
        """Groups of (batch, count, channels, height, width) -> values (batch, tokens, size)."""
        cut = [self._cut(images, grid) for images, grid in zip(groups, self.grids, strict=True)]
        return joined(cut, 1)

    def _cut(self, images: Tensor, grid: Grid) -> Tensor:
        (rows, columns), (down, across) = grid.patch, grid.stride
        more = [reach - side for reach, side in zip(grid.covered, images.shape[-2:], strict=True)]
        if max(more) > 0:
            images = pad(images, (0, max(0, more[1]), 0, max(0, more[0])))
        if grid.is_tiling:  # fewer operations, and few nodes of a graph
            bands = images.unflatten(3, (-1, rows)).unflatten(5, (-1, columns))
            patches = bands.transpose(4, 5)
        else:
            patches = images.unfold(3, rows, down).unfold(4, columns, across)
        values = patches.permute(0, 1, 3, 4, 2, 5, 6).reshape(len(images), grid.tokens, -1)
        missing = self.size - values.shape[-1]
        return pad(values, (0, missing)) if missing else values

    def with_places(self, values: Tensor) -> Tensor:
        """Values (batch, tokens, size) -> (batch, tokens, features) with the place code."""
        places = self.places.expand(values.shape[0], -1, -1)
        return torch.cat((values, places), -1)

    def where(self) -> Tensor:
        """Image, row and column of each token, from -1 to 1, (tokens, 3); the image is omitted if
        there is only one.
        """
        first = 1 if sum(grid.count for grid in self.grids) > 1 else 2
        return self.places[:, first:4] / _PLACE_SCALE

    def to_images(self, values: Tensor) -> list[Tensor]:
        """Values (batch, tokens, size or 1) back as groups of images, the mean where patches
        overlap and zero where there is none."""
        if values.shape[-1] != self.size:
            values = values.expand(-1, -1, self.size)
        parts = values.split([grid.tokens for grid in self.grids], 1)
        return [self._join(part, grid) for part, grid in zip(parts, self.grids, strict=True)]

    def _join(self, values: Tensor, grid: Grid) -> Tensor:
        (rows, columns), channels = grid.patch, grid.channels
        values = values[..., : channels * rows * columns]
        shape = (len(values), grid.count, grid.rows, grid.columns, channels, rows, columns)
        cut = values.reshape(shape)
        if grid.patch == grid.stride:
            joined = cut.permute(0, 1, 4, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4)
        else:
            joined = _overlapped(cut, grid)
        sides = grid.height, grid.width
        more = [side - reach for side, reach in zip(sides, grid.covered, strict=True)]
        if max(more) > 0:
            joined = pad(joined, (0, max(0, more[1]), 0, max(0, more[0])))
        return joined[..., : grid.height, : grid.width]

    def gates(self, gate: Tensor) -> list[Tensor]:
        """A gate of tokens (batch, tokens) -> of pixels (batch, count, 1, height, width) for each
        group: 1 where a patch around is kept. Gradients pass as to the mean of the patches."""
        found = []
        parts = gate.unsqueeze(-1).split([grid.tokens for grid in self.grids], 1)
        for grid, own in zip(self.grids, parts, strict=True):
            each = own.expand(-1, -1, math.prod(grid.patch))
            mean = self._join(each, replace(grid, channels=1))
            kept = (mean > 0).to(mean.dtype)
            found.append(kept + mean - mean.detach() if mean.requires_grad else kept)
        return found


def _overlapped(cut: Tensor, grid: Grid) -> Tensor:
    """Patches (batch, count, rows, columns, channels, patch rows, patch columns) -> their means."""

    def summed(patches: Tensor) -> Tensor:
        columns = patches.flatten(0, 1).flatten(1, 2).flatten(2).transpose(1, 2)
        return fold(columns, grid.covered, grid.patch, stride=grid.stride)

    total = summed(cut)
    number = summed(torch.ones_like(cut[:1, :1])).clamp_min(1)
    joined = total / number
    return joined.view(len(cut), grid.count, grid.channels, *grid.covered)


def _centred(n: int) -> Tensor:
    """The centres of n cells from -1 to 1."""
    return (2 * torch.arange(n) + 1) / n - 1 if n > 2 else torch.linspace(-1, 1, n)
