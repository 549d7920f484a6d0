"""From colour images to patch tokens (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words").

Images stay bytes as long as possible: a 500 x 500 image is 0.75 MB as bytes and 3 MB as floats.
"""

import math

import torch
from torch import Tensor, nn

from attention.tracing import is_exporting
from policies.common.limits import reserve

__all__ = ["PatchEmbedding", "sinusoidal_positions"]

_MIDDLE = 128
"""A byte less this, over this, lies in [-1, 1)."""
_POSITION_SCALE = 0.5


class PatchEmbedding(nn.Module):
    """Cuts images into patches and maps each linearly to a token with a position embedding.

    Pixels are centred: a byte v counts as (v - 128) / 128. Places are learned and start as
    sinusoids of row and column.

    Args:
        height, width: of the images, pixels; 3 colours.
        scale: side of the squares of pixels that are averaged first.
        patch: rows and columns of a patch, in averaged pixels.
        dim: width of a token.
        generator: source of the initial parameters.

    Raises:
        ValueError: if squares or patches do not divide the image.
    """

    def __init__(
        self,
        height: int,
        width: int,
        scale: int,
        patch: tuple[int, int],
        dim: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if height % scale or width % scale:
            raise ValueError(f"image_scale must divide the {height} x {width} image, got {scale}")
        height, width = height // scale, width // scale
        rows, columns = patch
        if height % rows or width % columns:
            raise ValueError(
                f"patch must be [rows, columns] that divide the {height} x {width} image, "
                f"got [{rows}, {columns}]"
            )
        self.scale, self.patch = scale, patch
        self.grid = (height // rows, width // columns)
        self.count = self.grid[0] * self.grid[1]
        inputs = rows * columns * 3
        reserve(dim, inputs)
        self.weight = nn.Parameter(
            torch.randn(dim, inputs, generator=generator) / math.sqrt(inputs)
        )
        self.bias = nn.Parameter(torch.zeros(dim))
        self.positions = nn.Parameter(_POSITION_SCALE * sinusoidal_positions(self.grid, dim))

    def forward(self, rgb: Tensor) -> Tensor:
        """(batch, height, width, 3) uint8 -> tokens (batch, patches, dim), row by row."""
        patches, unit = self.patches(rgb)
        tokens = torch.addmm(self.bias, patches, self.weight.t(), alpha=1 / unit)
        return tokens.view(len(rgb), self.count, -1) + self.positions

    def patches(self, rgb: Tensor) -> tuple[Tensor, float]:
        """Centred pixels (batch * patches, rows * columns * 3), and their value for 1."""
        rows, columns = self.patch
        shape = len(rgb), self.count, rows * columns * 3
        unit = float(_MIDDLE * self.scale**2)
        if torch.compiler.is_compiling() and is_exporting():
            return self._cut(rgb).to(self._dtype(rgb)).reshape(-1, shape[-1]), unit
        out = torch.empty(shape, dtype=self._dtype(rgb), device=rgb.device)
        # One image at a time stays in a processor's cache: three times as fast as all at once.
        step = 1 if rgb.device.type == "cpu" else len(rgb)
        for part, images in zip(out.split(step), rgb.split(step), strict=True):
            cut = self._cut(images)
            part.view(cut.shape).copy_(cut)
        return out.flatten(0, 1), unit

    def _cut(self, rgb: Tensor) -> Tensor:
        """Centred pixels, whole numbers, (batch, down, across, rows, columns * 3)."""
        (down, across), (rows, columns) = self.grid, self.patch
        if self.scale == 1 and is_exporting():  # ONNX reads no bytes as others
            centred = rgb.to(torch.int16) - _MIDDLE
        elif self.scale == 1:
            centred = rgb.bitwise_xor(_MIDDLE).view(torch.int8)
        else:
            centred = _square_sums(rgb, self.scale).sub_(_MIDDLE * self.scale**2)
        return centred.reshape(len(rgb), down, rows, across, columns * 3).transpose(2, 3)

    def _dtype(self, like: Tensor) -> torch.dtype:
        """The dtype of products: bytes are exact in every float type, their sums in float32."""
        device = like.device.type
        if self.scale > 1:
            return self.weight.dtype
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        return self.weight.dtype


def _square_sums(rgb: Tensor, scale: int) -> Tensor:
    """(batch, height, width, 3) -> sums over squares (batch, height / scale, width / scale, 3).

    Slices are added one after the other: five times as fast as `sum` over short dimensions.
    """
    batch, height, width, colours = rgb.shape
    whole = torch.int16 if 255 * scale**2 < 2**15 else torch.int32
    bands = rgb.view(batch, height // scale, scale, width * colours)
    rows = bands[:, :, 0].to(whole)
    for k in range(1, scale):
        rows += bands[:, :, k].to(whole)
    squares = rows.view(batch, height // scale, width // scale, scale, colours)
    sums = squares[..., 0, :] + squares[..., 1, :]
    for k in range(2, scale):
        sums += squares[..., k, :]
    return sums


def sinusoidal_positions(grid: tuple[int, int], dim: int) -> Tensor:
    """Places of patches, (rows * columns, dim): sines and cosines of the row, then of the column.

    Periods fall geometrically from twice the grid to two patches (Vaswani et al. 2017, section 3.5,
    in two dimensions). `dim` is a multiple of 4.
    """
    codes = []
    for count in grid:
        frequency = torch.logspace(0, math.log2(max(count, 2)), dim // 4, base=2.0) * math.pi
        angle = (torch.arange(count) + 0.5).unsqueeze(-1) / count * frequency
        codes.append(torch.cat((angle.sin(), angle.cos()), -1))
    row, column = codes
    rows = row.unsqueeze(1).expand(-1, grid[1], -1)
    columns = column.unsqueeze(0).expand(grid[0], -1, -1)
    return torch.cat((rows, columns), -1).reshape(grid[0] * grid[1], dim)
