"""Preprocessing of images: crop, grey, resize and scale.

The scale comes from the robot's geometry, the space's bounds or a setting; or from running
statistics of each channel, which the policy's normaliser holds after those of the vector.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from policies.common.choices import ImageScaling
from policies.common.geometry import Geometry
from policies.common.normaliser import RunningNormaliser
from policies.common.observation import Pictures

__all__ = ["Prepared", "Scale", "prepared"]

_GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in OpenCV
_LEAST_UNIT, _CLIP = 1e-6, 5.0


@dataclass(frozen=True)
class Scale:
    """(zero, unit) of an image's numbers; None: running statistics of each channel."""

    fixed: tuple[float, float] | None

    def __call__(self, images: Tensor, first: int, normaliser: RunningNormaliser) -> Tensor:
        """Images (batch, count, channels, height, width); `first` is the index of the channels'
        means in the normaliser, followed by their mean squares.
        """
        if self.fixed is not None:
            zero, unit = self.fixed
            return (images - zero) / unit
        passes = normaliser.passes
        if passes is True:
            return images.clamp(-_CLIP, _CLIP)
        channels = images.shape[2]
        mean, square = normaliser.mean[first : first + 2 * channels].split(channels)
        std = (square - mean.square()).clamp_min(0).sqrt().clamp_min(_LEAST_UNIT)
        if passes is None:  # the same numbers, chosen where the graph runs
            few = normaliser.count < 2
            mean, std = mean.masked_fill(few, 0), std.masked_fill(few, 1)
        parts = (values.to(images.dtype).view(-1, 1, 1) for values in (mean, std))
        return ((images - next(parts)) / next(parts)).clamp(-_CLIP, _CLIP)


@dataclass(frozen=True)
class Prepared:
    """Images of a part of the observation, and their preprocessing."""

    pictures: Pictures
    scale: Scale
    crop: tuple[int, int, int, int]
    grey: bool
    size: tuple[int, int] | None

    @property
    def count(self) -> int:
        """Number of images in the part."""
        return self.pictures.count

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""
        channels = self.pictures.channels // 3 if self.grey else self.pictures.channels
        top, bottom, left, right = self.crop
        cropped = self.pictures.height - top - bottom, self.pictures.width - left - right
        return channels, *(self.size or cropped)

    def read(self, parts: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> Tensor:
        """(batch, count, channels, height, width), not scaled yet; without a `dtype`, float16 stays
        as it is."""
        top, bottom, left, right = self.crop
        images = self.pictures.read(parts[self.pictures.key])
        images = images[..., top : images.shape[-2] - bottom, left : images.shape[-1] - right]
        if dtype is None:
            dtype = images.dtype if images.is_floating_point() else torch.float32
        images = images.to(dtype)
        if self.grey:
            colours = images.unflatten(2, (-1, 3))
            red, green, blue = (w * colours[..., i, :, :] for i, w in enumerate(_GREY))
            images = red + green + blue
        if self.size is not None and images.shape[-2:] != self.size:
            smaller = interpolate(images.flatten(0, 1), self.size, mode="area")
            images = smaller.view(len(images), -1, *smaller.shape[1:])
        return images

    def spread(self, seen: Tensor) -> Tensor:
        """Map a bool mask of the camera's pixels to the preprocessed pixels, (count, height,
        width); cropped pixels are omitted.
        """
        top, bottom, left, right = self.crop
        height = self.pictures.height - top - bottom
        width = self.pictures.width - left - right
        rows = torch.arange(height, device=seen.device) * seen.shape[-2] // height
        columns = torch.arange(width, device=seen.device) * seen.shape[-1] // width
        whole = seen.new_zeros(self.count, self.pictures.height, self.pictures.width)
        whole[:, top : top + height, left : left + width] = seen[:, rows][:, :, columns]
        return whole


def prepared(
    pictures: Pictures, scaling: ImageScaling, geometry: Geometry | None,
    crop: tuple[int, int, int, int], grey: bool, size: tuple[int, int] | None,
) -> Prepared:  # fmt: skip
    """The preprocessing of a part's images; see `PolicyConfig` for the settings.

    Raises:
        ValueError: if the images are too small or have no colours.
    """
    if grey and pictures.channels % 3:
        raise ValueError(
            f"grey must be false for {pictures.key}, whose images have {pictures.channels} "
            "channels, which are not red, green and blue"
        )
    top, bottom, left, right = crop
    if top + bottom >= pictures.height or left + right >= pictures.width:
        raise ValueError(
            f"crop must leave something of the {pictures.height} x {pictures.width} pixels of "
            f"{pictures.key}, got {list(crop)}"
        )
    return Prepared(pictures, _scale(pictures, scaling, geometry), crop, grey, size)


def _scale(pictures: Pictures, scaling: ImageScaling, geometry: Geometry | None) -> Scale:
    known = {} if geometry is None else geometry.image_scaling
    if isinstance(scaling, tuple):
        return Scale(scaling)
    if isinstance(scaling, dict):
        if pictures.key in scaling:
            return Scale(scaling[pictures.key])
        scaling = "auto"
    if scaling == "auto" and pictures.key in known:
        zero, unit = known[pictures.key]
        return Scale((float(zero), float(unit)))
    if scaling == "running" or not pictures.is_bounded:
        if scaling == "space":
            raise ValueError(
                f"image_scaling must be running or [zero, unit] for {pictures.key}, which has no "
                "bounds that tell, got space"
            )
        return Scale(None)
    return Scale(((pictures.low + pictures.high) / 2, (pictures.high - pictures.low) / 2))
