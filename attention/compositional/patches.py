"""Principal components of image patches, as inputs of the first convolution of a skeleton.

Random Features for Compositional Kernels, section 6: "per-patch PCA" projects the patches of the
first convolution to their first 10, 12 and 16 components, for windows of 4, 5 and 6 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from attention.compositional.activations import Floats
from attention.compositional.arrays import ArrayLike, NDArray, np

_ENTRIES = 1 << 22
"""Number of patch values in one step of `fit`."""


@dataclass(frozen=True)
class PatchComponents:
    """A projection of all patches, the same at every position.

    Args:
        window, stride: size and stride of the convolution in pixels.
        mean: (window * window * channels,) the mean patch, row by row, with adjacent channels of a
            pixel.
        directions: (window * window * channels, components), orthonormal columns.
        size: divisor of the components, so that their mean square is 1 on the fitted data.
    """

    window: int
    stride: int
    mean: Floats
    directions: Floats
    size: float

    @classmethod
    def fit(cls, images: ArrayLike, window: int, stride: int, components: int) -> Self:
        """Fit the first components of images (n, height, width) or (n, height, width, channels).

        Raises ValueError for images or windows of other shapes, more components than a patch has
        numbers, and patches that are all alike.
        """
        array = _with_channels(np.asarray(images, np.float64))
        _, places, numbers = _patches(array[:1], window, stride).shape
        if not 1 <= components <= numbers:
            raise ValueError(
                f"components must lie between 1 and the {numbers} numbers of a patch, got "
                f"{components}"
            )
        total, products = np.zeros(numbers), np.zeros((numbers, numbers))
        rows = max(1, _ENTRIES // (places * numbers))
        for i in range(0, len(array), rows):
            part = _patches(array[i : i + rows], window, stride).reshape(-1, numbers)
            total += part.sum(0)
            products += part.T @ part
        count = len(array) * places
        mean = total / count
        values, vectors = np.linalg.eigh(products / count - np.outer(mean, mean))
        directions = vectors[:, ::-1][:, :components]
        # The sign of an eigenvector is arbitrary: its largest entry is made positive.
        largest = np.abs(directions).argmax(0)
        directions = directions * np.sign(directions[largest, np.arange(components)])
        size = float(np.sqrt(max(values[::-1][:components].mean(), 0.0)))
        if size <= np.sqrt(np.finfo(np.float64).eps) * max(float(np.abs(mean).max()), 1e-300):
            raise ValueError("images must have different patches, got identical ones")
        return cls(window, stride, mean, directions, size)

    def transform(self, images: ArrayLike) -> NDArray[np.floating]:
        """Transform images to (n, patches * components), patch by patch, row by row; float32 for
        float32.

        Raises ValueError for images of other shapes.
        """
        array = _with_channels(np.asarray(images))
        dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)
        patches = _patches(array.astype(dtype, copy=False), self.window, self.stride)
        if patches.shape[-1] != len(self.mean):
            raise ValueError(
                f"images must have patches of {len(self.mean)} numbers, got {patches.shape[-1]}"
            )
        scaled = self.directions / self.size
        projected = patches @ scaled.astype(dtype) - (self.mean @ scaled).astype(dtype)
        return np.asarray(projected.reshape(len(array), -1))


def _with_channels(images: NDArray[Any]) -> NDArray[Any]:
    """(n, height, width[, channels]) -> (n, height, width, channels)."""
    array = images[..., None] if images.ndim == 3 else images
    if array.ndim != 4 or not len(array):
        raise ValueError(
            "images must have shape (n, height, width) or (n, height, width, channels) with n of "
            f"at least 1, got {images.shape}"
        )
    return array


def _patches(images: NDArray[Any], window: int, stride: int) -> NDArray[Any]:
    """(n, height, width, channels) -> (n, patches, window * window * channels)."""
    most = min(images.shape[1:3])
    if not 1 <= window <= most or stride < 1:
        raise ValueError(
            f"window must lie between 1 and {most} and stride be at least 1, got {window} and "
            f"{stride}"
        )
    views = np.lib.stride_tricks.sliding_window_view(images, (window, window), axis=(1, 2))
    views = views[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)
    return views.reshape(len(images), views.shape[1] * views.shape[2], -1)
