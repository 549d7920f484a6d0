"""Batches of demonstrated frames, chosen as a pure function of the update and prefetched."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.demonstrations.dataset import ACTION, Dataset

_AHEAD = 2  # batches prefetched beyond the one in use

Indices = NDArray[np.int64]


class Batch(NamedTuple):
    """Frames of a gradient step, with the expert's actions."""

    rgb: Tensor
    """(batch, height, width, 3) uint8."""
    pose: Tensor
    """(batch, k) float32."""
    actions: Tensor
    """(batch, n) float32."""

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self))

    def pinned(self) -> "Batch":
        """The batch in page-locked memory."""
        return Batch(*(part.pin_memory() for part in self))


class FrameSet:
    """The frames of several demonstrations as one sequence.

    Args:
        dataset: the demonstrations, whose observations are `rgb` and `pose`.
        chosen: numbers of the episodes.
    """

    def __init__(self, dataset: Dataset, chosen: Sequence[int]) -> None:
        self._dataset = dataset
        lengths = dataset.lengths[list(chosen)]
        self._demo = np.repeat(np.array(chosen, np.int64), lengths)
        self._step = np.concatenate([np.arange(length) for length in lengths])
        self.pose = np.concatenate([dataset.read(i, "pose") for i in chosen])
        self.actions = np.concatenate([dataset.read(i, ACTION) for i in chosen])

    def __len__(self) -> int:
        return len(self._demo)

    def read(self, indices: Indices) -> "Batch":
        """Frames by their index in the sequence."""
        rgb = np.empty((len(indices), *self._dataset.shape("rgb")), np.uint8)
        for row, index in enumerate(indices):
            step = int(self._step[index])
            rgb[row] = self._dataset.read(int(self._demo[index]), "rgb", slice(step, step + 1))[0]
        parts = rgb, self.pose[indices], self.actions[indices]
        return Batch(*map(torch.from_numpy, parts))


def frames_of_update(update: int, batch_size: int, size: int, seed: int) -> Indices:
    """Which of `size` frames gradient step `update` takes: shuffled passes, remainders dropped."""
    batch_size = min(batch_size, size)
    epoch, place = divmod(update, size // batch_size)
    order = _order(size, seed, epoch)
    chosen: Indices = order[place * batch_size : (place + 1) * batch_size]
    return chosen


@lru_cache(maxsize=4)
def _order(size: int, seed: int, epoch: int) -> Indices:
    """The order of the frames in a pass, cached because drawing it takes milliseconds."""
    order = np.random.default_rng((seed, epoch)).permutation(size)
    order.flags.writeable = False
    return order


class Prefetcher:
    """Reads the batches of successive updates in threads, ahead of their use.

    Args:
        frames: source of the batches.
        readers: number of threads.
        pinned: whether batches lie in page-locked memory, from which a GPU copies faster.
    """

    def __init__(self, frames: FrameSet, readers: int, *, pinned: bool = False) -> None:
        self._frames, self._pinned = frames, pinned
        self._pool = ThreadPoolExecutor(readers)

    def batches(self, wanted: Iterator[Indices]) -> Iterator[Batch]:
        """The batches of these frames, in order."""
        reading: deque[Future[Batch]] = deque()
        for indices in wanted:
            reading.append(self._pool.submit(self._read, indices))
            if len(reading) > _AHEAD:
                yield reading.popleft().result()
        while reading:
            yield reading.popleft().result()

    def _read(self, indices: Indices) -> "Batch":
        batch = self._frames.read(indices)
        return batch.pinned() if self._pinned else batch

    def close(self) -> None:
        """End the threads; batches that were not used are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
