"""Discretely induced features: products of powers of the coordinates.

f(u) = exp(-|u|^2/2) / sqrt(m) [prod_l u_l^w_l / sqrt(w_l! p(w_l))]  for the Gaussian kernel and
integers w_l drawn from p (Chefs' Random Tables section 3.2); the softmax kernel goes without the
exponential. Unbiased for entries of either sign. With a shift c, u is replaced by u - c, which does
not change the Gaussian kernel and makes features positive above c (section 3.2.3).
"""

import math
from typing import Self

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features.base import FeatureMap, ScaledFeatures, scaled_exp
from attention.features.parameters import average, given_parameter, holds, shape_parameter
from attention.features.vectors import EXPLICIT, check_named
from attention.options import check_generator
from attention.precision import full_precision, working_dtype
from attention.projections.registry import explicit_vectors
from attention.tracing import known

RESOLUTION = 2**53
"""Levels of the stored uniform numbers."""


class DiscreteFeatures(FeatureMap):
    """Base class of discretely induced features: F = m, signed. Subclasses define the distribution
    of the integers.

    The integers are quantiles of uniform numbers that are drawn once, so `fit` changes the
    parameter of the distribution and the integers together.

    Args:
        dim, num_features: d and m.
        kernel, seed, heads, dtype, device: as in `MapOptions`.
        projection: explicit integers (m, d), shared by all heads, or (heads, m, d), in which case
        `fit` changes neither them nor the parameter; or "iid". The default "orthogonal" of other
        maps
            is treated as "iid".
        parameter: parameter of the distribution, a number or (heads,). None is the optimum for unit
            vectors with equal entries until `fit` sets it; `fit` does not change a given parameter.

    Raises ValueError for another coupling, entries that are not non-negative integers, or a
    parameter out of range.
    """

    signed = True
    general = False  # signed powers of negative entries
    projections = ("iid", "orthogonal")
    parameter_name: str
    """Name of the parameter in the papers."""

    uniforms: Tensor | None
    """int64, shaped as omega: the uniform numbers are (uniforms + 0.5) / RESOLUTION."""
    omega: Tensor
    """w, int64, (m, d) or (heads, m, d): integers survive a cast to half precision."""
    parameter: Tensor
    """() or (heads, 1, 1); float32 at least"""
    shift: Tensor | None
    """c, (d,) or (heads, 1, d)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor | None = "orthogonal",
        parameter: float | Tensor | None = None,
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel, heads=heads)
        shape = (num_features, dim) if heads is None else (heads, num_features, dim)
        self.projection = EXPLICIT if isinstance(projection, Tensor) else "iid"
        if isinstance(projection, Tensor):
            vectors = explicit_vectors("projection", projection, num_features, dim, heads)
            omega = _integers(vectors)
            dtype = dtype or (projection.dtype if projection.is_floating_point() else None)
            device = projection.device if device is None else device
        elif projection in ("iid", "orthogonal"):
            omega = torch.zeros(shape, dtype=torch.int64, device="cpu")
            device = torch.get_default_device() if device is None else device
        else:
            raise ValueError(
                "projection must be integers, 'iid' or 'orthogonal', which means 'iid', for a map "
                f"with integer vectors, which are independent, got {projection!r}"
            )
        self._given = parameter is not None
        if parameter is None:
            equal = torch.full((dim,), 1 / dim, dtype=torch.float64, device="cpu")
            parameter = self._optimum(equal, equal.square())
        value = given_parameter(self.parameter_name, parameter, heads)
        self._check_parameter(value)
        dtype = working_dtype(dtype or torch.get_default_dtype())
        self.register_buffer("parameter", value.to(dtype=dtype, device=device))
        self.register_buffer("omega", omega.to(self.parameter.device))
        self.register_buffer("shift", None)
        named = self.projection != EXPLICIT
        self.register_buffer("uniforms", torch.zeros_like(self.omega) if named else None)
        if named:
            self.redraw(torch.Generator().manual_seed(seed))

    def _check_parameter(self, value: Tensor) -> None:
        """Raise ValueError for a parameter out of range."""
        raise NotImplementedError

    def _optimum(self, products: Tensor, square_products: Tensor) -> Tensor:
        """Return the optimal parameter from averages of |x_l y_l| and of x_l^2 y_l^2: (..., d) ->
        (...)."""
        raise NotImplementedError

    def _quantiles(self, uniform: Tensor, parameter: Tensor) -> Tensor:
        """Return the integers at uniform numbers in (0, 1), float64, for one parameter ()."""
        raise NotImplementedError

    def _log_normaliser(self, omega: Tensor, parameter: Tensor) -> Tensor:
        """-1/2 sum_l log(w_l! p(w_l)): omega (m, d) -> (m,), (heads, m, d) -> (heads, 1, m)."""
        raise NotImplementedError

    @property
    def output_dim(self) -> int:
        return self.num_features

    def queries(self, x: Tensor) -> Tensor:
        logarithms, signs, log_weight = self._logarithms(x)
        with component(EXPONENTIALS):
            return signs * (logarithms + log_weight).exp()

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        logarithms, signs, log_weight = self._logarithms(x)
        with component(EXPONENTIALS):
            mantissa, log_scale = scaled_exp(logarithms)
            return ScaledFeatures(signs * mantissa, log_weight + log_scale)

    def redraw(self, generator: torch.Generator) -> None:
        check_named(self.projection)
        check_generator(generator)
        assert self.uniforms is not None
        uniform = torch.rand(
            self.uniforms.shape, generator=generator, dtype=torch.float64, device=generator.device
        )
        self.uniforms.copy_((uniform * RESOLUTION).long())
        self._derive()

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set the parameter, unless given, to the optimum for the averages of the data, in O(Ld).

        x (..., Lx, d) and y (..., Ly, d); averages are over tokens and leading dimensions,
        separately for each head. In causal attention this uses future tokens: fit on other data.

        Raises ValueError if the data has no tokens or is not finite.
        """
        x, y = self._data(x, y, self.parameter)
        if self._given or self.uniforms is None:
            return self
        if self.shift is not None:
            x, y = x - self.shift, y - self.shift
        products = x.abs().mean(-2) * y.abs().mean(-2)
        squares = x.square().mean(-2) * y.square().mean(-2)
        optimum = self._optimum(*(average(t, self.heads, 1).double() for t in (products, squares)))
        self.parameter.copy_(shape_parameter(optimum, self.heads))
        self._derive()
        return self

    def check_attended(self, x: Tensor, y: Tensor, key_mask: Tensor | None = None) -> None:
        """Raise ValueError for negative queries or visible keys if there is no shift.

        Features change sign with them, and sums over keys are mostly noise. There is no check where
        values cannot be read, compiled or under `torch.vmap`.
        """
        if self.shift is not None:
            return
        for argument, u, mask in (("queries", x, None), ("keys", y, key_mask)):
            negative = (u < 0).any(-1)
            if known((negative if mask is None else negative & mask).any()):
                raise ValueError(
                    f"{argument} must not be negative in attention with features that are "
                    "signed powers, got negative entries; use the map's _plus form"
                )

    def _logarithms(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log|f| and sign (..., m), and the log-weight (..., 1) per token."""
        u = self.prepare("queries and keys", u, self.parameter)
        with component(PROJECTION), full_precision(u):
            omega, log_weight = self.omega, u.new_zeros(())
            shifted = u
            if self.shift is not None:
                shift = self.shift.to(u.dtype)
                shifted = u - shift
                log_weight = (u * shift).sum(-1, keepdim=True) - 0.5 * shift.square().sum(-1, True)
            if self.kernel == "gaussian":
                log_weight = -0.5 * shifted.square().sum(-1, keepdim=True)
            # Shifted away from zero: 0^0 is 1, and gradients there are finite and correct.
            step = shifted.new_full((), torch.finfo(u.dtype).tiny ** 0.5)
            shifted = shifted + torch.copysign(step, shifted.detach())
            normaliser = self._log_normaliser(omega.to(u.dtype), self.parameter.to(u.dtype))
            normaliser = normaliser - 0.5 * math.log(self.num_features)
            logarithms = shifted.abs().log() @ omega.to(u.dtype).mT + normaliser
            negative = (shifted.detach() < 0).to(u.dtype)
            signs = 1 - 2 * (negative @ omega.remainder(2).to(u.dtype).mT).remainder(2)
            return logarithms, signs, log_weight

    def _derive(self) -> None:
        """Compute the integers from the uniform numbers and the parameter, on the CPU in
        float64."""
        assert self.uniforms is not None
        if self.uniforms.is_meta:
            return
        uniform = (self.uniforms.cpu().double() + 0.5) / RESOLUTION
        parameter = self.parameter.cpu().double()
        if self.heads is None:
            omega = self._quantiles(uniform, parameter)
        else:
            omega = torch.stack(
                [self._quantiles(u, p.squeeze()) for u, p in zip(uniform, parameter, strict=True)]
            )
        self.omega.copy_(omega)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, projection={self.projection!r}"


def _integers(projection: Tensor) -> Tensor:
    """Return a validated copy of explicit integers."""
    integers = projection.detach().to(torch.int64, copy=True)
    if not holds((integers == projection) & (integers >= 0)):
        raise ValueError("projection must hold integers of 0 and above, got other entries")
    return integers
