"""Base class of random feature schemes of base spaces, the input nodes of a skeleton.

Random Features for Compositional Kernels, section 4. A scheme gives a base kernel k(x, y) = E
psi(omega, x) conj(psi(omega, y)) and psi itself. A feature of a skeleton is a product of base
features, so psi^n must be cheap and equal products must be recognised: a scheme identifies its base
features by integer slots, and a product is a slot with an exponent.

A base reads `columns` of the data; `u` is always (..., len(columns)) and contains only those
columns.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from attention.compositional.activations import Floats, Integers
from attention.compositional.arrays import NDArray, np
from attention.compositional.settings import is_index


class Terms(NamedTuple):
    """The base features of one input node within many features, merged within each feature."""

    owner: Integers
    """(t,) index of the feature of each term, ascending"""
    slot: Integers
    """(t,) index of the base feature: a row of `parameters`, if there are any"""
    exponent: Integers
    """(t,)"""
    parameters: Floats | None = None
    """(t, len(columns)) omegas of a continuous scheme; never equal, so never merged"""


@dataclass(frozen=True)
class Base:
    """Base class of all schemes.

    Args:
        columns: columns of the data that the node reads.
    """

    columns: tuple[int, ...]
    kind: ClassVar[str]
    unimodular: ClassVar[bool] = True
    """Whether psi = exp(i phase), which is norm-efficient."""
    real: ClassVar[bool] = False
    """Whether psi has no imaginary part."""

    def __post_init__(self) -> None:
        columns = self.columns
        if not isinstance(columns, list | tuple) or not all(is_index(c) for c in columns):
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
        """Supremum of |psi| over omega and x."""
        return 1.0

    def check(self, u: NDArray[np.floating]) -> None:
        """Raise ValueError if u is outside the base space."""

    def kernel(self, u: Floats, v: Floats) -> Floats:
        """Return k(x, y); leading dimensions broadcast."""
        raise NotImplementedError

    def squared(self, u: Floats, v: Floats) -> Floats:
        """Return E (psi(x) conj psi(y))^2, which is real."""
        raise NotImplementedError

    def absolute(self, u: Floats, v: Floats) -> Floats:
        """Return E |psi(x)|^2 |psi(y)|^2."""
        return np.ones(np.broadcast_shapes(u.shape[:-1], v.shape[:-1]))

    def draw(self, rng: np.random.Generator, owner: Integers) -> Terms:
        """Draw one base feature for each entry of `owner`, in ascending order, and multiply those
        of equal owners."""
        raise NotImplementedError

    def values(self, terms: Terms, u: NDArray[np.floating]) -> NDArray[np.inexact]:
        """Return the phase of each term if unimodular, else its value: (n, d) -> (t, n)."""
        raise NotImplementedError

    def conjugate(self, terms: Terms) -> Terms:
        """Return the terms of the complex conjugate features."""
        return terms


def omegas(terms: Terms, u: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the omegas (t, d) of the terms of a continuous scheme, in the dtype of u."""
    assert terms.parameters is not None
    return terms.parameters.astype(u.dtype)
