"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): 70,000 images of clothes, 28 x 28, ten classes.

MIT licence. On Debian the package dataset-fashion-mnist has it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.data.files import Home, find
from experiments.data.idx import read_idx
from training.io.config import UserError

__all__ = ["Pictures", "load"]

NAME = "fashion_mnist"
_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_PLACES = ("/usr/share/datasets/fashion-mnist",)


def _home(file: str, sha256: str) -> Home:
    return Home(f"{_URL}/{file}.gz", sha256, (file,), _PLACES)


HOMES = {
    "train_images": _home(
        "train-images-idx3-ubyte",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    "train_labels": _home(
        "train-labels-idx1-ubyte",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "test_images": _home(
        "t10k-images-idx3-ubyte",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "test_labels": _home(
        "t10k-labels-idx1-ubyte",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}


class Pictures(NamedTuple):
    """A part of the data set."""

    images: Tensor
    """(images, 28, 28), uint8."""
    labels: Tensor
    """(images,), int64, 0 to 9."""

    def to(self, device: str) -> Pictures:
        """A copy on a PyTorch device."""
        return Pictures(self.images.to(device), self.labels.to(device))


@lru_cache(maxsize=2)
def load(folder: str | Path | None = None) -> tuple[Pictures, Pictures]:
    """Load 60,000 training and 10,000 test images, or those in a folder.

    Raises UserError if they are not found, or damaged.
    """
    arrays = {key: read_idx(find(NAME, home, folder)) for key, home in HOMES.items()}
    parts = []
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.shape != (labels.size, 28, 28) or labels.ndim != 1 or labels.max(initial=0) > 9:
            raise UserError(
                f"{NAME} must have images of 28 x 28 and as many labels 0 to 9 to {part}, got "
                f"{images.shape} and {labels.shape}, labels up to {labels.max(initial=0)}"
            )
        parts.append(
            Pictures(torch.from_numpy(images.copy()), torch.from_numpy(labels.copy()).long())
        )
    return parts[0], parts[1]
