"""Maps that are element-wise functions of random projections omega.u and of |u|^2."""

import math
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from attention import compiled
from attention.components import EXPONENTIALS, PROJECTION, component
from attention.denominators import divide
from attention.features.base import FeatureMap, ScaledFeatures
from attention.features.vectors import check_named, coupling_name, redraw_vectors
from attention.joining import joined
from attention.norms import half_squares
from attention.onednn import matmul
from attention.options import check_dtype, check_seed
from attention.precision import full_precision
from attention.projections import resolve_projection
from attention.streaming import Prepared, compiled_attention


class ProjectedFeatures(FeatureMap):
    """phi(u) = exp(a |u|^2/2) / sqrt(terms m) [f_1(p), ..., f_t(p)], p = B omega.u + b.

    A subclass defines the class constants, the two functions below, and `affine` if B is not 1 or b
    is not 0. The functions take projections instead of u, so that a hybrid can share one matrix
    product among its bases.

    Args:
        dim, num_features: d and m.
        kernel, projection, seed, heads, dtype, device: as in `MapOptions`. Without a projection the
            map has no random vectors; a hybrid supplies them.

    Raises ValueError for an unknown coupling, for a tensor of another shape, of integers or not
    finite, and for a seed or dtype of the wrong type.
    """

    functions_per_projection: int
    """t: F = t m"""
    compiled_as: ClassVar[str | None] = None
    """Functions f_1 to f_t as `attention.compiled` has them, if a class names them: it does not
    apply to subclasses, which may have other functions."""
    terms: ClassVar[int] = 1
    """The estimate is a mean over terms * m products."""
    norm_exponent: float
    """a, for the softmax kernel; it is a - 1 for the Gaussian kernel."""

    omega: Tensor | None
    """(m, d) or (heads, m, d)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor | None = "orthogonal",
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel, heads=heads)
        self.projection = coupling_name(projection)
        omega = None
        check_dtype(dtype)
        generator = torch.Generator().manual_seed(check_seed(seed))
        if projection is not None:
            omega = resolve_projection(
                "projection",
                projection,
                num_features,
                dim,
                generator,
                dtype,
                device,
                heads=heads,
            )
        self.register_buffer("omega", omega)
        self._draw_besides(generator, dtype, device)

    def _draw_besides(
        self,
        generator: torch.Generator,
        dtype: torch.dtype | None,
        device: torch.device | str | None,
    ) -> None:
        """Draw and register further random buffers after the omegas; by default none."""

    def affine(self, omega: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return B omega (..., m, d), and b or None: (m,), or (heads, 1, m) for a map with
        heads."""
        return omega, None

    def evaluate(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        """Return the features exp(log_weight) [f_1(p), ..., f_t(p)], concatenated along `dim`.

        projections has m entries along `dim`; log_weight has one and broadcasts.
        """
        parts = self.parts(projections, log_weight)
        return joined(parts, dim)

    def parts(self, projections: Tensor, log_weight: Tensor) -> tuple[Tensor, ...]:
        """Return the features as t separate tensors. Not used by maps that override `evaluate`."""
        raise NotImplementedError

    def write(self, out: Tensor, projections: Tensor, log_weight: Tensor) -> None:
        """Write the result of `parts`, bit-identical, into `out` (..., t m, L), with tokens in the
        last dimension and without gradients. For maps that are bases of hybrids."""
        raise NotImplementedError

    def log_size(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        """Return the logarithm of the largest possible feature, in the shape of log_weight; used
        with `parts`."""
        raise NotImplementedError

    def evaluate_scaled(
        self, projections: Tensor, log_weight: Tensor, dim: int = -1
    ) -> ScaledFeatures:
        """Return the features with mantissas of at most 1 in absolute value."""
        raise NotImplementedError

    def log_weight(self, half_square: Tensor) -> Tensor:
        """log of exp(a |u|^2/2) / sqrt(terms m); half_square is |u|^2 / 2."""
        constant = -0.5 * math.log(self.terms * self.num_features)
        return self._exponent * half_square + constant

    @property
    def _exponent(self) -> float:
        """Factor of |u|^2 / 2 in the log-weight."""
        return self.norm_exponent - (1.0 if self.kernel == "gaussian" else 0.0)

    @property
    def output_dim(self) -> int:
        return self.functions_per_projection * self.num_features

    def queries(self, x: Tensor) -> Tensor:
        projections, log_weight = self._project(x)
        with component(EXPONENTIALS):
            return self.evaluate(projections, log_weight)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        projections, log_weight = self._project(x)
        with component(EXPONENTIALS):
            return self.evaluate_scaled(projections, log_weight)

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Like `FeatureMap.token_scores`; compiled where Numba is installed."""
        omega = self.omega
        if torch.compiler.is_compiling() or vars(type(self)).get("compiled_as") is None:
            return super().token_scores(x, y)
        if omega is None or not compiled.scores_apply(x, y, omega):
            return super().token_scores(x, y)
        x, y = (self.prepare("queries and keys", u, omega) for u in (x, y))
        sources = tuple(self.buffers())
        describe = partial(self._described, omega)
        return compiled.token_scores(x, y, self, describe, sources, super().token_scores)

    def bidirectional(self, tokens: Prepared) -> Tensor:
        if self._is_compiled(tokens):
            return compiled_attention(self, tokens, partial(self._compiled, causal=False))
        return super().bidirectional(tokens)

    def causal(self, tokens: Prepared) -> Tensor:
        if self._is_compiled(tokens):
            return compiled_attention(self, tokens, partial(self._compiled, causal=True))
        return super().causal(tokens)

    def _is_compiled(self, tokens: Prepared) -> bool:
        if torch.compiler.is_compiling() or self.omega is None:
            return False
        known = vars(type(self)).get("compiled_as") in ("positive", "hyperbolic")
        return known and compiled.attention_applies(*tokens[:3], self.omega)

    def _compiled(self, tokens: Prepared, causal: bool) -> Tensor:
        """Attention by positive features without gradients."""
        omega = self.omega
        assert omega is not None
        numerator, denominator = compiled.attend_positive(
            self.prepare("queries", tokens.x, omega), self.prepare("keys", tokens.y, omega),
            tokens.values, tokens.visible, self, partial(self._described, omega),
            tuple(self.buffers()), causal=causal,
        )  # fmt: skip
        return divide(numerator, denominator, signed=False)

    def _described(self, omega: Tensor) -> compiled.Described:
        """Describe the map to `attention.compiled`."""
        return compiled.Described([self.compiled_base(*self.affine(omega))])

    def compiled_base(self, weight: Tensor, bias: Tensor | None) -> compiled.Base:
        """Describe features of B omega and b to `attention.compiled`."""
        assert self.compiled_as is not None
        return compiled.Base(self.compiled_as, weight, bias, self._exponent, self.terms)

    def redraw(self, generator: torch.Generator) -> None:
        check_named(self.projection)
        assert self.omega is not None
        redraw_vectors(self.omega, self.projection, generator)

    def project(self, u: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """Return B omega.u + b (..., m) and the log-weight (..., 1) of u (..., d), omega in its
        dtype."""
        with component(PROJECTION), full_precision(u):
            weight, bias = self.affine(omega)
            projections = matmul(u, weight.mT)
            if bias is not None:
                projections = projections + bias
            half_square = half_squares(u)
            return projections, self.log_weight(half_square)

    def _project(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """`project` of queries or keys (..., d), with the omegas of the map."""
        omega = self.omega
        assert omega is not None
        u = self.prepare("queries and keys", u, omega)
        return self.project(u, omega.to(u.dtype))
