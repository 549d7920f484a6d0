"""Hybrids of two bases and one coefficient, with a single product for all random vectors.

estimate = L S1 + (1 - L) S2  (Hybrid Random Features eq 8 with p = 1, Lemma 2.3), where L = a + s
rho(x).rho(y) estimates the coefficient. The paper's imaginary units are not needed: they only
express the minus sign of the products of rho. With the features of the bases f(u) = [phi_1(u),
phi_2(u)], T in all, and r(u) = [1, rho(u)],

    query: r(x) (x) f(x)
    key:   C * (r(y) (x) f(y)),   C = [a, s, ..., s] in the columns of phi_1,
                                  [1-a, -s, ..., -s] in those of phi_2.

f is the innermost dimension: element-wise products are fastest with long rows, and r has only R + 1
entries.

A sum over queries never needs the outer products: it is the (T, R+1) matrix sum_i f(x_i) r(x_i)^T.
Nor does attention of all queries over all keys (`attention.hybrid.factored`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from attention import compiled
from attention.components import EXPONENTIALS, PROJECTION, SCORE, component
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.features import FeatureMap, ProjectedFeatures, ScaledFeatures
from attention.features.vectors import EXPLICIT, check_named, coupling_name
from attention.hybrid.bases import (
    BASES,
    Projection,
    check_pair,
    draw_vectors,
    resolve_lambda_projection,
)
from attention.hybrid.coefficient import ProjectedCoefficient
from attention.hybrid.factored import Factors, factored_attention
from attention.hybrid.outer import outer_attention
from attention.norms import column_sums, half_squares
from attention.onednn import matmul
from attention.options import check_count, check_generator, check_two_of
from attention.precision import full_precision
from attention.relative import largest_entry
from attention.running import running_max
from attention.streaming import Prepared, causal_form, compiled_attention
from attention.tracing import may_write


def _refresh(hybrid: Any, _: object) -> None:
    """After loading a state, compute C from the loaded parameters."""
    hybrid.coefficients = hybrid._coefficients()


class BipolarHybrid(FeatureMap):
    """Base class of hybrids of two bases: F = T (R + 1), signed. A subclass defines the
    coefficient.

    Args:
        dim, num_features: d and m.
        coefficient: a coefficient without taus.
        other arguments: as in `HybridOptions`.

    Raises ValueError for unknown names, tensors of another shape, a coefficient without vectors, or
    two couplings for shared vectors.
    """

    signed = True
    compiled_as: ClassVar[str | None] = None
    """"signs" in a class whose coefficient is that of `attention.compiled`; not inherited."""

    weight: Tensor
    """(m + n, d) or (2m + n, d): the omegas, then the taus, so that one product serves all."""
    coefficients: Tensor
    """C, (T, R + 1) or (heads, T, R + 1)"""
    bases: Sequence[ProjectedFeatures]

    def __init__(
        self,
        dim: int,
        num_features: int,
        coefficient: ProjectedCoefficient,
        *,
        kernel: str = "softmax",
        projection: Projection = "orthogonal",
        seed: int = 0,
        lambda_projection: str | Tensor | None = None,
        shared_projections: bool = True,
        base: tuple[str, str] = ("hyperbolic", "trig"),
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel, heads=heads)
        check_two_of("base", base, BASES)
        check_count("num_lambda_features", coefficient.num_features)
        check_pair(projection, shared_projections)
        lambda_projection = resolve_lambda_projection(lambda_projection, projection)
        self.num_lambda_features = coefficient.num_features
        self.shared_projections = shared_projections
        self.base = (base[0], base[1])
        self.projection = EXPLICIT if isinstance(projection, Tensor) else projection
        self.lambda_projection = coupling_name(lambda_projection)
        bases: Any = nn.ModuleList(
            BASES[name](dim, num_features, kernel=kernel, projection=None, heads=heads)
            for name in base
        )
        self.bases = bases
        self.coefficient = coefficient
        self._widths = (self.bases[0].output_dim, self.bases[1].output_dim)
        self._plain = all(BASES[name].affine is ProjectedFeatures.affine for name in base)
        generator = torch.Generator().manual_seed(seed)
        weight = self._draw(projection, lambda_projection, generator, dtype, device)
        self.register_buffer("weight", weight)
        # The parameters of the bases and the coefficient are on the device of the random vectors.
        for part in (*self.bases, self.coefficient):
            part.to(device=weight.device, dtype=weight.dtype)
        self.register_buffer("coefficients", self._coefficients(), persistent=False)
        self.register_load_state_dict_post_hook(_refresh)

    @property
    def output_dim(self) -> int:
        return sum(self._widths) * (self.coefficient.width + 1)

    def queries(self, x: Tensor) -> Tensor:
        features, rho = self._parts(*self._project(x))
        with component(EXPONENTIALS):
            return _outer(rho, features).flatten(-2)

    def keys(self, y: Tensor) -> Tensor:
        features, rho = self._parts(*self._project(y))
        return self._weighted(features, rho)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        features, log_scale, rho = self._factors(x, -1)
        with component(EXPONENTIALS):
            return ScaledFeatures(_outer(rho, features).flatten(-2), log_scale)

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        features, log_scale, rho = self._factors(y, -1)
        return ScaledFeatures(self._weighted(features, rho), log_scale)

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Like `FeatureMap.token_scores`, without the outer products: 2 L (R+1) T operations per
        side.

        Tokens are in the last dimension, where slices by feature are contiguous, and queries and
        keys share the element-wise operations: at the sizes of implicit attention policies the
        number of operations determines the cost.
        """
        x = self.prepare("x", x, self.weight)
        y = self.prepare("y", y, self.weight)
        if self._known() and compiled.scores_apply(x, y, self.weight):
            sources = tuple(self.buffers())
            return compiled.token_scores(x, y, self, self._described, sources, self._scores)
        return self._scores(x, y)

    def _scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Token scores of prepared queries and keys in PyTorch."""
        if x.shape[:-2] != y.shape[:-2]:
            leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
            x, y = x.expand(*leading, -1, -1), y.expand(*leading, -1, -1)
        with component(PROJECTION), full_precision(x):
            tokens = torch.cat((x.mT, y.mT), -1)
            weight, bias = self._affine(x.dtype)
            projections = weight @ tokens
            if bias is not None:
                projections = projections + bias.unsqueeze(-1)
            half_square = 0.5 * column_sums(tokens.square())
        features, rho = self._parts(projections, half_square, dim=-2)
        with component(SCORE), full_precision(x):
            f_x, f_y = features.split((x.shape[-2], y.shape[-2]), -1)
            r_x, r_y = rho.split((x.shape[-2], y.shape[-2]), -1)
            received = self.coefficients.to(x.dtype) * (f_x @ r_x.mT)
            seen = received @ r_y
            seen = seen.mul_(f_y) if may_write(seen) else seen * f_y
            return column_sums(seen).squeeze(-2)

    def bidirectional(self, tokens: Prepared) -> Tensor:
        """Like `FeatureMap.bidirectional`, without outer products for values with dv < T."""
        if self._known() and compiled.attention_applies(*tokens[:3], self.weight):
            return compiled_attention(self, tokens, partial(self._compiled, causal=False))
        if tokens.values.shape[-1] < sum(self._widths):
            return factored_attention(partial(self._factors, dim=-1), self.coefficients, tokens)
        return outer_attention(partial(self._factors, dim=-2), self.coefficients, tokens)

    def causal(self, tokens: Prepared) -> Tensor:
        if self._known() and compiled.attention_applies(*tokens[:3], self.weight):
            return compiled_attention(self, tokens, partial(self._compiled, causal=True))
        # Some sequences at a time are not faster: features are cheap beside their products.
        return causal_form(self, tokens, in_turn=False)[0]

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Fit both bases and the coefficient to queries x and keys y (..., d)."""
        x, y = self._data(x, y, self.weight)
        for base in self.bases:
            base.fit(x, y)
        self.coefficient.fit(x, y)
        self.coefficients = self._coefficients()
        return self

    def redraw(self, generator: torch.Generator) -> None:
        check_named(self.projection, self.lambda_projection)
        check_generator(generator)
        place = self.weight.dtype, self.weight.device
        self.weight.copy_(self._draw(self.projection, self.lambda_projection, generator, *place))

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, num_lambda_features={self.num_lambda_features}, "
            f"shared_projections={self.shared_projections}, base={self.base}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast or move, and compute C again: a float32 1/n cast to float64 would not be 1/n."""
        super()._apply(fn, recurse)
        parts = {tensor.device for tensor in self.coefficient.buffers()}
        if parts <= {self.weight.device}:  # not while a module is moved between devices
            self.coefficients = self._coefficients()
        return self

    def _coefficients(self) -> Tensor:
        """Compute C on the device of the random vectors."""
        return self.coefficient.weights(*self._widths, self.weight)

    def _draw(
        self,
        projection: Projection,
        lambda_projection: str | Tensor,
        generator: torch.Generator,
        dtype: torch.dtype | None,
        device: torch.device | str | None,
    ) -> Tensor:
        """New `weight`."""
        return draw_vectors(
            projection,
            lambda_projection,
            self.num_features,
            self.num_lambda_features,
            self.dim,
            generator,
            dtype,
            device,
            self.heads,
            shared=self.shared_projections,
        )

    def _affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return one weight (..., rows, d) and bias (..., rows) for all random vectors.

        Bases that scale or shift their projections need separate rows, shared or not.
        """
        weight = self.weight.to(dtype)
        if self._plain:
            return weight, None
        m = self.num_features
        starts = (0, 0) if self.shared_projections else (0, m)
        weights, biases = [], []
        for base, start in zip(self.bases, starts, strict=True):
            omega = weight.narrow(-2, start, m)
            scaled, bias = base.affine(omega)
            weights.append(scaled)
            if bias is None:
                bias = omega.new_zeros(omega.shape[:-1])
            biases.append(bias.reshape(omega.shape[:-1]))
        n = self.num_lambda_features
        taus = weight.narrow(-2, -n, n)
        weights.append(taus)
        biases.append(taus.new_zeros(taus.shape[:-1]))
        return torch.cat(weights, -2), torch.cat(biases, -1)

    def _known(self) -> bool:
        """Whether `attention.compiled` may know the features."""
        if torch.compiler.is_compiling():
            return False
        return vars(type(self)).get("compiled_as") == "signs"

    def _compiled(self, tokens: Prepared, causal: bool) -> Tensor:
        """Attention without gradients."""
        read = compiled.attend_signs(
            self.prepare("queries", tokens.x, self.weight),
            self.prepare("keys", tokens.y, self.weight),
            tokens.values, tokens.visible, self, self._described, tuple(self.buffers()),
            causal=causal,
        )  # fmt: skip
        floor = rounding_floor(read.size, read.mass)
        bound = None if tokens.log_bound is None else tokens.log_bound - read.log_scale
        denominator = raised(read.denominator, bound, read.reference, floor)
        ratio = divide(read.numerator, denominator, signed=True)
        largest = largest_entry(tokens.values)
        return bounded(ratio, running_max(largest, -2) if causal else largest.amax(-2, True))

    def _described(self) -> compiled.Described:
        """Describe the hybrid to `attention.compiled`."""
        m, n = self.num_features, self.num_lambda_features
        starts = (0, 0) if self.shared_projections else (0, m)
        bases = [
            base.compiled_base(*base.affine(self.weight.narrow(-2, start, m)))
            for base, start in zip(self.bases, starts, strict=True)
        ]
        return compiled.Described(bases, self.weight.narrow(-2, -n, n), self.coefficients)

    def _project(self, u: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
        """Return the products of (..., L, d) with all random vectors (..., L, rows) and |u|^2/2
        (..., L, 1); for dim -2 (..., rows, L) and (..., 1, L)."""
        u = self.prepare("queries and keys", u, self.weight)
        with component(PROJECTION), full_precision(u):
            weight, bias = self._affine(u.dtype)
            half_square = half_squares(u)
            if dim == -2:
                projections = matmul(weight, u.mT)
                bias = None if bias is None else bias.unsqueeze(-1)
                half_square = half_square.mT
            else:
                projections = matmul(u, weight.mT)
                bias = bias if bias is None or self.heads is None else bias.unsqueeze(-2)
            return projections if bias is None else projections + bias, half_square

    def _bases(
        self, projections: Tensor, half_square: Tensor, dim: int
    ) -> list[tuple[ProjectedFeatures, Tensor, Tensor]]:
        """Return the map, its projections and its log-weight for S1 and S2."""
        m = self.num_features
        shared = self.shared_projections and self._plain
        first, second = (projections.narrow(dim, start, m) for start in (0, 0 if shared else m))
        if dim == -1:
            # Element-wise functions are several times slower on non-contiguous rows.
            first = first.contiguous()
            second = first if shared else second.contiguous()
        return [
            (base, omegas, base.log_weight(half_square))
            for base, omegas in zip(self.bases, (first, second), strict=True)
        ]

    def _rho(self, projections: Tensor, half_square: Tensor, dim: int) -> Tensor:
        """Return r: 1 and rho, R + 1 entries along `dim`."""
        n = self.num_lambda_features
        taus = projections.narrow(dim, -n, n)
        rho = self.coefficient.evaluate(taus, half_square, dim)
        one = projections.new_ones(()).expand_as(half_square)
        return torch.cat((one, rho), dim)

    def _parts(
        self, projections: Tensor, half_square: Tensor, dim: int = -1
    ) -> tuple[Tensor, Tensor]:
        """Return f with T entries along `dim`, and r with R + 1."""
        with component(EXPONENTIALS):
            features = self._features(self._bases(projections, half_square, dim), dim)
            return features, self._rho(projections, half_square, dim)

    def _features(self, bases: list[tuple[ProjectedFeatures, Tensor, Tensor]], dim: int) -> Tensor:
        """Compute f of maps with their projections and log-weights."""
        projections = bases[0][1]
        if dim == -1 or not may_write(projections):
            return torch.cat([part for base, *given in bases for part in base.parts(*given)], dim)
        features = projections.new_empty(
            (*projections.shape[:-2], sum(self._widths), projections.shape[-1])
        )
        for (base, *given), out in zip(bases, features.split(self._widths, -2), strict=True):
            base.write(out, *given)
        return features

    def _factors(self, u: Tensor, dim: int) -> Factors:
        """Compute f and r of queries or keys (..., L, d), with one scale per token for both bases.

        dim: dimension of their entries, -2 before the tokens or -1 after them.
        """
        projections, half_square = self._project(u, dim)
        with component(EXPONENTIALS):
            bases = self._bases(projections, half_square, dim)
            sizes = [base.log_size(p, log_weight, dim) for base, p, log_weight in bases]
            log_scale = torch.maximum(*sizes).detach()
            scaled = [(base, p, log_weight - log_scale) for base, p, log_weight in bases]
            features = self._features(scaled, dim)
            return Factors(features, log_scale, self._rho(projections, half_square, dim))

    def _weighted(self, features: Tensor, rho: Tensor) -> Tensor:
        """Return C * (r (x) f), flattened: (..., L, F)."""
        with component(EXPONENTIALS):
            # C has equal weights in the R rows of rho, so it is applied to T entries per token
            # instead of T (R + 1).
            products = _outer(rho, features * self._row(1, features))
            products[..., 0, :] = features * self._row(0, features)
            return products.flatten(-2)

    def _row(self, index: int, features: Tensor) -> Tensor:
        """Return the factor of f in a row of r (x) f: (T,) or (heads, 1, T)."""
        row = self.coefficients[..., index].to(features.dtype)
        return row.unsqueeze(-2) if row.ndim == 2 else row


def _outer(rho: Tensor, features: Tensor) -> Tensor:
    """(..., R + 1) and (..., T) -> (..., R + 1, T)."""
    return rho.unsqueeze(-1) * features.unsqueeze(-2)
