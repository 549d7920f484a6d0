"""Coefficients lambda(x, y) of hybrids, estimated by a + rho_1(x).rho_2(y).

Hybrid Random Features eq 9 and 10: a coefficient that is a constant plus a product of features of
the query and of the key makes the hybrid itself such a product (Lemma 2.3). Signs are applied to
the keys here, so that all features are real.
"""

from typing import Self

import torch
from torch import Tensor

from attention.construction import Rebuilt
from attention.features.vectors import check_named, coupling_name, redraw_vectors
from attention.norms import half_squares
from attention.options import check_seed
from attention.precision import Float32Buffers, full_precision, working_dtype
from attention.projections import resolve_projection

_OWN_STREAM = 0x5851F42D4C957F2D


def coefficient_seed(seed: int) -> int:
    """Return the seed of a coefficient's generator, so that a base with the same `seed` draws other
    vectors."""
    return check_seed(seed) ^ _OWN_STREAM


class Coefficient(Float32Buffers, Rebuilt):
    """Base class of all coefficients. The random vectors must be independent of those of the
    bases."""

    @property
    def constant(self) -> float | Tensor:
        """a: a float if it is fixed, or a tensor that broadcasts over (..., L, 1) if it is
        fitted."""
        return 0.0

    @property
    def width(self) -> int:
        """R, the number of columns of rho."""
        raise NotImplementedError

    def queries(self, x: Tensor) -> Tensor:
        """rho_1: (..., d) -> (..., R)."""
        raise NotImplementedError

    def keys(self, y: Tensor) -> Tensor:
        """rho_2: (..., d) -> (..., R), with the sign."""
        raise NotImplementedError

    def redraw(self, generator: torch.Generator) -> None:
        """Replace the random vectors, if there are any."""

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set data-dependent parameters from queries x and keys y (..., d)."""
        return self

    def estimate(self, x: Tensor, y: Tensor) -> Tensor:
        """Return lambda_hat of each pair: x, y (..., L, d) -> (..., L)."""
        products = (self.queries(x) * self.keys(y)).sum(-1, keepdim=True)
        return (self.constant + products).squeeze(-1)


class ProjectedCoefficient(Coefficient):
    """Base class of coefficients a + s rho(x).rho(y), where rho is an element-wise function of
    tau.u and |u|^2.

    Args:
        dim: d.
        num_features: n, number of random vectors tau.
        projection: name of the coupling of the taus; an explicit tensor (n, d), shared by all
            heads, or (heads, n, d); or None if a hybrid keeps the taus with its omegas.
        seed: of the taus; they are independent of the vectors of a map with the same seed.
        heads, dtype, device: as in `VectorOptions`.
    """

    tau: Tensor | None
    """(n, d) or (heads, n, d)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        projection: str | Tensor | None = "orthogonal",
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.num_features = num_features
        self.heads = heads
        self.projection = coupling_name(projection)
        tau = None
        if projection is not None:
            generator = torch.Generator().manual_seed(coefficient_seed(seed))
            tau = resolve_projection(
                "projection", projection, num_features, dim, generator, dtype, device, heads
            )
        self.register_buffer("tau", tau)

    @property
    def factor(self) -> float | Tensor:
        """s, with the 1/n of the mean over taus; shaped as `constant`."""
        raise NotImplementedError

    def evaluate(self, projections: Tensor, half_square: Tensor, dim: int = -1) -> Tensor:
        """rho from tau.u, n entries along `dim`, and |u|^2/2, one entry there."""
        raise NotImplementedError

    def weights(self, first: int, second: int, like: Tensor) -> Tensor:
        """Return the weights of products of base features and [1, rho]: (T, R + 1) or (heads, T, R
        + 1).

        They are [a, s, ..., s] for the `first` features, of the base with weight lambda, and [1 -
        a, -s, ..., -s] for the `second` features, of the base with weight 1 - lambda; T in total,
        on the device of `like`.
        """
        a, s = (
            torch.as_tensor(value, dtype=like.dtype, device=like.device).reshape(-1, 1, 1)
            for value in (self.constant, self.factor)
        )
        rows = [
            torch.cat([one] + [rho] * self.width, -1).expand(-1, count, -1)
            for one, rho, count in ((a, s, first), (1 - a, -s, second))
        ]
        table = torch.cat(rows, -2)
        return table if table.shape[0] > 1 else table.squeeze(0)

    def queries(self, x: Tensor) -> Tensor:
        tau = self.tau
        assert tau is not None
        dtype = working_dtype(tau.dtype)
        x = x.to(dtype)
        with full_precision(x):
            half_square = half_squares(x)
            return self.evaluate(x @ tau.to(dtype).mT, half_square)

    def keys(self, y: Tensor) -> Tensor:
        return self.factor * self.queries(y)

    def redraw(self, generator: torch.Generator) -> None:
        check_named(self.projection)
        assert self.tau is not None
        redraw_vectors(self.tau, self.projection, generator)
