"""Any observation space as images and one vector.

A Box of one dimension or none, Discrete, MultiDiscrete and MultiBinary are vectors, and so is a
table, see `is_table`; another Box of two to four dimensions is images, see `layout_of`. Dict and
Tuple spaces hold any number of either and may be nested: their parts are named "a.b". A space
without parts is named "observation". Text beside other parts is left out.

Images are cropped, made grey, resized and scaled. The scale comes from the robot's geometry, the
space's bounds or a setting; or from running statistics of each channel, which the policy's
normaliser holds after those of the vector.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate, one_hot

from attention.joining import joined
from policies.common.geometry import Geometry
from policies.common.normaliser import RunningNormaliser
from policies.common.settings import ImageScaling, SeeingConfig

_WHOLE = "observation"
_GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in OpenCV
_LEAST_UNIT, _CLIP = 1e-6, 5.0
_TABLE = 7
_IMAGE_NAMES = frozenset(
    (
        "image",
        "img",
        "pixel",
        "rgb",
        "depth",
        "camera",
        "frame",
        "picture",
        "screen",
        "grey",
        "gray",
    )
)
_LARGEST_BOUND = 1e6
"""Larger bounds count as none: scaled by them, all images would be zero."""


@dataclass(frozen=True)
class ImageInput:
    """A part of the observation that holds `count` images of (channels, height, width)."""

    key: str
    layout: str
    count: int
    channels: int
    height: int
    width: int
    low: float
    high: float

    @property
    def is_bounded(self) -> bool:
        """Whether `low` and `high` define the scale of the numbers."""
        return -_LARGEST_BOUND < self.low < self.high < _LARGEST_BOUND

    def read(self, part: Tensor) -> Tensor:
        """(batch, *shape of the part) -> (batch, count, channels, height, width); a view."""
        order = [1 + self.layout.index(letter) for letter in "NTCHW" if letter in self.layout]
        moved = part.permute(0, *order)
        return moved.reshape(len(part), self.count, self.channels, self.height, self.width)


@dataclass(frozen=True)
class Vector:
    """A part of the observation with `size` numbers; `choices` are the sizes of the one-hot codes
    of its whole numbers.
    """

    key: str
    size: int
    choices: tuple[int, ...] = ()
    start: tuple[int, ...] = ()

    def read(self, part: Tensor) -> Tensor:
        """(batch, *shape of the part) -> (batch, size) float."""
        flat = part.reshape(len(part), -1)
        if not self.choices:
            return flat.float()
        index = flat.long() - torch.tensor(self.start, device=flat.device)
        each = [one_hot(index[:, i], n) for i, n in enumerate(self.choices)]
        return torch.cat(each, -1).float()


class Observations:
    """The interpretation of an observation space.

    Args:
        space: observation space.
        layouts: by key, the axes of an image where they differ from `layout_of`.
        geometry: geometry of the robot's cameras; its `rays` reveal images of several cameras.

    Raises:
        ValueError: for a space or a layout that cannot be read.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        layouts: Mapping[str, str] | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        given = dict(layouts or {})
        rays = {} if geometry is None else geometry.rays
        self.image_parts: list[ImageInput] = []
        self.vectors: list[Vector] = []
        self.keys: list[str] = []
        for key, part in parts_of(space):
            if key in self.keys:
                raise ValueError(
                    f"observation_space must have parts of distinct names, got {key} twice"
                )
            self.keys.append(key)
            seen = _read(key, part, given.pop(key, None), rays.get(key))
            if isinstance(seen, ImageInput):
                self.image_parts.append(seen)
            else:
                self.vectors.append(seen)
        if given:
            raise ValueError(
                f"layout names {', '.join(given)}, but the parts of the observation are "
                f"{', '.join(self.keys)}"
            )
        self.vector_size = sum(vector.size for vector in self.vectors)
        if not self.image_parts and not self.vector_size:
            raise ValueError(f"observation_space must not be empty, got {space}")

    def batch_of_one(self, observation: Any, device: torch.device) -> dict[str, Tensor]:
        """One observation as a batch: each part with a first axis of 1."""
        parts = flat(observation)
        absent = [key for key in self.keys if key not in parts]
        if absent:
            raise ValueError(f"the observation must hold {', '.join(absent)}, got {[*parts]}")
        tensors = {key: torch.from_numpy(_plain(parts[key])[None]) for key in self.keys}
        if device.type != "cpu":
            tensors = {key: part.to(device) for key, part in tensors.items()}
        return tensors

    def vector(self, parts: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
        """All numbers of the vectors, (batch, vector_size)."""
        read = [vector.read(parts[vector.key]).to(dtype) for vector in self.vectors]
        if not read:
            first = next(iter(parts.values()))
            return torch.zeros(len(first), 0, dtype=dtype, device=first.device)
        return joined(read, -1)

    def slice_of(self, key: str) -> slice:
        """The slice of a part's numbers in the vector."""
        begin = 0
        for vector in self.vectors:
            if vector.key == key:
                return slice(begin, begin + vector.size)
            begin += vector.size
        raise KeyError(key)


def is_table(key: str, space: Any) -> bool:
    """Whether a part of the observation is a table of numbers rather than an image: floats in two
    dimensions, the shorter of at most 7, with a name that holds no word such as image or depth."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype.kind == "f"
        and len(space.shape) == 2
        and min(space.shape) <= _TABLE
        and not any(word in key.lower() for word in _IMAGE_NAMES)
    )


def layout_of(shape: tuple[int, ...]) -> str:
    """The default interpretation of an image's axes.

    (H, W) has one channel. Of three axes the shorter of the first and the last is the channels, the
    last where they are alike: (H, W, C) or (C, H, W), a stack of grey frames being channels too. Of
    four axes the first is a stack of frames, the others as before: all frames' channels together
    are the image's.
    """
    if len(shape) == 2:
        return "HW"
    axes = "CHW" if shape[-3] < shape[-1] else "HWC"
    return axes if len(shape) == 3 else f"T{axes}"


def flat(observation: Any) -> dict[str, NDArray[Any]]:
    """An observation's parts by their names, without text."""
    return {key: part for key, part in leaves(observation) if not isinstance(part, str)}


def _plain(part: Any) -> NDArray[Any]:
    """The value as an array that PyTorch accepts without a warning."""
    array = np.asarray(part)
    flags = array.flags
    plain = flags.c_contiguous and flags.writeable
    return array if plain else np.require(array, requirements=["C", "W"])


def copied(observation: Any) -> dict[str, NDArray[Any]]:
    """Copies of the parts, which the environment cannot change."""
    return {key: np.array(part) for key, part in flat(observation).items()}


def parts_of(space: gymnasium.Space[Any]) -> Iterator[tuple[str, Any]]:
    """The parts of an observation space by their names, without text that is beside others."""
    every = list(leaves(space))
    is_text = [getattr(part.dtype, "kind", "") == "U" for _, part in every]
    return (one for one, text in zip(every, is_text, strict=True) if not text or all(is_text))


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a nested observation, or of its space, by their names, with text."""
    value = value.spaces if isinstance(value, spaces.Dict | spaces.Tuple) else value
    if isinstance(value, Mapping):
        named: Any = value.items()
    elif isinstance(value, tuple):
        named = enumerate(value)
    else:
        yield key or _WHOLE, value
        return
    for name, part in named:
        yield from leaves(part, f"{key}.{name}" if key else str(name))


def _read(key: str, space: Any, layout: str | None, rays: Any) -> ImageInput | Vector:
    if isinstance(space, spaces.Discrete):
        return Vector(key, int(space.n), (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        choices = tuple(int(n) for n in space.nvec.flatten())
        start = tuple(int(n) for n in np.broadcast_to(space.start, space.nvec.shape).flatten())
        return Vector(key, sum(choices), choices, start)
    if isinstance(space, spaces.MultiBinary):
        return Vector(key, math.prod(space.shape))
    if not isinstance(space, spaces.Box) or (len(space.shape) > 4 and layout != "vector"):
        raise ValueError(
            "observation_space must be a Box of at most 4 dimensions, Discrete, MultiDiscrete or "
            f"MultiBinary, or a Dict or Tuple of such, got {space} for {key}; of several parts "
            f"observation_keys={{drop: [{key}]}} leaves it out"
        )
    shape = space.shape
    if layout is None and rays is None and is_table(key, space):
        layout = "vector"
    if layout is None and len(shape) >= 2:
        cameras = rays is not None and len(shape) == 3 and rays.shape == (*shape, 3)
        layout = "NHW" if cameras else layout_of(shape)
    if layout is None or layout == "vector":
        return Vector(key, math.prod(shape))
    if len(layout) != len(shape):
        raise ValueError(
            f"layout of {key} must be of the {len(shape)} axes that {shape} has, got {layout}"
        )
    size = dict(zip(layout, shape, strict=True))
    channels = size.get("C", 1) * size.get("T", 1)
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if min(shape) < 1:
        raise ValueError(f"{key} must have pixels, got the shape {shape}")
    return ImageInput(key, layout, size.get("N", 1), channels, size["H"], size["W"], low, high)


@dataclass(frozen=True)
class Prepared:
    """Images of a part of the observation, and their preprocessing."""

    part: ImageInput
    scale: tuple[float, float] | None
    """(zero, unit) of the numbers; None: running statistics of each channel."""
    crop: tuple[int, int, int, int]
    grey: bool
    size: tuple[int, int] | None

    @property
    def count(self) -> int:
        """Number of images in the part."""
        return self.part.count

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""
        channels = self.part.channels // 3 if self.grey else self.part.channels
        top, bottom, left, right = self.crop
        cropped = self.part.height - top - bottom, self.part.width - left - right
        return channels, *(self.size or cropped)

    def read(self, parts: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> Tensor:
        """(batch, count, channels, height, width), not scaled yet; without a `dtype`, float16 is
        not converted."""
        top, bottom, left, right = self.crop
        images = self.part.read(parts[self.part.key])
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

    def scaled(self, images: Tensor, first: int, normaliser: RunningNormaliser) -> Tensor:
        """Images (batch, count, channels, height, width); `first` is the index of the channels'
        means in the normaliser, followed by their mean squares.
        """
        if self.scale is not None:
            zero, unit = self.scale
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

    def spread(self, seen: Tensor) -> Tensor:
        """Map a bool mask of the camera's pixels to the preprocessed pixels, (count, height,
        width); cropped pixels are omitted.
        """
        top, bottom, left, right = self.crop
        height = self.part.height - top - bottom
        width = self.part.width - left - right
        rows = torch.arange(height, device=seen.device) * seen.shape[-2] // height
        columns = torch.arange(width, device=seen.device) * seen.shape[-1] // width
        whole = seen.new_zeros(self.count, self.part.height, self.part.width)
        whole[:, top : top + height, left : left + width] = seen[:, rows][:, :, columns]
        return whole


def prepared(part: ImageInput, config: SeeingConfig, geometry: Geometry | None) -> Prepared:
    """The preprocessing of a part's images; see `PolicyConfig` for the settings.

    Raises:
        ValueError: if the images are too small or have no colours.
    """
    if config.grey and part.channels % 3:
        raise ValueError(
            f"grey must be false for {part.key}, whose images have {part.channels} "
            "channels, which are not red, green and blue"
        )
    top, bottom, left, right = crop = config.image_crop
    if top + bottom >= part.height or left + right >= part.width:
        raise ValueError(
            f"crop must leave something of the {part.height} x {part.width} pixels of "
            f"{part.key}, got {list(crop)}"
        )
    scale = _scale(part, config.image_scaling, geometry)
    return Prepared(part, scale, crop, config.grey, config.image_px)


def _scale(
    part: ImageInput, scaling: ImageScaling, geometry: Geometry | None
) -> tuple[float, float] | None:
    known = {} if geometry is None else geometry.image_scaling
    if isinstance(scaling, tuple):
        return scaling
    if isinstance(scaling, dict):
        if part.key in scaling:
            return scaling[part.key]
        scaling = "auto"
    if scaling == "auto" and part.key in known:
        zero, unit = known[part.key]
        return float(zero), float(unit)
    if scaling == "running" or not part.is_bounded:
        if scaling == "space":
            raise ValueError(
                f"image_scaling must be running or [zero, unit] for {part.key}, whose space "
                f"has no usable bounds, got space"
            )
        return None
    return (part.low + part.high) / 2, (part.high - part.low) / 2
