"""From depth images to tokens and back."""

import torch
from torch import Tensor, nn

__all__ = ["PatchTokens"]

_CENTRE_M, _SPAN_M = 0.5, 0.3
_LEAST_M = 0.01
_CHUNK = 1024
_PLACE_SCALE = 0.3


class PatchTokens(nn.Module):
    """Cuts images into patches: one token a patch, its depths and its place.

    A depth of 0.5 m becomes 0 and 0.3 m more becomes 1. The place is a fixed code of six numbers:
    1, then the camera (-1 or 1), row and column (from -1 to 1) and their squares, these five scaled
    by 0.3 so that what is seen weighs more than where.

    Args:
        cameras, height, width: shape of the observation's depth.
        patch: rows and columns of a patch.
        standardise: whether `set_statistics` may give each pixel its own zero and unit; the state
            then holds them.

    Raises:
        ValueError: if the patch does not divide the image.
    """

    places: Tensor
    order: Tensor
    zero_m: Tensor | None
    unit_m: Tensor | None

    def __init__(
        self,
        cameras: int,
        height: int,
        width: int,
        patch: tuple[int, int],
        standardise: bool = False,
    ) -> None:
        super().__init__()
        rows, columns = patch
        if height % rows or width % columns:
            raise ValueError(
                f"patch must be [rows, columns] that divide the {height} x {width} image, "
                f"got [{rows}, {columns}]"
            )
        grid = (cameras, height // rows, width // columns)
        self.shape = (cameras, height, width)
        self.count = grid[0] * grid[1] * grid[2]
        self.size = rows * columns
        pixels = torch.arange(cameras * height * width).view(
            cameras, grid[1], rows, grid[2], columns
        )
        order = pixels.permute(0, 1, 3, 2, 4).reshape(self.count, self.size)
        camera, row, column = torch.meshgrid(*(_centred(n) for n in grid), indexing="ij")
        place = [_PLACE_SCALE * c for c in (camera, row, column, row**2, column**2)]
        code = [torch.ones(grid), *place]
        self.register_buffer("order", order, persistent=False)
        for name, value in (("zero_m", _CENTRE_M), ("unit_m", _SPAN_M)):
            filled = torch.full(self.shape, value) if standardise else None
            self.register_buffer(name, filled)
        places = torch.stack([c.reshape(-1) for c in code], -1)
        self.register_buffer("places", places, persistent=False)
        self.num_features = self.size + places.shape[-1]

    @torch.no_grad()
    def set_statistics(self, depth_m: Tensor) -> None:
        """Bring each pixel to mean 0 and variance 1 over depths, metres, shaped as for `forward`.

        Pixels that hardly vary are divided by 1 cm. Nothing happens without `standardise`.
        """
        if self.zero_m is None or self.unit_m is None:
            return
        self.zero_m.copy_(depth_m.mean(0, dtype=torch.float32))
        squares = torch.zeros_like(self.unit_m)
        for part in depth_m.split(_CHUNK):  # half precision as read: never all in full at once
            squares += (part - self.zero_m).square().sum(0)
        self.unit_m.copy_((squares / len(depth_m)).sqrt().clamp_min(_LEAST_M))

    def forward(self, depth_m: Tensor) -> Tensor:
        """Depth (batch, cameras, height, width), metres -> values (batch, tokens, patch size)."""
        if self.zero_m is None or self.unit_m is None:
            scaled = (depth_m - _CENTRE_M) / _SPAN_M
        else:
            scaled = (depth_m - self.zero_m) / self.unit_m
        return scaled.flatten(1)[:, self.order]

    def with_places(self, values: Tensor) -> Tensor:
        """Values (batch, tokens, patch size) -> (batch, tokens, features) with the place code."""
        places = self.places.expand(values.shape[0], -1, -1)
        return torch.cat((values, places), -1)

    def image(self, values: Tensor) -> Tensor:
        """Values (batch, tokens, patch size or 1) back as (batch, cameras, height, width)."""
        if values.shape[-1] != self.size:
            values = values.expand(-1, -1, self.size)
        flat = torch.empty(values.shape[0], self.order.numel(), dtype=values.dtype)
        flat = flat.to(values.device)
        flat[:, self.order.reshape(-1)] = values.flatten(1)
        return flat.view(-1, *self.shape)


def _centred(n: int) -> Tensor:
    """n cell centres from -1 to 1."""
    return (2 * torch.arange(n) + 1) / n - 1 if n > 2 else torch.linspace(-1, 1, n)
