"""Conjugate activations: sigma(r) = sum_i a_i r^i with a_i >= 0 and sum a_i = 1.

Random Features for Compositional Kernels, sections 2 and 5. A conjugate activation is the dual E
f(X) f(Y) of a scalar function f, over standard normal X, Y of correlation r. The paper's f = max(0,
t) and exp(t) must be scaled so that sigma(1) = 1. Otherwise sigma is not a probability generating
function and sigma'(1) is not its mean degree.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from attention.compositional.arrays import NDArray, np
from attention.compositional.settings import check_positive, is_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SUM_TOLERANCE = 1e-9
_RELU_TERMS = 1 << 20
"""Number of terms in the table of ReLU degrees; the mass beyond it is 8e-11."""


@dataclass(frozen=True)
class Activation:
    """Base class of all conjugate activations."""

    kind: ClassVar[str]

    @property
    def degree(self) -> float:
        """Highest degree with a positive coefficient, or infinity."""
        return math.inf

    def value(self, r: Floats) -> Floats:
        """Return sigma(r), elementwise. It is infinite where the series diverges (r > 1)."""
        raise NotImplementedError

    def derivative(self, r: Floats) -> Floats:
        """Return sigma'(r), elementwise; sigma'(1) is the mean degree."""
        raise NotImplementedError

    def coefficients(self, count: int) -> Floats:
        """Return a_0, ..., a_{count-1}."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        """Draw (count,) degrees, degree i with probability a_i."""
        raise NotImplementedError


@dataclass(frozen=True)
class Identity(Activation):
    """sigma(r) = r, the average of the kernels of the inputs."""

    kind: ClassVar[str] = "identity"

    @property
    def degree(self) -> float:
        return 1

    def value(self, r: Floats) -> Floats:
        return np.asarray(r, np.float64)

    def derivative(self, r: Floats) -> Floats:
        return np.ones_like(np.asarray(r, np.float64))

    def coefficients(self, count: int) -> Floats:
        return (np.arange(count) == 1).astype(np.float64)

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        return np.ones(count, np.int64)


@dataclass(frozen=True)
class ReLU(Activation):
    """Dual of sqrt2 max(0, t): sigma(r) = (sqrt(1 - r^2) + (pi - acos r) r) / pi.

    a_0 = 1/pi, a_1 = 1/2, a_{2k+2} = C(2k, k) / (4^k (2k+1) (2k+2) pi). The mean degree is 1 and
    its variance is infinite: a_{2k} decreases like k^-5/2.
    """

    kind: ClassVar[str] = "relu"

    def value(self, r: Floats) -> Floats:
        c = np.clip(r, -1.0, 1.0)
        inside = (np.sqrt(1 - c * c) + (np.pi - np.arccos(c)) * c) / np.pi
        return np.where(np.asarray(r) > 1 + 1e-9, np.inf, inside)

    def derivative(self, r: Floats) -> Floats:
        return (np.pi - np.arccos(np.clip(r, -1.0, 1.0))) / np.pi

    def coefficients(self, count: int) -> Floats:
        a = np.zeros(max(count, 2))
        a[:2] = 1 / np.pi, 0.5
        even = a[2::2]
        k = np.arange(len(even) - 1)
        even[:1] = 1 / (2 * np.pi)
        even[1:] = (2 * k + 1) ** 2 / ((2 * k + 3) * (2 * k + 4))
        np.cumprod(even, out=even)
        return a[:count]

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        """Draw by inverse CDF, from a table that grows as needed."""
        uniform = rng.random(count)
        terms = 256
        cumulative = np.cumsum(self.coefficients(terms))
        while count and terms < _RELU_TERMS and uniform.max() >= cumulative[-1]:
            terms *= 4
            cumulative = np.cumsum(self.coefficients(terms))
        return np.searchsorted(cumulative, uniform, side="right").astype(np.int64)


@dataclass(frozen=True)
class Exponential(Activation):
    """sigma(r) = exp(c (r - 1)): Poisson(c) degrees. c = 1 is the normalised dual of exp(t).

    Over n inputs on the circle it is the Gaussian kernel with a^2 = c/n on their unit vectors.
    """

    c: float = 1.0
    kind: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        check_positive("c", self.c)

    def value(self, r: Floats) -> Floats:
        # The moments of features that are not norm-efficient may overflow; infinity is correct.
        with np.errstate(over="ignore"):
            return np.exp(self.c * (np.asarray(r, np.float64) - 1))

    def derivative(self, r: Floats) -> Floats:
        return self.c * self.value(r)

    def coefficients(self, count: int) -> Floats:
        i = np.arange(count)
        log_factorial = np.array([math.lgamma(n + 1) for n in i])
        return np.exp(i * math.log(self.c) - self.c - log_factorial)

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        return rng.poisson(self.c, count)


@dataclass(frozen=True)
class Polynomial(Activation):
    """sigma(r) = sum_i a_i r^i with given coefficients, any normalised PSD polynomial.

    Args:
        a: a_0, a_1, ..., non-negative with sum 1.
    """

    a: tuple[float, ...]
    kind: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        if not isinstance(self.a, list | tuple):
            raise ValueError(f"a must be a list of coefficients, got {self.a!r}")
        a = tuple(self.a)
        if not all(is_number(value) and value >= 0 for value in a) or not (
            abs(math.fsum(a) - 1) < SUM_TOLERANCE
        ):
            raise ValueError(f"a must hold coefficients that are at least 0 and sum to 1, got {a}")
        object.__setattr__(self, "a", tuple(float(value) for value in a))

    @property
    def degree(self) -> float:
        return max(i for i, value in enumerate(self.a) if value > 0)

    def value(self, r: Floats) -> Floats:
        return np.asarray(np.polynomial.polynomial.polyval(r, np.array(self.a)))

    def derivative(self, r: Floats) -> Floats:
        slopes = np.polynomial.polynomial.polyder(np.array(self.a))
        return np.asarray(np.polynomial.polynomial.polyval(r, slopes))

    def coefficients(self, count: int) -> Floats:
        padded = np.zeros(max(count, len(self.a)))
        padded[: len(self.a)] = self.a
        return padded[:count]

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        cumulative = np.cumsum(self.a)
        degrees = np.searchsorted(cumulative, rng.random(count), side="right")
        return np.minimum(degrees, int(self.degree)).astype(np.int64)


ACTIVATIONS: dict[str, type[Activation]] = {
    kind.kind: kind for kind in (Identity, ReLU, Exponential, Polynomial)
}
"""Conjugate activations by their name in `Skeleton.from_dict`."""
