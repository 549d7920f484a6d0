"""Features of degree 2: the kernel (c + s x.y)^2, exact or with random products.

phi(u) = [c, sqrt(2 c s) u, s u_l^2, sqrt(2) s u_k u_l for k < l]: phi(x).phi(y) is the kernel
itself. With fewer than d (d + 1) / 2 features of degree 2 these are s (omega_i.u) (omega'_i.u) /
sqrt(m), with independent omega_i and omega'_i of covariance 1, whose products are unbiased for s^2
(x.y)^2 (Kar and Karnick, Random Feature Maps for Dot Product Kernels, with normal vectors in place
of signs; without its random degree). The constant and the linear terms stay exact.
"""

import math
from typing import Unpack

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features.fixed import FixedFeatures
from attention.features.map_options import MapOptions
from attention.features.vectors import redraw_vectors
from attention.kernels import check_quadratic
from attention.options import check_seed
from attention.precision import full_precision
from attention.projections import projection as draw_projection


class QuadraticFeatures(FixedFeatures):
    """Features of degree 2 for the kernel (c + s x.y)^2: F = 1 + d + min(m, d (d + 1) / 2), signed.

    Args:
        dim: d.
        num_features: m, the number of features of degree 2. From d (d + 1) / 2 on, the map is
            deterministic and its kernel exact; with fewer it draws m pairs of random vectors.
        c: constant term, at least 0.
        s: factor of x.y, positive.
        options: as in `FixedFeatures`; `projection` names the coupling of the first and,
            independently, of the second vectors of the pairs, and `seed` is theirs.

    Raises ValueError for a negative c, an s that is not positive, or a projection that is not the
    name of a coupling.
    """

    name = "quadratic"
    signed = True  # a sketch can be negative, and rounding errors where the kernel is 0

    first: Tensor
    second: Tensor
    omega: Tensor | None
    """(m, d) or (heads, m, d); None where the kernel is exact."""
    partner: Tensor | None
    """omega', as omega."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        c: float = 1.0,
        s: float = 1.0,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        check_quadratic(c, s)
        self.c, self.s = float(c), float(s)
        self.projection = str(options.get("projection", "orthogonal"))
        if self.num_features >= self.dim * (self.dim + 1) // 2:
            pairs = torch.triu_indices(self.dim, self.dim, 1, device=self.place.device)
            # Not part of the state: they are determined by dim.
            self.register_buffer("first", pairs[0].clone(), persistent=False)
            self.register_buffer("second", pairs[1].clone(), persistent=False)
            self.omega = self.partner = None
            return
        generator = torch.Generator().manual_seed(check_seed(options.get("seed", 0)))
        for vectors in ("omega", "partner"):
            drawn = draw_projection(
                self.projection, self.num_features, self.dim, generator, self.place.dtype,
                self.place.device, self.heads,
            )  # fmt: skip
            self.register_buffer(vectors, drawn)
        del self.place  # a state that is assigned to a map on the meta device holds the vectors

    @property
    def output_dim(self) -> int:
        return 1 + self.dim + min(self.num_features, self.dim * (self.dim + 1) // 2)

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries and keys", x, self.place if self.omega is None else self.omega)
        products = self._products(x)
        with component(EXPONENTIALS):
            constant = x.new_full((1,), self.c).expand(*x.shape[:-1], 1)
            return torch.cat((constant, x * math.sqrt(2 * self.c * self.s), products), -1)

    def redraw(self, generator: torch.Generator) -> None:
        """Replace the random vectors; a map with an exact kernel has none and is not changed."""
        for vectors in (self.omega, self.partner):
            if vectors is not None:
                redraw_vectors(vectors, self.projection, generator)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, c={self.c}, s={self.s}"

    def _products(self, x: Tensor) -> Tensor:
        """Features of degree 2 of tokens (..., d)."""
        if self.omega is None or self.partner is None:
            with component(EXPONENTIALS):
                mixed = x.index_select(-1, self.first) * x.index_select(-1, self.second)
                return torch.cat((x.square() * self.s, mixed * (math.sqrt(2) * self.s)), -1)
        with component(PROJECTION), full_precision(x):
            first, second = (x @ part.to(x.dtype).mT for part in (self.omega, self.partner))
        with component(EXPONENTIALS):
            return first * second * (self.s / math.sqrt(self.num_features))
