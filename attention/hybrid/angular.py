"""Angular hybrid features, linearised: an O(L) map whose error vanishes at angles 0 and pi.

estimate = L S1 + (1 - L) S2  (Hybrid Random Features eq 8, Lemma 2.3, section 2.4), where S1 is
good at large angles (hyperbolic), S2 at small ones (trig), and
L = 1/2 - (1/2n) sum_k sgn(tau_k.x) sgn(tau_k.y) estimates lambda = theta/pi.

The paper's imaginary units are real here: they only say that in S1's part the sign products enter
with a minus. With f(u) = [phi_1(u), phi_2(u)] / sqrt 2, its length T, and
r(u) = [1, sgn(tau_1.u), ..., sgn(tau_n.u)],

    query: f(x) (x) r(x)
    key:   C * (f(y) (x) r(y)),   C = 1 in column 0, then -1/n in the rows of phi_1, 1/n of phi_2.

A sum over queries never needs the outer products: it is the (T, n+1) matrix sum_i f(x_i) r(x_i)^T.
"""

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, SCORE, component
from attention.features import (
    FeatureMap,
    HyperbolicFeatures,
    PositiveFeatures,
    ProjectedFeatures,
    ScaledFeatures,
    TrigFeatures,
)
from attention.projections import resolve_projection

BASES: dict[str, type[ProjectedFeatures]] = {
    "hyperbolic": HyperbolicFeatures,
    "positive": PositiveFeatures,
    "trig": TrigFeatures,
}


class AngularHybrid(FeatureMap):
    """F = (t1 + t2) m (n + 1), signed; t is 2 for hyperbolic and trig, 1 for positive.

    Args:
        dim, num_features, kernel, seed, dtype, device: as in `ProjectedFeatures`.
        projection: name of a coupling, or an explicit tensor: (m, d) with shared projections,
            (2m, d) without, the first base's rows first.
        num_lambda_features: n, number of random vectors tau for the coefficient.
        lambda_projection: name of the taus' coupling or an explicit (n, d) tensor; default: as
            `projection` where that is a name, else orthogonal. Always independent of the omegas.
        shared_projections: both bases use the same omegas: fewer operations, and never a larger
            error (Theorem 3.1).
        base: (S1, S2), weighted by lambda and by 1 - lambda.
    """

    weight: Tensor
    """(m + n, d) or (2m + n, d): the omegas, then the taus, so that one product serves all."""
    coefficients: Tensor
    """C, (T, n + 1)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor = "orthogonal",
        seed: int = 0,
        num_lambda_features: int = 8,
        lambda_projection: str | Tensor | None = None,
        shared_projections: bool = True,
        base: tuple[str, str] = ("hyperbolic", "trig"),
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel)
        if num_lambda_features < 1:
            raise ValueError(f"num_lambda_features must be at least 1, got {num_lambda_features}")
        if len(base) != 2 or not set(base) <= set(BASES):
            raise ValueError(f"base must be two of {', '.join(sorted(BASES))}, got {tuple(base)!r}")
        if lambda_projection is None:
            lambda_projection = projection if isinstance(projection, str) else "orthogonal"
        self.num_lambda_features = num_lambda_features
        self.shared_projections = shared_projections
        self.base = (base[0], base[1])
        self.projection = projection if isinstance(projection, str) else "explicit"
        self.lambda_projection = (
            lambda_projection if isinstance(lambda_projection, str) else "explicit"
        )
        self._widths = tuple(BASES[name].functions_per_projection * num_features for name in base)
        generator = torch.Generator().manual_seed(seed)
        weight = self._draw(projection, lambda_projection, generator, dtype, device)
        self.register_buffer("weight", weight)
        self.register_buffer("coefficients", self._sign_coefficients(weight), persistent=False)

    @property
    def output_dim(self) -> int:
        return sum(self._widths) * (self.num_lambda_features + 1)

    def queries(self, x: Tensor) -> Tensor:
        features, signs = self._parts(*self._project(x))
        with component(EXPONENTIALS):
            return (features.unsqueeze(-1) * signs.unsqueeze(-2)).flatten(-2)

    def keys(self, y: Tensor) -> Tensor:
        features, signs = self._parts(*self._project(y))
        with component(EXPONENTIALS):
            products = features.unsqueeze(-1) * signs.unsqueeze(-2)
            return (products * self.coefficients).flatten(-2)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        features, log_scale, signs = self._scaled_parts(*self._project(x))
        with component(EXPONENTIALS):
            mantissa = (features.unsqueeze(-1) * signs.unsqueeze(-2)).flatten(-2)
        return ScaledFeatures(mantissa, log_scale)

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        features, log_scale, signs = self._scaled_parts(*self._project(y))
        with component(EXPONENTIALS):
            products = features.unsqueeze(-1) * signs.unsqueeze(-2)
            mantissa = (products * self.coefficients).flatten(-2)
        return ScaledFeatures(mantissa, log_scale)

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """As `FeatureMap.token_scores`, without the outer products: 2 L (n+1) T a side.

        Tokens run along the last dimension here, where slices by feature are contiguous, and
        queries and keys go through the element-wise work together: at IAP sizes the number of
        operations is the cost.
        """
        weight = self.weight
        self._check_input("x", x, weight)
        self._check_input("y", y, weight)
        with component(PROJECTION):
            tokens = torch.cat((x, y), -2).mT
            projections = weight @ tokens
            half_square = 0.5 * tokens.square().sum(-2, keepdim=True)
        features, signs = self._parts(projections, half_square, dim=-2)
        with component(SCORE):
            f_x, f_y = features.split((x.shape[-2], y.shape[-2]), -1)
            r_x, r_y = signs.split((x.shape[-2], y.shape[-2]), -1)
            received = self.coefficients * (f_x @ r_x.mT)
            return ((received @ r_y) * f_y).sum(-2)

    def redraw(self, generator: torch.Generator) -> None:
        if "explicit" in (self.projection, self.lambda_projection):
            raise ValueError(
                "redraw needs projections given by name; this map was given an explicit tensor"
            )
        weight = self.weight
        weight.copy_(
            self._draw(
                self.projection, self.lambda_projection, generator, weight.dtype, weight.device
            )
        )

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, num_lambda_features={self.num_lambda_features}, "
            f"shared_projections={self.shared_projections}, base={self.base}"
        )

    def _draw(
        self,
        projection: str | Tensor,
        lambda_projection: str | Tensor,
        generator: torch.Generator,
        dtype: torch.dtype | None,
        device: torch.device | str | None,
    ) -> Tensor:
        """Omegas above taus; an explicit tensor's dtype and device hold for both."""
        for given in (lambda_projection, projection):
            if isinstance(given, Tensor):
                dtype, device = dtype or given.dtype, device or given.device
        m, n, d = self.num_features, self.num_lambda_features, self.dim
        place = (generator, dtype, device)
        if self.shared_projections:
            omegas = [resolve_projection("projection", projection, m, d, *place)]
        elif isinstance(projection, str):
            omegas = [resolve_projection("projection", projection, m, d, *place) for _ in range(2)]
        else:
            omegas = [resolve_projection("projection", projection, 2 * m, d, *place)]
        taus = resolve_projection("lambda_projection", lambda_projection, n, d, *place)
        return torch.cat((*omegas, taus))

    def _sign_coefficients(self, like: Tensor) -> Tensor:
        """C, (T1 + T2, n + 1): what each product of a feature and a sign counts in the estimate."""
        first, second = self._widths
        column = torch.cat((like.new_full((first, 1), -1.0), like.new_ones(second, 1)))
        lambda_part = (column / self.num_lambda_features).expand(-1, self.num_lambda_features)
        return torch.cat((torch.ones_like(column), lambda_part), 1)

    def _project(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """(..., d) -> products with all random vectors (..., m + n) and |u|^2/2 (..., 1)."""
        weight = self.weight
        self._check_input("queries and keys", u, weight)
        with component(PROJECTION):
            return u @ weight.mT, 0.5 * u.square().sum(-1, keepdim=True)

    def _bases(
        self, projections: Tensor, half_square: Tensor, dim: int
    ) -> list[tuple[type[ProjectedFeatures], Tensor, Tensor]]:
        """For S1 and S2: class, its projections, its log-weight."""
        m = self.num_features
        starts = (0, 0) if self.shared_projections else (0, m)
        bases = []
        for name, start in zip(self.base, starts, strict=True):
            base = BASES[name]
            log_weight = base.log_weight(half_square, m, self.kernel, share=0.5)
            bases.append((base, projections.narrow(dim, start, m), log_weight))
        return bases

    def _signs(self, projections: Tensor, dim: int) -> Tensor:
        """r: a one and the signs of tau.u, with sgn(0) = 1, n + 1 entries along `dim`."""
        n = self.num_lambda_features
        taus = projections.narrow(dim, projections.shape[dim] - n, n)
        one = projections.new_ones(())
        signs = torch.copysign(one, taus.detach())
        return torch.cat((one.expand_as(signs.narrow(dim, 0, 1)), signs), dim)

    def _parts(
        self, projections: Tensor, half_square: Tensor, dim: int = -1
    ) -> tuple[Tensor, Tensor]:
        """f with T1 + T2 entries along `dim`, and r with n + 1."""
        with component(EXPONENTIALS):
            parts = [
                base.evaluate(p, log_weight, dim)
                for base, p, log_weight in self._bases(projections, half_square, dim)
            ]
            return torch.cat(parts, dim), self._signs(projections, dim)

    def _scaled_parts(
        self, projections: Tensor, half_square: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """f as mantissa and log-scale, one scale a token common to both bases, and r."""
        with component(EXPONENTIALS):
            (first, scale_1), (second, scale_2) = (
                base.evaluate_scaled(p, log_weight)
                for base, p, log_weight in self._bases(projections, half_square, -1)
            )
            log_scale = torch.maximum(scale_1, scale_2)
            mantissa = torch.cat(
                (first * (scale_1 - log_scale).exp(), second * (scale_2 - log_scale).exp()), -1
            )
            return mantissa, log_scale, self._signs(projections, -1)
