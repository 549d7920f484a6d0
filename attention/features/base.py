"""Base class of feature maps: a pair of functions with queries(x).keys(y) ~ kernel(x, y)."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from attention.components import SCORE, component
from attention.construction import Rebuilt
from attention.joining import joined
from attention.kernels import check_kernel
from attention.options import check_count
from attention.packed import attend_packed
from attention.precision import Float32Buffers, full_precision, working_dtype
from attention.scores import block_rows
from attention.streaming import Prepared, attend, bidirectional, causal_form


class ScaledFeatures(NamedTuple):
    """Features as mantissa * exp(log_scale), so that no entry overflows.

    There is one scale per token. Attention drops it for queries, where it cancels between numerator
    and denominator, and keeps it for keys up to a common constant.
    """

    mantissa: Tensor
    """(..., L, F)"""
    log_scale: Tensor
    """(..., L, 1)"""


class LogFeatures(NamedTuple):
    """Logarithms of features, without a log-weight per token."""

    logarithms: Tensor
    """(..., L, F)"""
    log_weight: Tensor
    """(..., L, 1)"""
    own: bool = False
    """Whether the memory of the logarithms may be reused."""


def scaled_exp(logarithms: Tensor, dim: int | tuple[int, ...] = -1) -> ScaledFeatures:
    """Return exp(logarithms) with the largest along `dim` as the scale, so that no mantissa exceeds
    1."""
    # Detached: the scale cancels wherever it is dropped, so it has no gradient.
    largest = logarithms.detach().amax(dim, keepdim=True)
    return ScaledFeatures((logarithms - largest).exp(), largest)


def scaled(features: Tensor) -> ScaledFeatures:
    """Scale features (..., L, F) by the largest absolute value of each token."""
    features = features.to(working_dtype(features.dtype))
    largest = features.detach().abs().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == 0, 1)
    return ScaledFeatures(features / largest, largest.log())


def scaled_token_scores(phi_q: ScaledFeatures, phi_k: ScaledFeatures) -> Tensor:
    """Compute token scores (..., S) where single features may overflow but their products do not.

    Features of all queries (..., L, F) are in memory at once, unlike in `FeatureMap.token_scores`.
    """
    if phi_q.mantissa.shape[-2] == 0:
        return (phi_k.mantissa @ phi_q.mantissa.mT).sum(-1)
    with component(SCORE), full_precision(phi_k.mantissa):
        unit = phi_q.log_scale.detach().amax(-2, keepdim=True)
        total = (phi_q.mantissa * (phi_q.log_scale - unit).exp()).sum(-2).unsqueeze(-1)
        # In halves: the square can overflow where its product with small mantissas does not.
        half = (0.5 * (phi_k.log_scale + unit)).exp()
        return ((phi_k.mantissa @ total) * half * half).squeeze(-1)


class FeatureMap(Float32Buffers, Rebuilt):
    """Base class of all maps. Subclasses define `output_dim`, `queries` and, if they draw random
    vectors, `redraw`.

    Maps are symmetric unless they override `keys`. Maps whose features can leave the dtype's range
    override `scaled_queries` (and `scaled_keys`). If `queries` begins with `prepare`, features are
    computed in the map's dtype, and in float32 for float16 and bfloat16, with or without autocast.
    Buffers are at least float32: `.to(torch.bfloat16)` does not change them. `reset_parameters`,
    and a map that leaves the meta device, call the constructor again with the same arguments, so
    random vectors must be determined by them, for example by a seed.

    Args:
        dim: d, dimension of queries and keys.
        num_features: m, number of random projection vectors (not F).
        kernel: "softmax" for exp(x.y), "gaussian" for exp(-|x-y|^2/2).
        heads: number of heads, each with its random vectors and fitted parameters, for inputs (...,
            heads, L, d). None uses one set for all inputs.

    Raises ValueError for sizes that are not integers of at least 1 and for an unknown kernel.
    Methods raise it for tokens whose shape, dtype or device does not fit.
    """

    signed: bool = False
    """Whether estimates of the kernel, or the kernel itself, can be negative."""
    own_kernel: bool = False
    """Whether the map has a custom kernel, independent of `kernel`."""
    general: bool = True
    """Whether the map supports arbitrary queries and keys, such as those of neural networks."""
    projections: tuple[str, ...] | None = None
    """Names of the supported couplings; None for all of `available_projections()`."""

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
        """Return query features: (..., d) -> (..., F), real.

        `(queries(x) * keys(y)).sum(-1)` estimates kernel(x, y). The features are not scaled and can
        leave the dtype's range for long tokens: for the softmax kernel, features of trig and of
        hybrids grow like exp(|x|^2 / 2), infinite in float32 from |x| = 13.3 on, and positive
        features shrink like exp(-|x|^2 / 2) and underflow soon after. Results computed from them
        are then NaN. `attend` uses scaled features and supports any length.
        """
        raise NotImplementedError

    def keys(self, y: Tensor) -> Tensor:
        """Return key features: (..., d) -> (..., F), real, with the same range as those of
        `queries`."""
        return self.queries(y)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        """Return the features of `queries` for (..., L, d), with a separate scale.

        The default needs `queries` in range; maps of exponentials override it.
        """
        with full_precision(x):
            return scaled(self.queries(x))

    def scaled_keys(self, y: Tensor) -> ScaledFeatures:
        """Return the features of `keys` for (..., L, d), with a separate scale."""
        cls = type(self)
        if cls.keys is FeatureMap.keys or cls.scaled_queries is not FeatureMap.scaled_queries:
            return self.scaled_queries(y)
        with full_precision(y):
            return scaled(self.keys(y))

    def log_queries(self, x: Tensor) -> LogFeatures | None:
        """Return the logarithms of the features of queries (..., L, d) for maps of exponentials,
        else None.

        Attention uses them instead of `scaled_queries`: gradients stay finite where all features of
        a query and a key are small together (see `attention.products`).
        """
        return None

    def log_keys(self, y: Tensor) -> LogFeatures | None:
        """Return the logarithms of the features of keys (..., L, d), or None."""
        return self.log_queries(y)

    def redraw(self, generator: torch.Generator) -> None:
        """Replace the random vectors by new ones drawn from `generator`. No other method redraws
        them.

        A map without buffers has no random vectors. Raises ValueError if they were given as a
        tensor.
        """
        if any(True for _ in self.buffers()):
            raise NotImplementedError(f"{type(self).__name__} must define redraw: it has buffers")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set data-dependent parameters from queries x and keys y (..., d). The base class has
        none."""
        return self

    def token_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Sum the estimated kernel over queries for each key, in O(L F).

        x (..., Lq, d), y (..., Lk, d) -> (..., Lk). These are the column sums of the attention
        matrix before normalisation; features are computed in blocks that fit the cache. No
        stabiliser can cancel in a sum over queries, so none is used: exp(|u|^2 / 2) must be
        representable for trigonometric features and hybrids with them, in float32 |u| below 13.3.
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
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Compute attention with this kernel estimate, in O(L F dv) time and O(L) memory.

        x (..., L, d), y (..., S, d), values (..., S, dv) -> (..., L, dv) in the values' dtype.
        `causal`: query i sees keys 0..i, and L = S. key_mask (..., S) is True where a key takes
        part. segment_ids, integers (batch, L) or (L,), are for packed rows, instead of a mask:
        tokens see those with the same number; 0 is padding, whose output is zero. The features are
        stabilised by a factor per query and a factor for all keys (causal: for all keys up to the
        query), which cancel exactly. Signed maps' denominators follow the policy in
        `attention.denominators`.

        A query that sees no key gets an output of zeros and zero gradients.

        Raises:
            ValueError: if shapes, dtypes or devices do not fit.
        """
        if segment_ids is not None:
            return attend_packed(
                self.attend, x, y, values, segment_ids, causal=causal, key_mask=key_mask
            )
        return attend(self, x, y, values, causal=causal, key_mask=key_mask)

    def bidirectional(self, tokens: Prepared) -> Tensor:
        """`attend` of all queries over all keys for validated tokens: (..., L, dv).

        Overridden by maps that can compute it without their features.
        """
        return bidirectional(self, tokens)

    def causal(self, tokens: Prepared) -> Tensor:
        """`attend` of queries over the keys up to each for validated tokens: (..., L, dv).

        Overridden by maps that can compute it without their features.
        """
        return causal_form(self, tokens)[0]

    def check_attended(self, x: Tensor, y: Tensor, key_mask: Tensor | None = None) -> None:
        """Raise ValueError for tokens that this map does not support in attention; by default none.

        x (..., L, d), y (..., S, d) and key_mask (..., S) are as in `attend` and already validated.
        """

    def _blocks(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Split tokens (..., L, d) into blocks whose features fit the cache.

        There is a single block under a compiler, which fuses operations and may not know L.
        """
        if torch.compiler.is_compiling():
            return (tokens,)
        return tokens.split(block_rows(self.output_dim, tokens), -2)

    def prepare(self, argument: str, u: Tensor, like: Tensor) -> Tensor:
        """Validate tokens u (..., d) and convert them to the dtype of the computation, at least
        float32.

        `like` is a tensor of the map. Raises ValueError that names `argument` if the last
        dimension, dtype or device does not fit.
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
        """Validate x and y for `fit`, at least (L, d). Raises ValueError if they are empty or not
        finite."""
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
