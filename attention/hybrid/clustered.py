"""Clustered hybrid: one complex exponential estimator for each pair of clusters.

For queries in nq clusters and keys in nk, the base S_ij has the diagonal A that is best at the
centres (r_i, s_j); coefficients choose among the bases (Hybrid Random Features, appendix H):

* "zero_one" (Definition H.2): lambda_ij = 1 for x in cluster i and y in cluster j, else 0. The
  estimate is that of the pair's own base; features are zero outside one block of rows.
* "gaussian" (Definition H.1): lambda_ij = exp(-|B x + S B^-1 y|^2 / (2 t^2)) with B = |A| and S the
  signs of A^2, a kernel estimated with taus, 1 at the centres; a default base takes the rest. The
  paper's square of a complex vector would make lambda exceed 1; moduli do not.
"""

import math
from typing import Any, Self

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features import FeatureMap, ScaledFeatures
from attention.hybrid.bipolar import BASES
from attention.hybrid.clusters import k_means, nearest
from attention.hybrid.composition import common_scale, compose
from attention.hybrid.general_gaussian import gaussian_features
from attention.precision import full_precision
from attention.projections import resolve_projection
from attention.theory.complex_exponential import optimal_diagonal

COEFFICIENTS = ("gaussian", "zero_one")


def _set_diagonals(hybrid: Any, _: object) -> None:
    """After loading a state: A follows the loaded centres."""
    hybrid._set_diagonals()


class ClusteredHybrid(FeatureMap):
    """F = nq nk t m for zero-one, nq nk R (t m + T) + T for Gaussian; t is 2 for complex A, else 1.

    Positive for zero-one with real A, else signed.

    Args:
        dim, num_features, kernel, projection, seed, heads, dtype, device: as in
            `ProjectedFeatures`. All bases share the omegas.
        query_centers, key_centers: (nq, d) and (nk, d), or (heads, ...); `fit` finds them by
            k-means (needs scikit-learn). Until then they are zero and every A is the identity.
        num_query_clusters, num_key_clusters: nq and nk; default 2, or those of the centres given.
        complex_a: A with imaginary entries, exact at the centres; False: real A, as in the
            paper's experiments.
        a_limits: least and largest |A_k|. An entry beyond is not exact at the centres, but one far
            from 1 multiplies how far points lie from them: (0.2, 5) does better on wide clusters.
        coefficients: "zero_one" or "gaussian"; the options below are of "gaussian" alone.
        num_lambda_features: n, number of random vectors tau.
        lambda_scale: t, width of the regions around the centres.
        lambda_features: "positive", or "trig", whose coefficient is exact at the centres.
        lambda_projection: as in `BipolarHybrid`.
        default_base: name of the base for what the coefficients leave, T features.
    """

    omega: Tensor
    query_centers: Tensor
    key_centers: Tensor
    moduli: Tensor
    """|A|, (nq, nk, d) or (heads, nq, nk, d)"""
    imaginary: Tensor
    """Where A is imaginary, of the same shape."""

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
        a_limits: tuple[float, float] = (1e-2, 1e2),
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
        if not lambda_scale > 0:
            raise ValueError(f"lambda_scale must be above 0, got {lambda_scale}")
        if not 0 < a_limits[0] <= 1 <= a_limits[1]:
            raise ValueError(f"a_limits must satisfy 0 < least <= 1 <= largest, got {a_limits}")
        self.complex_a = complex_a
        self.a_limits = a_limits
        self.signed = complex_a or coefficients == "gaussian"
        self.mixture = coefficients
        self.lambda_scale = lambda_scale
        self.seed = seed
        self.projection = projection if isinstance(projection, str) else "explicit"
        generator = torch.Generator().manual_seed(seed)
        place: tuple[Any, ...] = (generator, dtype, device, heads)
        omega = resolve_projection("projection", projection, num_features, dim, *place)
        self.register_buffer("omega", omega)
        for side, centers, number in (
            ("query", query_centers, num_query_clusters),
            ("key", key_centers, num_key_clusters),
        ):
            self.register_buffer(f"{side}_centers", self._checked_centers(side, centers, number))
        self._given = (query_centers is not None, key_centers is not None)
        self.register_buffer("moduli", None, persistent=False)
        self.register_buffer("imaginary", None, persistent=False)
        self._set_diagonals()
        self.register_load_state_dict_post_hook(_set_diagonals)
        if coefficients == "zero_one":
            return
        if num_lambda_features < 1:
            raise ValueError(f"num_lambda_features must be at least 1, got {num_lambda_features}")
        if lambda_projection is None:
            lambda_projection = self.projection if self.projection != "explicit" else "orthogonal"
        # Drawn after omega from the same generator, hence independent of it.
        taus = resolve_projection(
            "lambda_projection", lambda_projection, num_lambda_features, dim,
            generator, omega.dtype, omega.device, heads,
        )  # fmt: skip
        self.lambda_projection = (
            lambda_projection if isinstance(lambda_projection, str) else "explicit"
        )
        self.lambda_map = gaussian_features(
            lambda_features, dim, num_lambda_features, taus, seed, heads, None, None
        )
        self.default = BASES[default_base](
            dim, num_features, kernel=kernel, projection=None, heads=heads
        ).to(omega)

    @property
    def num_pairs(self) -> int:
        """p = nq nk."""
        return self.query_centers.shape[-2] * self.key_centers.shape[-2]

    @property
    def output_dim(self) -> int:
        width = (2 if self.complex_a else 1) * self.num_features
        if self.mixture == "zero_one":
            return self.num_pairs * width
        default, rho = self.default.output_dim, self.lambda_map.output_dim
        return self.num_pairs * rho * (width + default) + default

    def queries(self, x: Tensor) -> Tensor:
        features, log_scale = self._side(x, key=False)
        return features * log_scale.exp()

    def keys(self, y: Tensor) -> Tensor:
        features, log_scale = self._side(y, key=True)
        return features * log_scale.exp()

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        return self._side(x, key=False)

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        return self._side(y, key=True)

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Find the centres that were not given by k-means; needs scikit-learn.

        Queries x and keys y (..., d); for a map with heads, one clustering a head.
        """
        x, y = self._data(x, y, self.omega)
        for u, centers, given in (
            (x, self.query_centers, self._given[0]),
            (y, self.key_centers, self._given[1]),
        ):
            if given:
                continue
            if self.heads is None:
                centers.copy_(k_means(u.flatten(0, -2), centers.shape[-2], self.seed))
                continue
            for points, found in zip(u.movedim(-3, 0), centers, strict=True):
                found.copy_(k_means(points.flatten(0, -2), centers.shape[-2], self.seed))
        self._set_diagonals()
        if self.mixture == "gaussian":
            self.default.fit(x, y)
        return self

    def redraw(self, generator: torch.Generator) -> None:
        names = [self.projection]
        if self.mixture == "gaussian":
            names.append(self.lambda_projection)
        if "explicit" in names:
            raise ValueError(
                "redraw needs projections given by name; this map was given an explicit tensor"
            )
        buffers = [self.omega]
        if self.mixture == "gaussian":
            taus = self.lambda_map.omega
            assert isinstance(taus, Tensor)
            buffers.append(taus)
        for name, buffer in zip(names, buffers, strict=True):
            drawn = resolve_projection(
                "projection", name, buffer.shape[-2], self.dim,
                generator, buffer.dtype, buffer.device, self.heads,
            )  # fmt: skip
            buffer.copy_(drawn)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, clusters={self.query_centers.shape[-2]}x"
            f"{self.key_centers.shape[-2]}, complex_a={self.complex_a}, "
            f"coefficients={self.mixture!r}"
        )

    def _checked_centers(self, side: str, centers: Tensor | None, number: int | None) -> Tensor:
        """A copy beside omega, or zeros until `fit`."""
        if centers is None:
            number = 2 if number is None else number
            if number < 1:
                raise ValueError(f"num_{side}_clusters must be at least 1, got {number}")
            leading = () if self.heads is None else (self.heads,)
            return self.omega.new_zeros(*leading, number, self.dim)
        shape = tuple(centers.shape)
        number = shape[-2] if number is None and len(shape) > 1 else number
        allowed = (number, self.dim) if self.heads is None else (self.heads, number, self.dim)
        if shape != allowed:
            raise ValueError(f"{side}_centers must have shape {allowed}, got {shape}")
        return centers.detach().to(self.omega, copy=True)

    def _set_diagonals(self) -> None:
        """A for every pair of centres."""
        query, key = self.query_centers.unsqueeze(-2), self.key_centers.unsqueeze(-3)
        floor, cap = self.a_limits
        self.moduli = optimal_diagonal(query, key, complex_a=False, floor=floor, cap=cap)
        self.imaginary = (query * key > 0) & self.complex_a

    def _side(self, u: Tensor, key: bool) -> ScaledFeatures:
        """Features of queries or keys (..., L, d)."""
        u = self._prepare("queries and keys", u, self.omega)
        single = u.ndim == 1
        u = u.unsqueeze(0) if single else u
        features = self._zero_one(u, key) if self.mixture == "zero_one" else self._gaussian(u, key)
        return ScaledFeatures(*(part.squeeze(0) for part in features)) if single else features

    def _zero_one(self, u: Tensor, key: bool) -> ScaledFeatures:
        centers = (self.key_centers if key else self.query_centers).to(u.dtype)
        with component(PROJECTION), full_precision(u):
            chosen = nearest(u, centers)
        # Pair (i, j) is used by queries of cluster i and by keys of cluster j.
        across = chosen.unsqueeze(-2) if key else chosen.unsqueeze(-1)
        shape = (*chosen.shape[:-1], self.query_centers.shape[-2], self.key_centers.shape[-2])
        mantissa, log_scale = self._pairs(u, key, across.expand(shape).flatten(-2))
        return ScaledFeatures(mantissa.flatten(-2), log_scale)

    def _gaussian(self, u: Tensor, key: bool) -> ScaledFeatures:
        pairs = self._pairs(u, key)
        omega = self.omega.to(u.dtype)
        with component(PROJECTION), full_precision(u):
            weight, bias = self.default.affine(omega)
            projections = u @ weight.mT
            if bias is not None:
                projections = projections + bias
        with component(EXPONENTIALS):
            log_weight = self.default.log_weight(0.5 * u.square().sum(-1, keepdim=True))
            default = self.default.evaluate_scaled(projections, log_weight)
        # The default base has as many features as it likes, the pairs have equally many.
        (joined, rest), log_scale = common_scale(
            [ScaledFeatures(pairs.mantissa.flatten(-2), pairs.log_scale), default]
        )
        features = [*joined.unflatten(-1, pairs.mantissa.shape[-2:]).unbind(-2), rest]
        with component(EXPONENTIALS):
            rho = self._rho(u, key)
            heads = [0.0] * self.num_pairs + [1.0]
            composed = compose(features, rho, heads, last_sign=-1.0 if key else 1.0)
        return ScaledFeatures(composed, log_scale)

    def _rho(self, u: Tensor, key: bool) -> list[Tensor]:
        """Features of the p Gaussian coefficients: of B x / t, or of -S B^-1 y / t."""
        moduli, imaginary = self._by_pair(u.dtype)
        scale = moduli / self.lambda_scale
        if key:
            inverse = (1 / moduli) / self.lambda_scale
            scale = torch.where(imaginary, inverse, -inverse)
        # (p, d), or (heads, p, d), whose rows go against tokens of that head.
        rows = scale.unbind(-2)
        return [
            self.lambda_map.queries(u * (row if self.heads is None else row.unsqueeze(-2)))
            for row in rows
        ]

    def _by_pair(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """|A| and where A is imaginary, (..., p, d)."""
        return self.moduli.to(dtype).flatten(-3, -2), self.imaginary.flatten(-3, -2)

    def _pairs(self, u: Tensor, key: bool, chosen: Tensor | None = None) -> ScaledFeatures:
        """Complex exponential features of each pair: (..., L, p, t m), one scale a token.

        chosen (..., L, p) is True where a pair's features are not zero.
        """
        moduli, imaginary = self._by_pair(u.dtype)
        moduli = 1 / moduli if key else moduli
        omega = self.omega.to(u.dtype).unsqueeze(-3)
        with component(PROJECTION), full_precision(u):
            real_part = moduli.masked_fill(imaginary, 0)
            log_modulus = self._project(u, omega * real_part.unsqueeze(-2))
            squares = moduli.square()
            signed = torch.where(imaginary, -squares, squares)
            log_modulus = log_modulus - 0.5 * (u.square() @ signed.mT).unsqueeze(-1)
            if self.complex_a:
                # 1 / (i B) = -i / B.
                imaginary_part = moduli.masked_fill(~imaginary, 0)
                imaginary_part = -imaginary_part if key else imaginary_part
                phase = self._project(u, omega * imaginary_part.unsqueeze(-2))
            half_square = 0.5 * u.square().sum(-1, keepdim=True)
        with component(EXPONENTIALS):
            if chosen is not None:
                log_modulus = log_modulus.masked_fill(~chosen.unsqueeze(-1), -torch.inf)
            largest = log_modulus.detach().amax((-2, -1), keepdim=True)
            features = (log_modulus - largest).exp()
            if self.complex_a:
                # The estimate is Re(f g) = Re f Re g - Im f Im g.
                sine = -phase.sin() if key else phase.sin()
                features = torch.cat((features * phase.cos(), features * sine), -1)
        log_weight = -half_square if self.kernel == "gaussian" else torch.zeros_like(half_square)
        log_weight = log_weight - 0.5 * math.log(self.num_features)
        return ScaledFeatures(features, largest.squeeze(-1) + log_weight)

    def _project(self, u: Tensor, weight: Tensor) -> Tensor:
        """u (..., L, d), weight (..., p, m, d) -> (..., L, p, m)."""
        return (u @ weight.flatten(-3, -2).mT).unflatten(-1, weight.shape[-3:-1])
