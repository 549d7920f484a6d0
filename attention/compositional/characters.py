"""Base schemes whose features are powers of one psi: signs, angles, vectors and categories.

Random Features for Compositional Kernels, section 4, Examples 1 to 4. psi is a character of a
group, psi(omega, x) psi(omega', x) = psi(omega + omega', x), so that a product of base features is
the base feature of a sum.
"""

from dataclasses import dataclass
from typing import ClassVar

from attention.compositional.activations import Floats, Integers
from attention.compositional.arrays import NDArray, np
from attention.compositional.base import Base, Terms, omegas
from attention.compositional.settings import check_positive, is_index


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
        check_positive("scale", self.scale)

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
        check_positive("a", self.a)

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
        return (self.a * omegas(terms, u)) @ u.T


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
        if not is_index(self.n) or self.n < 2:
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


def _sums(owner: Integers, steps: Integers) -> tuple[Integers, Integers]:
    """Return the distinct owners, ascending, and the sum of the steps of each."""
    distinct, inverse = np.unique(owner, return_inverse=True)
    sums = np.bincount(inverse, weights=steps, minlength=len(distinct))
    return distinct, sums.astype(np.int64)


def _nonzero(owner: Integers, power: Integers) -> Terms:
    """Return the powers of the single base feature of a scheme, without those that cancelled."""
    kept = power != 0
    return Terms(owner[kept], np.zeros(int(kept.sum()), np.int64), power[kept])


def _column(values: NDArray[np.number], u: NDArray[np.floating]) -> NDArray[np.floating]:
    """(t,) -> (t, 1), in the dtype of u."""
    return values[:, None].astype(u.dtype)
