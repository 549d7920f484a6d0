"""Running normalisation of observations, mergeable in any number of workers.

Statistics are combined by Chan, Golub and LeVeque's pairwise update, in float64 and in an order
that the caller fixes, so that results do not depend on how the work was distributed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attention.tracing import known

_CLIP = 5.0


@dataclass(frozen=True)
class RunningStatistics:
    """Count, mean and sum of squared deviations of a stream of vectors."""

    count: float
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> "RunningStatistics":
        """Statistics of no vectors of length `size`."""
        return cls(0.0, np.zeros(size), np.zeros(size))

    def update(self, batch: NDArray[np.floating]) -> "RunningStatistics":
        """Include a (n, size) batch of vectors."""
        batch = np.asarray(batch, np.float64)
        if len(batch) == 0:
            return self
        mean = batch.mean(0)
        return self.merge(RunningStatistics(len(batch), mean, ((batch - mean) ** 2).sum(0)))

    def merge(self, other: "RunningStatistics") -> "RunningStatistics":
        """Statistics of both streams together."""
        if other.count == 0:
            return self
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + delta**2 * (self.count * other.count / count)
        return RunningStatistics(count, mean, m2)


class RunningNormaliser(nn.Module):
    """Scales vectors to zero mean and unit variance by stored statistics, clipped to +-5.

    Before any statistics are set it returns vectors unchanged.
    """

    count: Tensor
    mean: Tensor
    m2: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(size, dtype=torch.float64))

    @property
    def statistics(self) -> RunningStatistics:
        """The stored statistics."""
        mean, m2 = self.mean.cpu().numpy(), self.m2.cpu().numpy()
        return RunningStatistics(float(self.count), mean.copy(), m2.copy())

    @statistics.setter
    def statistics(self, statistics: RunningStatistics) -> None:
        self.count.fill_(statistics.count)
        self.mean.copy_(torch.from_numpy(statistics.mean))
        self.m2.copy_(torch.from_numpy(statistics.m2))

    @property
    def passes(self) -> bool | None:
        """Whether there are no statistics; None if that cannot be read, as in an export."""
        return known(self.count < 2)

    def forward(self, x: Tensor) -> Tensor:
        """(..., k) -> (..., k), in the dtype of x: by the first k of the statistics."""
        passes = self.passes
        if passes is True:
            return x.clamp(-_CLIP, _CLIP)
        mean, std = self.mean, (self.m2 / self.count).sqrt().clamp_min(1e-3)
        if passes is None:  # the same numbers, chosen where the graph runs
            few = self.count < 2
            mean, std = mean.masked_fill(few, 0), std.masked_fill(few, 1)
        k = x.shape[-1]
        return ((x - mean[:k]) / std[:k]).to(x.dtype).clamp(-_CLIP, _CLIP)
