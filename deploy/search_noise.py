"""Random numbers of an action search, equal to those of PyTorch's CPU generator; NumPy alone.

PyTorch's generator is a Mersenne Twister seeded as NumPy's old one. A uniform float32 is the lower
24 bits of a number. Normal numbers are made of uniform ones, 16 at a time, by the transform of Box
and Muller (1958); a remainder of fewer than 16 is made by redrawing the last 16.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST_NORMAL = 16
"""Normal numbers that are drawn at once, at least; fewer, PyTorch draws otherwise."""
_MASK, _UNIT = (1 << 24) - 1, np.float32(2.0**-24)
_HALF = LEAST_NORMAL // 2


class SearchNoise:
    """Draws the random numbers of a search, decision by decision.

    Args:
        plan: kind, "uniform" or "normal", and count of each draw of a decision, in order.
        seed: seed of the generator at the beginning of each episode.
    """

    def __init__(self, plan: Sequence[tuple[str, int]], seed: int) -> None:
        self._plan, self._seed = [(kind, int(count)) for kind, count in plan], seed
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._bits = np.random.MT19937()
        self._bits._legacy_seeding(self._seed)

    def next(self) -> NDArray[np.float32]:
        """The numbers of a decision, (n,)."""
        drawn = [
            self._uniform(count) if kind == "uniform" else self._normal(count)
            for kind, count in self._plan
        ]
        return np.concatenate(drawn)

    def _uniform(self, count: int) -> NDArray[np.float32]:
        raw = self._bits.random_raw(count) & _MASK
        return raw.astype(np.float32) * _UNIT

    def _normal(self, count: int) -> NDArray[np.float32]:
        whole = count - count % LEAST_NORMAL
        drawn = self._uniform(count)
        drawn[:whole] = _box_muller(drawn[:whole])
        if whole < count:
            drawn[-LEAST_NORMAL:] = _box_muller(self._uniform(LEAST_NORMAL))
        return drawn


def _box_muller(uniform: NDArray[np.float32]) -> NDArray[np.float32]:
    """Uniform numbers (16 k,) -> normal ones."""
    first, second = uniform.reshape(-1, 2, _HALF).swapaxes(0, 1)
    radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - first))
    angle = np.float32(2 * np.pi) * second
    pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1)
    return pairs.reshape(-1)
