"""What every feature map is: a pair of functions with queries(x).keys(y) ~ kernel(x, y)."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from attention.components import SCORE, component
from attention.construction import Rebuilt
from attention.joining import joined
from attention.kernels import check_kernel
from attention.options import check_count
from attention.precision import Float32Buffers, full_precision, working_dtype
from attention.scores import block_rows
from attention.streaming import Prepared, attend, bidirectional


class ScaledFeatures(NamedTuple):
    """Features as mantissa * exp(log_scale), so that no entry overflows.

    The scale is one number a token. Attention drops it for queries, where it cancels between
    numerator and denominator, and keeps it up to a constant common to all keys.
    """

    mantissa: Tensor
    """(..., L, F)"""
    log_scale: Tensor
    """(..., L, 1)"""


class LogFeatures(NamedTuple):
    """Logarithms of features, but for a log-weight common to a token."""

    logarithms: Tensor
    """(..., L, F)"""
    log_weight: Tensor
    """(..., L, 1)"""
    own: bool = False
    """Whether nobody else has the logarithms, so that their memory may be used again."""


def scaled_exp(logarithms: Tensor, dim: int | tuple[int, ...] = -1) -> ScaledFeatures:
    """exp(logarithms), the largest along `dim` as its scale: no mantissa is above 1."""
    # Detached: the scale cancels wherever it is dropped, so it carries no gradient.
    largest = logarithms.detach().amax(dim, keepdim=True)
    return ScaledFeatures((logarithms - largest).exp(), largest)


def scaled(features: Tensor) -> ScaledFeatures:
    """Features (..., L, F) by the largest of each token, in absolute value."""
    features = features.to(working_dtype(features.dtype))
    largest = features.detach().abs().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == 0, 1)
    return ScaledFeatures(features / largest, largest.log())


def scaled_token_scores(phi_q: ScaledFeatures, phi_k: ScaledFeatures) -> Tensor:
    """Token scores (..., S) where single features overflow, though their products do not.

    Features of all queries (..., L, F) exist at once, unlike in `FeatureMap.token_scores`.
    """
    with component(SCORE), full_precision(phi_k.mantissa):
        unit = phi_q.log_scale.detach().amax(-2, keepdim=True)
        total = (phi_q.mantissa * (phi_q.log_scale - unit).exp()).sum(-2).unsqueeze(-1)
        # In halves: their square can overflow where its product with small mantissas does not.
        half = (0.5 * (phi_k.log_scale + unit)).exp()
        return ((phi_k.mantissa @ total) * half * half).squeeze(-1)


class FeatureMap(Float32Buffers, Rebuilt):
    """Base of all maps: subclasses give `output_dim`, `queries`, and `redraw` where they draw.

    Maps are symmetric unless they override `keys` too. Those whose features can leave the dtype's
    range override `scaled_queries` (and `scaled_keys`). Features are computed in the map's dtype,
    and in float32 for float16 and bfloat16, autocast or not, where `queries` begins with `prepare`.
    Buffers are float32 at least: `.to(torch.bfloat16)` leaves them. `reset_parameters`, and a map
    that leaves the meta device, call the constructor again with the same arguments: random vectors
    must follow from these, such as a seed.

    Args:
        dim: d, dimension of queries and keys.
        num_features: m, number of random projection vectors (not F).
        kernel: "softmax" for exp(x.y), "gaussian" for exp(-|x-y|^2/2).
        heads: one set of random vectors (and of fitted parameters) a head, for inputs
            (..., heads, L, d); None: one set for all.

    Raises ValueError for numbers that are no integers or below 1, and another kernel; methods
    raise it for tokens whose shape, dtype or device does not fit.
    """

    signed: bool = False
    """Whether estimates of the kernel, or the kernel itself, can be negative."""
    own_kernel: bool = False
    """Whether the map has a kernel of its own, whatever `kernel` says."""

    def __init__(
        self, dim: int, num_features: int, *, kernel: str = "softmax", heads: int | None = None
    ) -> None:
        super().__init__()
        self.dim = check_count("dim", dim)
        self.num_features = check_count("num_features", num_features)
        self.heads = None if heads is None else check_count("heads", heads)
        check_kernel(kernel)
        self.kernel = kernel

    @property
    def output_dim(self) -> int:
        """F, length of a feature vector."""
        raise NotImplementedError

    def queries(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., F), real. `(queries(x) * keys(y)).sum(-1)` estimates kernel(x, y).

        These are the features themselves, which long tokens take out of the dtype's range: for the
        softmax kernel those of trig and of hybrids grow like exp(|x|^2 / 2), infinite in float32
        from |x| = 13.3 on, and positive ones shrink like exp(-|x|^2 / 2), all 0 soon after. What
        is made of them then is NaN. `attend` works with scaled features, for any length.
        """
        raise NotImplementedError

    def keys(self, y: Tensor) -> Tensor:
        """(..., d) -> (..., F), real; in range for as long tokens as those of `queries`."""
        return self.queries(y)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        """(..., L, d) -> the same features as `queries`, with their scale apart.

        As long as `queries` are in range; maps that are exponentials have a better way.
        """
        with full_precision(x):
            return scaled(self.queries(x))

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        """(..., L, d) -> the same features as `keys`, with their scale apart."""
        cls = type(self)
        if cls.keys is FeatureMap.keys or cls.scaled_queries is not FeatureMap.scaled_queries:
            return self.scaled_queries(y)
        with full_precision(y):
            return scaled(self.keys(y))

    def log_queries(self, x: Tensor) -> LogFeatures | None:
        """(..., L, d) -> logarithms of the features, of maps that are exponentials; else None.

        Attention then takes these and not `scaled_queries`: gradients stay numbers where all
        features of a query and a key are small together (see `attention.products`).
        """
        return None

    def log_keys(self, y: Tensor) -> LogFeatures | None:
        """(..., L, d) -> the same for keys."""
        return self.log_queries(y)

    def redraw(self, generator: torch.Generator) -> None:
        """Replace the random vectors by new ones drawn from `generator`. Forward never does.

        A map without buffers has none. Raises ValueError where they were given as a tensor.
        """
        if any(True for _ in self.buffers()):
            raise NotImplementedError(f"{type(self).__name__} must define redraw: it has buffers")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set data-dependent parameters from queries x and keys y (..., d); here there are none."""
        return self

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Sum over queries of the estimated kernel, for each key, in O(L F).

        x (..., Lq, d), y (..., Lk, d) -> (..., Lk). Column sums of the attention matrix before
        it is normalised, features made in blocks that fit the cache. No stabiliser can cancel in
        a sum over queries, so none is used: exp(|u|^2 / 2) must be representable for trigonometric
        features and hybrids with them, in float32 |u| below 13.3.
        """
        sums = []
        for part in self._blocks(x):
            phi_q = self.queries(part)
            with component(SCORE):
                sums.append(phi_q.sum(-2))
        with component(SCORE):
            total = sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)
            total = total.unsqueeze(-1)
        scores = []
        for part in self._blocks(y):
            phi_k = self.keys(part)
            with component(SCORE), full_precision(phi_k):
                scores.append((phi_k @ total).squeeze(-1))
        return joined(scores, -1)

    def attend(
        self,
        x: Tensor,
        y: Tensor,
        values: Tensor,
        *,
        causal: bool = False,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        """Attention with this kernel estimate, in O(L F dv) time and O(L) memory.

        x (..., L, d), y (..., S, d), values (..., S, dv) -> (..., L, dv) in the values' dtype.
        `causal`: query i sees keys 0..i, and L = S. key_mask (..., S) is True where a key takes
        part. Stabilised by a factor for each query and one for all keys (causal: for all keys up
        to the query), which cancel exactly. Signed maps' denominators follow the policy in
        `attention.denominators`.

        A query that sees no key gets zeros, and gives none of its gradient to anything.

        Raises:
            ValueError: shapes, dtypes or devices that do not fit.
        """
        return attend(self, x, y, values, causal=causal, key_mask=key_mask)

    def bidirectional(self, tokens: Prepared) -> Tensor:
        """`attend` of all queries over all keys, once tokens are checked: (..., L, dv).

        For a map that has a shorter way from tokens to this than its features.
        """
        return bidirectional(self, tokens)

    def check_attended(self, x: Tensor, y: Tensor, key_mask: Tensor | None = None) -> None:
        """Raise ValueError for tokens that attention with this map makes no sense for; here none.

        x (..., L, d), y (..., S, d) and key_mask (..., S) as in `attend`, checked already.
        """

    def _blocks(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Tokens (..., L, d) in blocks whose features fit the cache.

        One block where a compiler fuses by itself and may not know L.
        """
        if torch.compiler.is_compiling():
            return (tokens,)
        return tokens.split(block_rows(self.output_dim, tokens), -2)

    def prepare(self, argument: str, u: Tensor, like: Tensor) -> Tensor:
        """Tokens u (..., d) in the dtype that features are computed in, float32 at least.

        `like` is a tensor of the map's. Raises ValueError, by the name `argument`, for another
        last dimension, and for a dtype or device that does not go with it.
        """
        if u.shape[-1] != self.dim:
            raise ValueError(
                f"{argument} must have last dimension {self.dim}, got shape {tuple(u.shape)}"
            )
        if self.heads is not None and (u.ndim < 3 or u.shape[-3] != self.heads):
            raise ValueError(
                f"{argument} must have shape (..., {self.heads}, L, {self.dim}) for a map with "
                f"heads, got {tuple(u.shape)}"
            )
        if u.device != like.device:
            raise ValueError(
                f"{argument} must be on the map's device {like.device}, got {u.device}"
            )
        dtype = working_dtype(like.dtype)
        if working_dtype(u.dtype) != dtype:
            raise ValueError(
                f"{argument} must have the map's dtype {like.dtype}, got {u.dtype}; "
                "cast either with .to(dtype)"
            )
        return u.to(dtype)

    def _data(self, x: Tensor, y: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """x and y for `fit`, prepared and at least (L, d); raises where they give no statistics."""
        prepared = []
        for argument, u in (("x", x), ("y", y)):
            if u.numel() == 0 or not bool(u.isfinite().all()):
                raise ValueError(
                    f"fit needs at least one token in {argument} and finite entries, got shape "
                    f"{tuple(u.shape)}"
                )
            u = self.prepare(argument, u.detach(), like)
            prepared.append(u.unsqueeze(0) if u.ndim == 1 else u)
        return prepared[0], prepared[1]

    def extra_repr(self) -> str:
        heads = "" if self.heads is None else f", heads={self.heads}"
        return f"dim={self.dim}, num_features={self.num_features}, kernel={self.kernel!r}{heads}"
