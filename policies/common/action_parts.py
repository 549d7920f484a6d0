"""Actions of several parts as one vector: a Dict or Tuple of an arm and a gripper, for example.

The vector holds the numbers of all parts in the order of the space. A choice (Discrete, each of
MultiDiscrete and MultiBinary) is its whole number; one with a single value is left out. The
head of a policy makes a choice of it, see `policies.common.heads.BinnedHead`.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from policies.common.observation import leaves


class ActionParts(spaces.Box):
    """The vector of all parts of an action, (numbers,) float.

    Args:
        space: Dict or Tuple, which may be nested, of Box, Discrete, MultiDiscrete and MultiBinary.

    Attributes:
        whole: the space of the parts.
        bins: for each number how many values a choice has; 0: it is none.
        slices: of each part, by its name ("a.b"), its numbers in the vector.

    Raises:
        ValueError: for a part of another kind, or no numbers at all.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.whole, self.slices = space, {}
        low: list[Any] = []
        high: list[Any] = []
        bins: list[int] = []
        wide = False
        for name, part in leaves(space):
            lower, upper, values = _numbers(name, part)
            self.slices[name] = slice(len(bins), len(bins) + len(values))
            low, high, bins = [*low, *lower], [*high, *upper], [*bins, *values]
            wide = wide or part.dtype == np.float64
        if not bins:
            raise ValueError(f"action_space must hold numbers, got {space}")
        self.bins = tuple(bins)
        dtype = np.float64 if wide else np.float32
        with np.errstate(over="ignore"):
            least: Any = np.array(low, np.float64).astype(dtype)
            most: Any = np.array(high, np.float64).astype(dtype)
        super().__init__(least, most, dtype=dtype)

    def seed(self, seed: Any = None) -> Any:
        """Seed the drawing of actions."""
        self.whole.seed(seed)
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        """An action drawn from the space of the parts."""
        return self.joined(self.whole.sample())

    def rounded(self, vector: Any) -> NDArray[Any]:
        """The vector within the bounds, with whole numbers for choices."""
        found = np.clip(np.asarray(vector, self.dtype), self.low, self.high)
        return np.where(np.array(self.bins) > 0, np.round(found), found).astype(self.dtype)

    def joined(self, action: Any) -> NDArray[Any]:
        """The vector of an action in the format of the parts."""
        parts = _leaves(self.whole, action)
        numbers = [np.ravel(part)[_varies(space)] for space, part in parts]
        return np.concatenate([np.zeros(0), *numbers]).astype(self.dtype)

    def nested(self, vector: Any) -> Any:
        """The action of a vector in the format of the parts."""
        return self._of(self.whole, "", self.rounded(vector))

    def _of(self, space: Any, name: str, vector: NDArray[Any]) -> Any:
        prefix = f"{name}." if name else ""
        if isinstance(space, spaces.Dict):
            return {k: self._of(s, f"{prefix}{k}", vector) for k, s in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._of(s, f"{prefix}{i}", vector) for i, s in enumerate(space.spaces))
        return _part(space, vector[self.slices[name]])


def _counts(space: Any) -> NDArray[Any]:
    """How many values each number of a choice has."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n])
    if isinstance(space, spaces.MultiDiscrete):
        return np.ravel(space.nvec)
    return np.full(math.prod(space.shape), 2)


def _varies(space: Any) -> Any:
    """Which numbers of a part can have several values."""
    return slice(None) if isinstance(space, spaces.Box) else _counts(space) != 1


def _start(space: Any) -> NDArray[Any]:
    start = getattr(space, "start", 0)
    return np.broadcast_to(np.ravel(start), len(_counts(space))).astype(np.int64)


def _numbers(name: str, space: Any) -> tuple[Any, Any, list[int]]:
    """Least and greatest numbers of a part, and how many values each choice has."""
    if isinstance(space, spaces.Box):
        return space.low.ravel(), space.high.ravel(), [0] * space.low.size
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ValueError(
            "action_space must hold Box, Discrete, MultiDiscrete and MultiBinary alone, got "
            f"{space} for {name}"
        )
    counts, start = _counts(space), _start(space)
    several = _varies(space)
    least, values = start[several], counts[several]
    return least, least + values - 1, [int(n) for n in values]


def _part(space: Any, numbers: NDArray[Any]) -> Any:
    """A part of an action from its numbers."""
    if isinstance(space, spaces.Box):
        found = np.round(numbers) if np.issubdtype(space.dtype, np.integer) else numbers
        return np.clip(found.reshape(space.shape), space.low, space.high).astype(space.dtype)
    whole = _start(space).copy()
    whole[_varies(space)] = numbers.astype(np.int64)
    return whole.astype(space.dtype).reshape(space.shape or ())[()]


def _leaves(space: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a space, each with its part of an action."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        kinds = Mapping if isinstance(space, spaces.Dict) else tuple | list
        inner = space.spaces
        named: list[Any] = [*(inner.items() if isinstance(inner, dict) else enumerate(inner))]
        if not isinstance(value, kinds) or len(value) != len(named):
            raise ValueError(f"the action must be of {space}, got {value!r}")
        for key, one in named:
            yield from _leaves(one, value[key])
    else:
        yield space, np.asarray(value)
