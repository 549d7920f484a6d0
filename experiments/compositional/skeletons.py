"""The skeleton of given settings, and images as its inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attention.compositional import (
    ACTIVATIONS,
    Activation,
    PatchComponents,
    Skeleton,
    image_skeleton,
)
from experiments.compositional.settings import CompositionalConfig

__all__ = ["CLASSES", "SIDE_PX", "STRIDE", "Inputs", "cut", "skeleton_of", "whiten"]

CLASSES, SIDE_PX, STRIDE = 10, 24, 2
"""Of clothes; of an image that is learned from; of all convolutions."""
_FITTED_ON = 2000
"""Images whose patches give the principal components."""


def skeleton_of(settings: CompositionalConfig) -> Skeleton:
    """Raises ValueError if the windows do not fit."""
    activation: Activation = ACTIVATIONS[settings.activation]()
    return image_skeleton(
        SIDE_PX, SIDE_PX, [(window, STRIDE, activation) for window in settings.windows],
        activation, components=settings.components,
    )  # fmt: skip


class Inputs:
    """Images -> angles of the skeleton's input nodes."""

    def __init__(self, settings: CompositionalConfig, images: Tensor) -> None:
        """The principal components are those of `images` (n, 28, 28), uint8, the first of them.

        Raises ValueError if a patch has fewer numbers than components."""
        self.scale = settings.scale
        self.patches = None
        if settings.components is not None:
            known = whiten(cut(images[:_FITTED_ON])).cpu().numpy()
            self.patches = PatchComponents.fit(
                known, settings.windows[0], STRIDE, settings.components
            )

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(n, 28, 28), uint8 -> radians (n, columns); cut as `cut` does."""
        values = whiten(cut(images, generator))
        if self.patches is None:
            return self.scale * values.flatten(1)
        components = torch.from_numpy(self.patches.transform(values.cpu().numpy()))
        return self.scale * components.to(values.device)


def cut(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(n, height, width) -> (n, 24, 24): the middle, or with a generator a random place each, half
    of them mirrored."""
    rest = [size - SIDE_PX for size in images.shape[1:]]
    if generator is None:
        i, j = (size // 2 for size in rest)
        return images[:, i : i + SIDE_PX, j : j + SIDE_PX]
    n, side = len(images), torch.arange(SIDE_PX)
    top, left = (torch.randint(size + 1, (n, 1), generator=generator) for size in rest)
    mirrored = torch.randint(2, (n, 1), generator=generator).bool()
    rows, columns = top + side, left + torch.where(mirrored, side.flip(0), side)
    return images[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def whiten(images: Tensor) -> Tensor:
    """(n, height, width) -> the same as float32, each image of mean 0 and deviation 1; the
    deviation counts as at least that of one bright pixel's noise, 1 / sqrt(pixels)."""
    values = images.float() / 255
    mean = values.mean((1, 2), keepdim=True)
    deviation = values.std((1, 2), correction=0, keepdim=True)
    return (values - mean) / deviation.clamp_min(1 / math.sqrt(values[0].numel()))
