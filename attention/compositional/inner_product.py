"""Base schemes of the inner product: the sphere.

Random Features for Compositional Kernels, section 4, Examples 5 and 6, and Theorem 6.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from attention.compositional.activations import Floats, Integers
from attention.compositional.arrays import NDArray, np
from attention.compositional.base import Base, Terms, omegas

UNIT_TOLERANCE = 1e-6
"""Tolerance for lengths above 1, since data may be normalised in float32."""


@dataclass(frozen=True)
class _InnerProduct(Base):
    """Base class of schemes of k = x.y for |x| <= 1: the paper's sphere and its interior."""

    unimodular: ClassVar[bool] = False

    def check(self, u: NDArray[np.floating]) -> None:
        if u.size and np.square(u, dtype=np.float64).sum(-1).max() > (1 + UNIT_TOLERANCE) ** 2:
            raise ValueError("vectors must have a length of at most 1")

    def kernel(self, u: Floats, v: Floats) -> Floats:
        return (u * v).sum(-1)


@dataclass(frozen=True)
class Sphere(_InnerProduct):
    """Example 5: psi = sqrt(d/2) (x_j + i b x_{j+1}), cyclic, (j, b) uniform on [d] x {+-1}.

    Its norm sqrt(d/2) is the smallest of any scheme (Theorem 6), 1 for d = 2.
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
class Coordinate(_InnerProduct):
    """Example 6, second form: psi = sqrt(d) x_j, j uniform. It is sparse and has norm sqrt(d)."""

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
class Direction(_InnerProduct):
    """Example 6, first form: psi = sqrt(d) w.x, w uniform on the sphere; its norm is sqrt(d)."""

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
        return (self.norm * omegas(terms, u)) @ u.T


def _counted(rng: np.random.Generator, owner: Integers, slots: int) -> Terms:
    """Draw uniform slots; return each once per owner with its number of draws."""
    drawn = owner * slots + rng.integers(slots, size=len(owner))
    codes, count = np.unique(drawn, return_counts=True)
    return Terms(codes // slots, codes % slots, count)
