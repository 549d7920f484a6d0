"""Random feature schemes of the base spaces: what the input nodes of a skeleton are.

Random Features for Compositional Kernels, section 4, Examples 1 to 6. Each scheme gives a base
kernel k(x, y) = E psi(omega, x) conj(psi(omega, y)) and psi itself. A feature of a skeleton is a
product of base features, so psi^n must be cheap and equal products must be recognised: a scheme
names its base features by integer slots, and a product is a slot with an exponent.

A base reads `columns` of the data; `u` below is always (..., len(columns)), those columns alone.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attention.compositional.activations import Floats, Integers

UNIT_TOLERANCE = 1e-6


class Terms(NamedTuple):
    """The base features of one input node within many features, merged within each feature."""

    owner: Integers
    """(t,) the feature that the term belongs to, ascending"""
    slot: Integers
    """(t,) which base feature: a row of `parameters` where there are any"""
    exponent: Integers
    """(t,)"""
    parameters: Floats | None = None
    """(t, len(columns)) omegas of a continuous scheme; never equal, so never merged"""


@dataclass(frozen=True)
class Base:
    """Base of all schemes.

    Args:
        columns: which columns of the data the node reads.
    """

    columns: tuple[int, ...]
    kind: ClassVar[str]
    unimodular: ClassVar[bool] = True
    """psi = exp(i phase): norm-efficient."""
    real: ClassVar[bool] = False
    """psi has no imaginary part."""

    def __post_init__(self) -> None:
        columns = self.columns
        if not isinstance(columns, list | tuple) or not all(_is_index(c) for c in columns):
            raise ValueError(f"columns must be a list of integers from 0 up, got {columns!r}")
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(f"columns must name at least one column, each once, got {columns!r}")
        object.__setattr__(self, "columns", tuple(columns))

    @property
    def dim(self) -> int:
        """d, the number of columns."""
        return len(self.columns)

    @property
    def norm(self) -> float:
        """sup |psi| over omega and x."""
        return 1.0

    def check(self, u: NDArray[np.floating]) -> None:
        """Raises ValueError where u lies outside the base space."""

    def kernel(self, u: Floats, v: Floats) -> Floats:
        """k(x, y); leading dimensions broadcast."""
        raise NotImplementedError

    def squared(self, u: Floats, v: Floats) -> Floats:
        """E (psi(x) conj psi(y))^2, which is real."""
        raise NotImplementedError

    def absolute(self, u: Floats, v: Floats) -> Floats:
        """E |psi(x)|^2 |psi(y)|^2."""
        return np.ones(np.broadcast_shapes(u.shape[:-1], v.shape[:-1]))

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        """One base feature for each entry of `owner`, in ascending order, multiplied within it."""
        raise NotImplementedError

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        """(n, d) -> (t, n): the phase of each term where unimodular, else its value."""
        raise NotImplementedError

    def conjugate(self, terms: Terms) -> Terms:
        """The terms of the complex conjugate features."""
        return terms


@dataclass(frozen=True)
class _OneColumn(Base):
    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) != 1:
            raise ValueError(f"columns must name one column, got {self.columns}")


@dataclass(frozen=True)
class Sign(_OneColumn):
    """Example 1: x = +-1, k = x y, psi = x."""

    kind: ClassVar[str] = "sign"
    unimodular: ClassVar[bool] = False
    real: ClassVar[bool] = True

    def check(self, u: NDArray[np.floating]) -> None:
        if not (np.abs(u) == 1).all():
            raise ValueError("values must be -1 or 1")

    def kernel(self, u: Floats, v: Floats) -> Floats:
        return u[..., 0] * v[..., 0]

    def squared(self, u: Floats, v: Floats) -> Floats:
        return self.absolute(u, v)

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        owner, count = np.unique(owner, return_counts=True)
        return _nonzero(owner, count % 2)

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        return np.broadcast_to(u.T, (len(terms.owner), len(u)))


@dataclass(frozen=True)
class Circle(_OneColumn):
    """Example 2: z = exp(i scale x), k = Re z conj(z'), psi = z^omega with omega = +-1.

    Args:
        scale: radians per unit of the column.
    """

    scale: float = 1.0
    kind: ClassVar[str] = "circle"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("scale", self.scale)

    def kernel(self, u: Floats, v: Floats) -> Floats:
        return np.cos(self.scale * (u[..., 0] - v[..., 0]))

    def squared(self, u: Floats, v: Floats) -> Floats:
        return np.cos(2 * self.scale * (u[..., 0] - v[..., 0]))

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        steps = 2 * rng.integers(2, size=len(owner)) - 1
        return _nonzero(*_sums(owner, steps))

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        return _column(terms.exponent * self.scale, u) * u.T

    def conjugate(self, terms: Terms) -> Terms:
        return terms._replace(exponent=-terms.exponent)


@dataclass(frozen=True)
class Gaussian(Base):
    """Example 3: k = exp(-a^2 |x - y|^2 / 2), psi = exp(i a omega.x), omega standard normal."""

    a: float = 1.0
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("a", self.a)

    def kernel(self, u: Floats, v: Floats) -> Floats:
        return np.exp(-0.5 * self.a**2 * np.square(u - v).sum(-1))

    def squared(self, u: Floats, v: Floats) -> Floats:
        return self.kernel(u, v) ** 4

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        # The product of n features has the sum of n omegas, which is sqrt(n) times a normal one.
        owner, count = np.unique(owner, return_counts=True)
        omega = np.sqrt(count)[:, None] * rng.standard_normal((len(owner), self.dim))
        return Terms(owner, np.arange(len(owner)), np.ones_like(owner), omega)

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        return (self.a * _omegas(terms, u)) @ u.T


@dataclass(frozen=True)
class Categorical(_OneColumn):
    """Example 4: x in 0, ..., n - 1, k = 1 where x = y, psi = exp(2 pi i omega x / n).

    omega is uniform on n integers. (The paper prints the exponent as i omega x / (2 pi n).)

    Args:
        n: number of categories.
    """

    n: int = 2
    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _is_index(self.n) or self.n < 2:
            raise ValueError(f"n must be an integer of at least 2, got {self.n!r}")

    def check(self, u: NDArray[np.floating]) -> None:
        if not ((u == np.floor(u)) & (u >= 0) & (u < self.n)).all():
            raise ValueError(f"values must be integers from 0 to {self.n - 1}")

    def kernel(self, u: Floats, v: Floats) -> Floats:
        return (u[..., 0] == v[..., 0]).astype(np.float64)

    def squared(self, u: Floats, v: Floats) -> Floats:
        difference = 2 * (u[..., 0] - v[..., 0])
        return (difference % self.n == 0).astype(np.float64)

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        owner, power = _sums(owner, rng.integers(self.n, size=len(owner)))
        return _nonzero(owner, power % self.n)

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        return _column(terms.exponent * (2 * np.pi / self.n), u) * u.T

    def conjugate(self, terms: Terms) -> Terms:
        return terms._replace(exponent=-terms.exponent % self.n)


@dataclass(frozen=True)
class _Linear(Base):
    """k = x.y for |x| <= 1: the sphere of the paper, or anywhere inside it."""

    unimodular: ClassVar[bool] = False

    def check(self, u: NDArray[np.floating]) -> None:
        if u.size and np.square(u, dtype=np.float64).sum(-1).max() > (1 + UNIT_TOLERANCE) ** 2:
            raise ValueError("vectors must have a length of at most 1")

    def kernel(self, u: Floats, v: Floats) -> Floats:
        return (u * v).sum(-1)


@dataclass(frozen=True)
class Sphere(_Linear):
    """Example 5: psi = sqrt(d/2) (x_j + i b x_{j+1}), cyclic, (j, b) uniform on [d] x {+-1}.

    Its norm sqrt(d/2) is the least that any scheme has (Theorem 6), 1 for d = 2.
    """

    kind: ClassVar[str] = "sphere"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim < 2:
            raise ValueError(f"columns must name at least two columns, got {self.columns}")

    @property
    def norm(self) -> float:
        return math.sqrt(self.dim / 2)

    def squared(self, u: Floats, v: Floats) -> Floats:
        product = self._pairs(u) * self._pairs(v).conj()
        return np.square(product).real.mean(-1)

    def absolute(self, u: Floats, v: Floats) -> Floats:
        return np.square(np.abs(self._pairs(u) * self._pairs(v))).mean(-1)

    def _pairs(self, u: NDArray[np.floating]) -> NDArray[np.complexfloating]:
        return self.norm * (u + 1j * np.roll(u, -1, -1))

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        return _counted(rng, owner, 2 * self.dim)

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        pairs = self._pairs(u).T
        table = np.stack((pairs, pairs.conj()), 1).reshape(2 * self.dim, len(u))
        return table[terms.slot] ** terms.exponent[:, None]

    def conjugate(self, terms: Terms) -> Terms:
        """Slots 2j and 2j + 1 are the two signs b of pair j."""
        slot = terms.slot ^ 1
        order = np.lexsort((slot, terms.owner))
        return Terms(terms.owner, slot[order], terms.exponent[order])


@dataclass(frozen=True)
class Coordinate(_Linear):
    """Example 6, second form: psi = sqrt(d) x_j, j uniform. Sparse, of norm sqrt(d)."""

    kind: ClassVar[str] = "coordinate"
    real: ClassVar[bool] = True

    @property
    def norm(self) -> float:
        return math.sqrt(self.dim)

    def squared(self, u: Floats, v: Floats) -> Floats:
        return self.dim * np.square(u * v).sum(-1)

    def absolute(self, u: Floats, v: Floats) -> Floats:
        return self.squared(u, v)

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        return _counted(rng, owner, self.dim)

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        return (self.norm * u.T)[terms.slot] ** terms.exponent[:, None]


@dataclass(frozen=True)
class Direction(_Linear):
    """Example 6, first form: psi = sqrt(d) w.x, w uniform on the sphere; of norm sqrt(d)."""

    kind: ClassVar[str] = "direction"
    real: ClassVar[bool] = True

    @property
    def norm(self) -> float:
        return math.sqrt(self.dim)

    def squared(self, u: Floats, v: Floats) -> Floats:
        # E (w.x)^2 (w.y)^2 = (|x|^2 |y|^2 + 2 (x.y)^2) / (d (d + 2)) for uniform w.
        lengths = np.square(u).sum(-1) * np.square(v).sum(-1)
        return self.dim / (self.dim + 2) * (lengths + 2 * np.square(self.kernel(u, v)))

    def absolute(self, u: Floats, v: Floats) -> Floats:
        return self.squared(u, v)

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        w = rng.standard_normal((len(owner), self.dim))
        w /= np.linalg.norm(w, axis=-1, keepdims=True)
        owner = np.sort(owner)
        return Terms(owner, np.arange(len(owner)), np.ones_like(owner), w)

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        return (self.norm * _omegas(terms, u)) @ u.T


def _sums(owner: Integers, steps: Integers) -> tuple[Integers, Integers]:
    """Distinct owners, ascending, and the sum of each one's steps."""
    distinct, inverse = np.unique(owner, return_inverse=True)
    sums = np.bincount(inverse, weights=steps, minlength=len(distinct))
    return distinct, sums.astype(np.int64)


def _nonzero(owner: Integers, power: Integers) -> Terms:
    """Powers of a scheme's single base feature, without those that cancelled."""
    kept = power != 0
    return Terms(owner[kept], np.zeros(int(kept.sum()), np.int64), power[kept])


def _counted(rng: np.random.Generator, owner: Integers, slots: int) -> Terms:
    """Uniform slots, each once within an owner, with the number of times that it was drawn."""
    drawn = owner * slots + rng.integers(slots, size=len(owner))
    codes, count = np.unique(drawn, return_counts=True)
    return Terms(codes // slots, codes % slots, count)


def _column(values: NDArray[np.number], u: NDArray[np.floating]) -> NDArray[np.floating]:
    """(t,) -> (t, 1), in the dtype of u."""
    return values[:, None].astype(u.dtype)


def _omegas(terms: Terms, u: NDArray[np.floating]) -> NDArray[np.floating]:
    assert terms.parameters is not None
    return terms.parameters.astype(u.dtype)


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_positive(argument: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):  # type: ignore[operator]
        raise ValueError(f"{argument} must be a positive finite number, got {value!r}")


BASES: dict[str, type[Base]] = {
    kind.kind: kind for kind in (Sign, Circle, Gaussian, Categorical, Sphere, Coordinate, Direction)
}
"""Base schemes by the name that `Skeleton.from_dict` takes."""
