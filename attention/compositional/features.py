"""Random features of a skeleton: products of base features, with multiplicities.

Random Features for Compositional Kernels, section 3 (embeddings, Comment 1). q features with
multiplicities c_j and N = sum c_j draws estimate

    k_hat(x, y) = sum_j (c_j / N) Re psi_j(x) conj(psi_j(y)),

unbiased for a fixed N. Norm-efficient bases have psi = exp(i phase), whose phases add up over a
product; the values of other bases are multiplied. A feature reads only the columns of its base
features.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from attention.compositional.activations import Floats, Integers
from attention.compositional.arrays import ArrayLike, NDArray, np
from attention.compositional.base import Terms
from attention.compositional.skeleton import Skeleton

_BLOCK_ENTRIES = 1 << 20
"""Number of feature values in one step of `psi`."""
LAYOUTS = ("pairs", "phase")


@dataclass(frozen=True)
class Features:
    """q random features of a skeleton, created by `draw`.

    Args:
        skeleton: skeleton of the features.
        multiplicity: (q,) number of draws of each feature.
        terms: base features of the products, for each input node that occurs.
    """

    skeleton: Skeleton
    multiplicity: Integers
    terms: Mapping[str, Terms]

    def __len__(self) -> int:
        return len(self.multiplicity)

    @property
    def draws(self) -> int:
        """N, the number of draws including duplicates."""
        return int(self.multiplicity.sum())

    @property
    def weights(self) -> Floats:
        """(q,) sqrt(c_j / N)."""
        return np.sqrt(self.multiplicity / self.draws)

    def degrees(self) -> Integers:
        """(q,) number of base features in each product after merging equal ones: its sparsity."""
        degrees = np.zeros(len(self), np.int64)
        for terms in self.terms.values():
            degrees += np.bincount(terms.owner, minlength=len(self))
        return degrees

    def output_dim(self, layout: str = "pairs") -> int:
        """Return the number of columns of `embed`: 2q for "pairs", q for "phase" or if all features
        are real."""
        _check_layout(layout)
        return len(self) * (2 if layout == "pairs" and not self.skeleton.real else 1)

    def psi(self, x: ArrayLike, dtype: type = np.float64) -> NDArray[np.complexfloating]:
        """Return the complex values of the features without weights: (n, D) -> (n, q).

        Raises ValueError for too few columns, values outside a base space, and products too large
        for the dtype, which only bases that are not norm-efficient can give.
        """
        array = self.skeleton.check("x", x, dtype)
        if array.ndim != 2:
            raise ValueError(f"x must have two dimensions (n, D), got shape {array.shape}")
        complex_dtype = np.result_type(array.dtype, np.complex64)
        out = np.empty((len(array), len(self)), complex_dtype)
        rows = max(1, _BLOCK_ENTRIES // max(len(self), 1))
        for i in range(0, len(array), rows):
            out[i : i + rows] = self._block(array[i : i + rows]).T
        if not np.isfinite(out).all():
            raise ValueError(
                f"x gives a product of base features beyond the range of {array.dtype}: "
                "use norm-efficient bases or activations of finite degree"
            )
        return out

    def _block(self, x: NDArray[np.floating]) -> NDArray[np.complexfloating]:
        """(n, D) -> (q, n)."""
        phase = np.zeros((len(self), len(x)), x.dtype)
        factors = []
        # `psi` detects overflows, over all products at once.
        with np.errstate(over="ignore", invalid="ignore"):
            for name, terms in self.terms.items():
                base = self.skeleton.inputs[name]
                values = base.values(terms, x[:, base.columns])
                if base.unimodular:
                    phase[terms.owner] += values
                elif len(values):
                    owner, first = np.unique(terms.owner, return_index=True)
                    factors.append((owner, np.multiply.reduceat(values, first, axis=0)))
            psi = np.empty(phase.shape, np.result_type(x.dtype, np.complex64))
            np.cos(phase, out=psi.real)
            np.sin(phase, out=psi.imag)
            for owner, product in factors:
                psi[owner] *= product
        return psi

    def embed(
        self,
        x: ArrayLike,
        *,
        layout: str = "pairs",
        offsets: Floats | None = None,
        dtype: type = np.float64,
    ) -> NDArray[np.floating]:
        """Return the real embedding, whose products of rows are k_hat: (n, D) -> (n,
        output_dim(layout)).

        The layout "pairs" is [Re psi, Im psi] times the weights, without the second half if all
        features are real. "phase" is Comment 1, sqrt2 R cos(theta + b), where `offsets` (q,) are
        the b: it has half the columns and is unbiased over b, with a larger error.
        """
        _check_layout(layout)
        psi = self.psi(x, dtype)
        weights = self.weights.astype(psi.real.dtype)
        if layout == "pairs":
            parts = [psi.real] if self.skeleton.real else [psi.real, psi.imag]
            return np.concatenate([part * weights for part in parts], axis=1)
        if offsets is None or np.shape(offsets) != (len(self),):
            raise ValueError(
                f"offsets must have shape ({len(self)},) for the layout 'phase', got "
                f"{None if offsets is None else np.shape(offsets)}"
            )
        # sqrt2 R cos(theta + b), not sqrt(2R cos(theta + b)) as printed.
        turn = (np.sqrt(2) * np.exp(1j * offsets)).astype(psi.dtype)
        return np.asarray((psi * turn).real * weights)

    def take(self, chosen: Integers) -> Self:
        """Select the features with these ascending indices."""
        place = np.full(len(self), -1)
        place[chosen] = np.arange(len(chosen))
        terms = {}
        for name, t in self.terms.items():
            kept = place[t.owner] >= 0
            terms[name] = _rows(t, kept)._replace(owner=place[t.owner[kept]])
        return replace(self, multiplicity=self.multiplicity[chosen], terms=terms)


def phase_offsets(rng: np.random.Generator, count: int) -> Floats:
    """Draw (count,) offsets b of Comment 1: 0 or pi/2, each with probability 1/2."""
    return np.where(rng.integers(2, size=count) == 1, np.pi / 2, 0.0)


def concatenate(first: Features, second: Features) -> Features:
    """Concatenate the features of both, which have the same skeleton."""
    terms = dict(first.terms)
    for name, new in second.terms.items():
        new = new._replace(owner=new.owner + len(first))
        terms[name] = _joined(terms[name], new) if name in terms else new
    multiplicity = np.concatenate((first.multiplicity, second.multiplicity))
    return replace(first, multiplicity=multiplicity, terms=terms)


def _joined(old: Terms, new: Terms) -> Terms:
    owner = np.concatenate((old.owner, new.owner))
    exponent = np.concatenate((old.exponent, new.exponent))
    if old.parameters is None or new.parameters is None:
        return Terms(owner, np.concatenate((old.slot, new.slot)), exponent)
    parameters = np.concatenate((old.parameters, new.parameters))
    return Terms(owner, np.arange(len(owner)), exponent, parameters)


def _rows(terms: Terms, kept: NDArray[np.bool_]) -> Terms:
    if terms.parameters is None:
        return Terms(terms.owner[kept], terms.slot[kept], terms.exponent[kept])
    count = int(kept.sum())
    return Terms(terms.owner[kept], np.arange(count), terms.exponent[kept], terms.parameters[kept])


def _check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
