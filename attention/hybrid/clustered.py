"""Clustered hybrid: one complex exponential estimator per pair of clusters.

For queries in nq clusters and keys in nk, the base S_ij has the diagonal A of `cluster_diagonal`:
the optimum at given centres (r_i, s_j), or for the spread clusters that `fit` finds. Coefficients
choose among the bases (Hybrid Random Features, appendix H):

* "zero_one" (Definition H.2): lambda_ij = 1 for x in cluster i and y in cluster j, else 0. The
  estimate is that of the pair's base; features are zero outside one block of rows.
* "gaussian" (Definition H.1): lambda_ij = exp(-|B x + S B^-1 y|^2 / (2 t^2)) with B = |A| and S the
  signs of A^2, a kernel that is estimated with taus and is 1 at the centres; a default base has the
  remaining weight. The square of a complex vector, as in the paper, would make lambda exceed 1;
  moduli do not.

With `num_pairs` only the pairs of clusters with the most tokens have bases, and the default base is
used for the others (end of section 2.4); see `attention.hybrid.massive_pairs`.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features import ScaledFeatures
from attention.features.base import LogFeatures, scaled_exp
from attention.features.cluster_diagonal import cluster_diagonal
from attention.features.complex_valued import TwoSided, real_form
from attention.features.vectors import check_named, coupling_name, redraw_vectors
from attention.hybrid.bases import BASES, resolve_lambda_projection
from attention.hybrid.cluster_pairs import pair_logarithms
from attention.hybrid.clusters import fit_clusters, initial_centers, nearest
from attention.hybrid.composition import common_scale, compose
from attention.hybrid.general_gaussian import gaussian_features
from attention.hybrid.massive_pairs import (
    cluster_masses,
    default_rows,
    first_pairs,
    massive_pairs,
    of_pairs,
    with_default,
)
from attention.norms import half_squares
from attention.options import check_count, check_positive, is_real
from attention.precision import full_precision, lowest
from attention.projections import resolve_projection
from attention.theory.clustered import COEFFICIENTS
from attention.theory.complex_exponential import A_CAP, A_FLOOR


def _set_diagonals(hybrid: Any, _: object) -> None:
    """After loading a state, compute A from the loaded clusters."""
    hybrid._set_diagonals()


class ClusteredHybrid(TwoSided):
    """Clustered hybrid: F = p t m for zero-one coefficients, p R (t m + T) + T for Gaussian ones; t
    is 2 for complex A, else 1.

    p = nq nk, or `num_pairs` if that is fewer: then F = p t m + nq T for zero-one. The map is
    positive for zero-one coefficients with real A and a positive default base or none; otherwise it
    is signed.

    Args:
        dim, num_features: d and m.
        kernel, projection, seed, heads, dtype, device: as in `MapOptions`. All bases share the
            omegas.
        query_centers, key_centers: (nq, d) and (nk, d), or (heads, ...); `fit` finds them by
            k-means (needs scikit-learn). Until then they are zero and every A is the identity.
        num_query_clusters, num_key_clusters: nq and nk; default 2, or the numbers of given centres.
        complex_a: whether A may have imaginary entries, which is exact at given centres. False
            gives a real A, as in the paper's experiments.
        a_limits: least and largest |A_k|. A clamped entry is not exact at given centres, but an
            entry far from 1 amplifies the distances of points from them.
        num_pairs: number of pairs of clusters with a base, those with the most queries times keys
            in `fit`; before `fit`, the first pairs. Default: all.
        default_base: name of the base, with T features, that has the remaining weight; used with
            "gaussian", and with "zero_one" and `num_pairs`.
        coefficients: "zero_one" or "gaussian"; the options below apply to "gaussian" only.
        num_lambda_features: n, number of random vectors tau.
        lambda_scale: t, width of the regions around the centres.
        lambda_features: "positive", or "trig", whose coefficient is exact at the centres.
        lambda_projection: as in `HybridOptions`.

    Raises ValueError for unknown names, numbers out of range and tensors of another shape.
    """

    omega: Tensor
    query_centers: Tensor
    key_centers: Tensor
    query_rms: Tensor
    """Root mean squares of the coordinates of each cluster, in the shape of the centres; |centres|
    if given"""
    key_rms: Tensor
    moduli: Tensor
    """|A|, (nq, nk, d) or (heads, nq, nk, d)"""
    imaginary: Tensor
    """1 where A is imaginary, else 0; same shape."""
    pairs: Tensor | None
    """(p, 2) or (heads, p, 2): clusters i and j of the pairs with bases, with `num_pairs`."""
    balance: Tensor
    """(p, 1) or (heads, 1, p, 1): log of a factor by which the keys of each pair are multiplied and
    its queries divided. Keys of all pairs are then of similar size, so that the bound on rounding
    errors, which depends on |phi_k|, is that of the pair that a query uses."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor = "orthogonal",
        seed: int = 0,
        query_centers: Tensor | None = None,
        key_centers: Tensor | None = None,
        num_query_clusters: int | None = None,
        num_key_clusters: int | None = None,
        complex_a: bool = True,
        a_limits: tuple[float, float] = (A_FLOOR, A_CAP),
        num_pairs: int | None = None,
        coefficients: str = "zero_one",
        num_lambda_features: int = 8,
        lambda_scale: float = 1.0,
        lambda_features: str = "positive",
        lambda_projection: str | Tensor | None = None,
        default_base: str = "trig",
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel, heads=heads)
        if coefficients not in COEFFICIENTS:
            known = ", ".join(COEFFICIENTS)
            raise ValueError(f"coefficients must be one of {known}, got {coefficients!r}")
        if default_base not in BASES:
            known = ", ".join(sorted(BASES))
            raise ValueError(f"default_base must be one of {known}, got {default_base!r}")
        check_positive(lambda_scale=lambda_scale)
        numbers = isinstance(a_limits, tuple | list) and all(is_real(limit) for limit in a_limits)
        if not (numbers and len(a_limits) == 2 and 0 < a_limits[0] <= 1 <= a_limits[1]):
            raise ValueError(f"a_limits must satisfy 0 < least <= 1 <= largest, got {a_limits!r}")
        self.complex_a = complex_a
        self.a_limits = a_limits
        self.mixture = coefficients
        self.lambda_scale = lambda_scale
        self.seed = seed
        self.projection = coupling_name(projection)
        generator = torch.Generator().manual_seed(seed)
        place: tuple[Any, ...] = (generator, dtype, device, heads)
        omega = resolve_projection("projection", projection, num_features, dim, *place)
        self.register_buffer("omega", omega)
        for side, centers, number in (
            ("query", query_centers, num_query_clusters),
            ("key", key_centers, num_key_clusters),
        ):
            found = initial_centers(side, centers, number, heads, omega)
            self.register_buffer(f"{side}_centers", found)
            self.register_buffer(f"{side}_rms", found.abs())
        self._given = (query_centers is not None, key_centers is not None)
        first = first_pairs(num_pairs, self._clusters, heads, omega.device)
        # A floating-point buffer, since averages of modules divide buffers.
        self.register_buffer("pairs", None if first is None else first.to(omega.dtype))
        rest = self.pairs is not None and BASES[default_base].signed
        self.signed = complex_a or coefficients == "gaussian" or rest
        self.register_buffer("moduli", None, persistent=False)
        self.register_buffer("imaginary", None, persistent=False)
        self.register_buffer("balance", None, persistent=False)
        self._set_diagonals()
        self.register_load_state_dict_post_hook(_set_diagonals)
        if coefficients == "gaussian" or self.pairs is not None:
            self.default = BASES[default_base](
                dim, num_features, kernel=kernel, projection=None, heads=heads
            ).to(omega)
        if coefficients == "zero_one":
            return
        check_count("num_lambda_features", num_lambda_features)
        lambda_projection = resolve_lambda_projection(lambda_projection, projection)
        self.lambda_projection = coupling_name(lambda_projection)
        # Drawn after omega from the same generator, hence independent of it. On the CPU, so that
        # the map below has values if omega is on the meta device.
        place = (generator, omega.dtype, "cpu" if omega.is_meta else omega.device, heads)
        taus = resolve_projection(
            "lambda_projection", lambda_projection, num_lambda_features, dim, *place
        )
        self.lambda_map = gaussian_features(
            lambda_features, dim, num_lambda_features, projection=taus, seed=seed, heads=heads
        ).to(omega)

    @property
    def num_pairs(self) -> int:
        """p, the number of pairs of clusters with a base."""
        if self.pairs is not None:
            return self.pairs.shape[-2]
        return math.prod(self._clusters)

    @property
    def output_dim(self) -> int:
        width = (2 if self.complex_a else 1) * self.num_features
        if self.mixture == "zero_one":
            rest = 0 if self.pairs is None else self.default.output_dim
            return self.num_pairs * width + self._clusters[0] * rest
        default, rho = self.default.output_dim, self.lambda_map.output_dim
        return self.num_pairs * rho * (width + default) + default

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set the centres that were not given by k-means, which needs scikit-learn.

        For these clusters A has the least mean loss over their points, not over their centres. With
        `num_pairs`, the pairs with the most tokens are selected afterwards.

        Queries x and keys y (..., d); a map with heads has one clustering per head.

        Raises ValueError for fewer tokens than clusters, and as `fit` of other maps.
        """
        x, y = self._data(x, y, self.omega)
        for u, centers, rms, given in (
            (x, self.query_centers, self.query_rms, self._given[0]),
            (y, self.key_centers, self.key_rms, self._given[1]),
        ):
            if not given:
                fit_clusters(u, centers, rms, self.seed)
        if self.pairs is not None:
            of_queries, of_keys = (
                cluster_masses(u, centers)
                for u, centers in ((x, self.query_centers), (y, self.key_centers))
            )
            self.pairs.copy_(massive_pairs(of_queries, of_keys, self.num_pairs))
        self._set_diagonals()
        if self.mixture == "gaussian" or self.pairs is not None:
            self.default.fit(x, y)
        return self

    def redraw(self, generator: torch.Generator) -> None:
        if self.mixture == "zero_one":
            check_named(self.projection)
            redraw_vectors(self.omega, self.projection, generator)
            return
        check_named(self.projection, self.lambda_projection)
        redraw_vectors(self.omega, self.projection, generator)
        taus = self.lambda_map.omega
        assert isinstance(taus, Tensor)
        redraw_vectors(taus, self.lambda_projection, generator)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, clusters={self.query_centers.shape[-2]}x"
            f"{self.key_centers.shape[-2]}, complex_a={self.complex_a}, "
            f"coefficients={self.mixture!r}"
        )

    def _set_diagonals(self) -> None:
        """Compute A for every pair of clusters."""
        floor, cap = self.a_limits
        self.moduli, imaginary = cluster_diagonal(
            self.query_centers.unsqueeze(-2),
            self.query_rms.unsqueeze(-2),
            self.key_centers.unsqueeze(-3),
            self.key_rms.unsqueeze(-3),
            complex_a=self.complex_a,
            floor=floor,
            cap=cap,
        )
        self.imaginary = imaginary.to(self.moduli.dtype)
        squares = (self.key_rms.unsqueeze(-3) / self.moduli).square()
        exponent = 0.5 * torch.where(imaginary, -squares, squares).sum(-1, keepdim=True)
        balance = self._table(exponent)  # of exp(w.w / 2), which their features are divided by
        self.balance = balance if self.heads is None else balance.unsqueeze(-3)

    def _features(self, u: Tensor, key: bool) -> Tensor:
        u = self.prepare("queries and keys", u, self.omega)
        log_modulus, phase, log_weight = self._pairs(u, key)
        with component(EXPONENTIALS):
            pairs = real_form((log_modulus + log_weight.unsqueeze(-1)).exp(), phase, key)
        if self.mixture == "zero_one" and self.pairs is None:
            return pairs.flatten(-2)
        projections, log_weight = self.default.project(u, self.omega.to(u.dtype))
        with component(EXPONENTIALS):
            default = self.default.evaluate(projections, log_weight)
            if self.mixture == "zero_one":
                rest = self._default_rows(u, key).unsqueeze(-1) * default.unsqueeze(-2)
                return torch.cat((pairs.flatten(-2), rest.flatten(-2)), -1)
        return self._mixed([*pairs.unbind(-2), default], u, key)

    def _log_features(self, u: Tensor, key: bool) -> LogFeatures | None:
        if self.signed or self.pairs is not None:
            return None
        u = self.prepare("queries and keys", u, self.omega)
        log_modulus, _, log_weight = self._pairs(u, key)
        return LogFeatures(log_modulus.flatten(-2), log_weight)

    def _scaled_features(self, u: Tensor, key: bool) -> ScaledFeatures:
        u = self.prepare("queries and keys", u, self.omega)
        log_modulus, phase, log_weight = self._pairs(u, key)
        with component(EXPONENTIALS):
            modulus, largest = scaled_exp(log_modulus, (-2, -1))
            pairs = real_form(modulus, phase, key)
            log_scale = largest.squeeze(-1) + log_weight
        if self.mixture == "zero_one" and self.pairs is None:
            return ScaledFeatures(pairs.flatten(-2), log_scale)
        projections, log_weight = self.default.project(u, self.omega.to(u.dtype))
        with component(EXPONENTIALS):
            default = self.default.evaluate_scaled(projections, log_weight)
            if self.mixture == "zero_one":
                own = ScaledFeatures(pairs.flatten(-2), log_scale)
                return with_default(own, default, self._default_rows(u, key))
            bases = [ScaledFeatures(pair, log_scale) for pair in pairs.unbind(-2)]
            features, log_scale = common_scale([*bases, default])
        return ScaledFeatures(self._mixed(features, u, key), log_scale)

    def _pairs(self, u: Tensor, key: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return log-moduli and phases (..., L, p, m) of the bases of all pairs, and the log-weight
        (..., L, 1).

        With zero-one coefficients the log-moduli of other bases than the token's are -inf, or
        `lowest` if a token may have no base.
        """
        with component(PROJECTION), full_precision(u):
            moduli, imaginary = self._by_pair(u.dtype)
            log_modulus, phase = pair_logarithms(
                u, self.omega.to(u.dtype), moduli, imaginary, key=key, complex_a=self.complex_a
            )
            balance = self.balance.to(u.dtype)
            log_modulus = log_modulus + (balance if key else -balance)
            if self.mixture == "zero_one":
                nothing = -torch.inf if self.pairs is None else lowest(u.dtype)
                log_modulus = log_modulus.masked_fill(~self._chosen(u, key), nothing)
            half_square = half_squares(u)
        log_weight = -half_square if self.kernel == "gaussian" else torch.zeros_like(half_square)
        return log_modulus, phase, log_weight - 0.5 * math.log(self.num_features)

    def _chosen(self, u: Tensor, key: bool) -> Tensor:
        """Whether the token uses the base of a pair, (..., L, p, 1)."""
        own = self._nearest(u, key)
        # Pair (i, j) is used by queries of cluster i and by keys of cluster j.
        if self.pairs is not None:
            index = own.to(torch.uint8).argmax(-1)
            return (index.unsqueeze(-1) == self.pairs[..., int(key)].unsqueeze(-2)).unsqueeze(-1)
        across = own.unsqueeze(-2) if key else own.unsqueeze(-1)
        return across.expand(*own.shape[:-1], *self._clusters).flatten(-2).unsqueeze(-1)

    def _default_rows(self, u: Tensor, key: bool) -> Tensor:
        """Return the weights of the default base's features, (..., L, nq)."""
        assert self.pairs is not None
        own = self._nearest(u, key)
        return default_rows(own, self.pairs.long(), self._clusters, key=key).to(u.dtype)

    def _nearest(self, u: Tensor, key: bool) -> Tensor:
        """Return the cluster of each token, one-hot."""
        return nearest(u, (self.key_centers if key else self.query_centers).to(u.dtype))

    @property
    def _clusters(self) -> tuple[int, int]:
        return self.query_centers.shape[-2], self.key_centers.shape[-2]

    def _mixed(self, features: Sequence[Tensor], u: Tensor, key: bool) -> Tensor:
        """Return features of the p bases and the default base, weighted by the Gaussian
        coefficients."""
        rho = self._rho(u, key)
        with component(EXPONENTIALS):
            constants = [0.0] * self.num_pairs + [1.0]
            return compose(features, rho, constants, last_sign=-1.0 if key else 1.0)

    def _rho(self, u: Tensor, key: bool) -> list[Tensor]:
        """Return features of the p Gaussian coefficients: of B x / t, or of -S B^-1 y / t."""
        moduli, imaginary = self._by_pair(u.dtype)
        scale = moduli / self.lambda_scale
        if key:
            inverse = (1 / moduli) / self.lambda_scale
            scale = torch.where(imaginary, inverse, -inverse)
        # (p, d), or (heads, p, d), whose rows multiply tokens of that head.
        rows = scale.unbind(-2)
        return [
            self.lambda_map.queries(u * (row if self.heads is None else row.unsqueeze(-2)))
            for row in rows
        ]

    def _by_pair(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return |A| and where A is imaginary, (..., p, d)."""
        return self._table(self.moduli.to(dtype)), self._table(self.imaginary != 0)

    def _table(self, table: Tensor) -> Tensor:
        """Select the pairs with bases: (..., nq, nk, d) -> (..., p, d)."""
        return table.flatten(-3, -2) if self.pairs is None else of_pairs(table, self.pairs.long())
