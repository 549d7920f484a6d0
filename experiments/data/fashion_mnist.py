"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): 70,000 images of clothes, 28 x 28, ten classes.

MIT licence. On Debian the package dataset-fashion-mnist has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.data.files import RemoteFile, find, read_unpacked
from training.io.config import UserError

NAME = "fashion_mnist"
_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
FILES = {
    file: RemoteFile(f"{_URL}/{file}.gz", sha256, (file,), ("/usr/share/datasets/fashion-mnist",))
    for file, sha256 in {
        "train-images-idx3-ubyte":
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte":
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte":
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte":
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    }.items()
}  # fmt: skip
_AT_ONCE = 500
_MOST_BYTES = 2**27
"""Size limit of a file, unpacked."""


class Pictures(NamedTuple):
    """A part of the data set."""

    images: Tensor
    """(images, 28, 28), uint8."""
    labels: Tensor
    """(images,), int64, 0 to 9."""

    def to(self, device: str) -> Pictures:
        """A copy on a PyTorch device."""
        return Pictures(self.images.to(device), self.labels.to(device))

    def parts(self) -> tuple[Sequence[Tensor], Tensor]:
        """The images in parts of a bounded size, and all labels."""
        return self.images.split(_AT_ONCE), self.labels

    def part(self, first: int, last: int | None = None) -> Pictures:
        """The images from `first` up to but excluding `last`; None: to the end."""
        return Pictures(self.images[first:last], self.labels[first:last])


@lru_cache(maxsize=2)
def load(folder: str | Path | None = None) -> tuple[Pictures, Pictures]:
    """Load 60,000 training and 10,000 test images, or those in a folder.

    Raises UserError if they are not found, or damaged.
    """
    arrays = [read_idx(find(NAME, remote, folder)) for remote in FILES.values()]
    parts = []
    for part, images, labels in zip(("train", "test"), arrays[::2], arrays[1::2], strict=True):
        if images.shape != (labels.size, 28, 28) or labels.ndim != 1 or labels.max(initial=0) > 9:
            raise UserError(
                f"{NAME} must have images of 28 x 28 and as many labels 0 to 9 to {part}, got "
                f"{images.shape} and {labels.shape}, labels up to {labels.max(initial=0)}"
            )
        parts.append(
            Pictures(torch.from_numpy(images.copy()), torch.from_numpy(labels.copy()).long())
        )
    return parts[0], parts[1]


def split(
    folder: str | Path | None, held_out: int, device: str = "cpu"
) -> tuple[Pictures, Pictures, Pictures]:
    """The images to learn from, the last `held_out` of the training set, and the test images.

    Raises ValueError if none is left to learn from.
    """
    whole, test = load(folder)
    known = len(whole.images) - held_out
    if known < 1:
        raise ValueError(f"held_out must be less than {len(whole.images)} images, got {held_out}")
    parts = whole.part(0, known), whole.part(known), test
    return parts[0].to(device), parts[1].to(device), parts[2].to(device)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of an IDX file, with the shape given in its header; gzipped or not.

    Raises UserError if the file is damaged, too large, or of another type."""
    data = read_unpacked(path, _MOST_BYTES)
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise UserError(
            f"{path} is no IDX file of unsigned bytes: it begins with {data[:4]!r}, "
            f"of {len(data)} bytes"
        )
    dims = data[3]
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dims, 4)) if dims else ()
    rest = len(data) - 4 - 4 * dims
    if not 1 <= dims <= 3 or int(np.prod(shape, dtype=object)) != rest:
        raise UserError(f"{path} is damaged: its header says {shape}, and {rest} bytes follow")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)
