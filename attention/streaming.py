"""Attention from tokens with features computed in blocks: nothing of size L x F is stored.

On a CPU the features of a block stay in the cache until they are used. Memory without gradients is
O(L d) instead of O(L F).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from attention import flash
from attention.causal import CHUNK, KeyBlock, QueryBlock, causal_blocks, chunk_rows
from attention.components import EXPONENTIALS, component
from attention.denominators import KeyStatistics, log_lower_bound
from attention.joining import joined, parts
from attention.linear import bidirectional_blocks
from attention.precision import product_dtype, working_dtype
from attention.products import LOG2_E, Features
from attention.sums import LinearAttentionState
from attention.token_checks import check_tokens, without_queries
from attention.tracing import may_write

CPU_BLOCK = 2**19
"""Number of feature entries computed at once on a CPU, for all heads together: 2 MiB in float32."""


class Scaled(Protocol):
    """Features as mantissa (..., L, F) and log-scale (..., L, 1)."""

    @property
    def mantissa(self) -> Tensor: ...
    @property
    def log_scale(self) -> Tensor: ...


class Logarithms(Protocol):
    """Logarithms (..., L, F) of features, without a log-weight (..., L, 1) per token."""

    @property
    def logarithms(self) -> Tensor: ...
    @property
    def log_weight(self) -> Tensor: ...
    @property
    def own(self) -> bool: ...


class Prepared(NamedTuple):
    """Validated inputs of attention; masked keys and their values are zeros."""

    x: Tensor
    """Queries (..., L, d), L above 0."""
    y: Tensor
    """Keys (..., S, d)."""
    values: Tensor
    """(..., S, dv), at least float32."""
    visible: Tensor | None
    """(..., S, 1) boolean if some keys are masked, else None."""
    log_bound: Tensor | None
    """(..., L, 1), `attention.denominators.log_lower_bound`, for signed maps of that kernel."""

    def queries(self, rows: int | None) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield x and log_bound in blocks of `rows` queries; None gives a single block."""
        return zip(parts(self.x, rows, -2), _parts(self.log_bound, rows), strict=False)

    def keys(self, rows: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield y, values and visible in blocks of `rows` keys; None gives a single block."""
        both = parts(self.y, rows, -2), parts(self.values, rows, -2)
        return zip(*both, _parts(self.visible, rows), strict=False)


def _parts(of_tokens: Tensor | None, rows: int | None) -> Iterable[Tensor | None]:
    return repeat(None) if of_tokens is None else parts(of_tokens, rows, -2)


class StreamedMap(Protocol):
    """The interface of a feature map that attention uses."""

    @property
    def kernel(self) -> str: ...
    @property
    def signed(self) -> bool: ...
    @property
    def own_kernel(self) -> bool: ...
    @property
    def heads(self) -> int | None: ...
    @property
    def output_dim(self) -> int: ...

    def check_attended(self, x: Tensor, y: Tensor, key_mask: Tensor | None = None) -> None: ...
    def scaled_queries(self, x: Tensor) -> Scaled: ...
    def scaled_keys(self, y: Tensor) -> Scaled: ...
    def log_queries(self, x: Tensor) -> Logarithms | None: ...
    def log_keys(self, y: Tensor) -> Logarithms | None: ...
    def bidirectional(self, tokens: Prepared) -> Tensor: ...
    def causal(self, tokens: Prepared) -> Tensor: ...


def prepared(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    values: Tensor,
    causal: bool,
    key_mask: Tensor | None,
    seen: KeyStatistics | None = None,
) -> Prepared | None:
    """Validate the inputs; None if there is no query. `seen` are the statistics of keys before y.
    Raises ValueError as `attend` does."""
    check_tokens(x, y, values, causal, key_mask)
    features.check_attended(x, y, key_mask)
    if x.shape[-2] == 0:
        return None
    visible = None if key_mask is None else key_mask.unsqueeze(-1)
    values = values.to(working_dtype(values.dtype))
    if visible is not None:
        # Masked tokens are replaced before their features are computed, so that a NaN there reaches
        # no gradient.
        y, values = y.masked_fill(~visible, 0), values.masked_fill(~visible, 0)
    log_bound = None
    if features.signed and not features.own_kernel:
        statistics = KeyStatistics.of(y.to(values.dtype), visible, causal)
        statistics = statistics if seen is None else statistics.after(seen)
        log_bound = log_lower_bound(features.kernel, x.to(values.dtype), statistics)
    return Prepared(x, y, values, visible, log_bound)


def attend(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    values: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    """See `FeatureMap.attend`. L = 0 gives (..., 0, dv); S = 0 with L > 0 raises ValueError.

    `torch.export` with causal=True unrolls the loop over chunks for a static length. With a dynamic
    length all tokens are processed at once, in O(L^2); decoding step by step (`attention.decoding`)
    takes O(L).
    """
    tokens = prepared(features, x, y, values, causal, key_mask)
    if tokens is None:
        return without_queries(x, y, values)
    attended = features.causal(tokens) if causal else features.bidirectional(tokens)
    return attended.to(values.dtype)


def bidirectional(features: StreamedMap, tokens: Prepared) -> Tensor:
    """See `FeatureMap.bidirectional`."""
    if some_at_once(features, tokens):
        return of_sequences(features, tokens, partial(_bidirectional, features))
    parts = _batches(tokens, features.output_dim)
    return joined([_bidirectional(features, part) for part in parts], 0)


def _bidirectional(features: StreamedMap, tokens: Prepared) -> Tensor:
    queries, keys = blocks(features, tokens, None)
    dtype = product_dtype(tokens.x, tokens.y)
    if dtype == torch.bfloat16:
        queries = ((_in(dtype, phi), floors) for phi, floors in queries)
        keys = ((_in(dtype, phi), scales, values) for phi, scales, values in keys)
    return bidirectional_blocks(queries, keys, features.signed, tokens.x.shape[-2])


def _in(dtype: torch.dtype, phi: Features) -> Features:
    return Features(phi.mantissa.to(dtype))


LONG = 512
"""Number of tokens from which on only some sequences and heads are processed at once: their blocks
are longer, and products of long blocks are faster than many products of short ones."""


def some_at_once(features: StreamedMap, tokens: Prepared) -> bool:
    """Whether `of_sequences` can be used and is faster."""
    x, y, values = tokens[:3]
    return (
        x.ndim > 2
        and x.shape[:-2] == y.shape[:-2] == values.shape[:-2]
        and features.heads is None
        and may_write(x, y, values)
        and x.device.type == "cpu"
        and x.shape[-2] >= LONG
        and not torch.jit.is_tracing()
    )


def of_sequences(
    features: StreamedMap, tokens: Prepared, attended: Callable[[Prepared], Tensor]
) -> Tensor:
    """Apply a function to some sequences and heads (N, L, .) at a time: (..., L, dv)."""
    leading, length = tokens.x.shape[:-2], tokens.x.shape[-2]
    size = max(1, CPU_BLOCK // (length * features.output_dim))
    apart = [
        repeat(None) if some is None else some.expand(*leading, -1, -1).flatten(0, -3).split(size)
        for some in tokens
    ]
    outputs = tokens.values.new_empty(*leading, length, tokens.values.shape[-1])
    for output, *some in zip(outputs.flatten(0, -3).split(size), *apart, strict=False):
        output.copy_(attended(Prepared(*some)))
    return outputs


def compiled_attention(
    features: StreamedMap, tokens: Prepared, attended: Callable[[Prepared], Tensor]
) -> Tensor:
    """Apply a compiled function to sequences one after the other, or, if there are threads, to all
    of them at the same time."""
    if torch.get_num_threads() == 1 and some_at_once(features, tokens):
        return of_sequences(features, tokens, attended)
    return attended(tokens)


def _batches(tokens: Prepared, width: int) -> Iterator[Prepared]:
    """Split a batch (batch, heads, L, d) into parts whose features fit the cache for CHUNK tokens.

    The batch is not split if `rows_at_once` is None or the tokens have another shape."""
    x, y, values = tokens[:3]
    unsplit = rows_at_once(width, x) is None  # first: an exported batch size may be dynamic
    if unsplit or x.ndim < 4 or not len(x) == len(y) == len(values):
        yield tokens
        return
    count = len(x)
    rows = min(CHUNK, max(x.shape[-2], y.shape[-2]))
    size = max(1, CPU_BLOCK // max(1, math.prod(x.shape[1:-2]) * rows * width))

    def split(some: Tensor | None) -> Iterable[Tensor | None]:
        if some is None or some.ndim < x.ndim or len(some) < count:
            return repeat(some)  # shared by the whole batch
        return parts(some, size, 0)

    of_all = (parts(some, size, 0) for some in (x, y, values))
    for part in zip(*of_all, *map(split, tokens[3:]), strict=False):
        yield Prepared(*part)


def causal_form(
    features: StreamedMap,
    tokens: Prepared,
    state: LinearAttentionState | None = None,
    *,
    in_turn: bool = True,
) -> tuple[Tensor, LinearAttentionState]:
    """Causal attention, including the keys in `state`: outputs (..., L, dv) and the next state.

    in_turn: whether long sequences may be processed some at a time.
    """
    kernel = flash.operator(*tokens[:3])
    if kernel is not None:
        (query,), (key,) = blocks(features, tokens, None)
        return flash.causal(kernel, query, key, features.signed, state)
    if not in_turn or not some_at_once(features, tokens):
        queries, keys = blocks(features, tokens, chunk_rows(tokens.x))
        return causal_blocks(queries, keys, features.signed, state)
    before = None if state is None else [entry.flatten(0, -3) for entry in state]
    after: list[LinearAttentionState] = []

    def causal(some: Prepared) -> Tensor:
        done, count = sum(len(each.mass) for each in after), len(some.x)
        start = None
        if before is not None:
            start = LinearAttentionState(*(entry[done : done + count] for entry in before))
        queries, keys = blocks(features, some, None)
        output, end = causal_blocks(queries, keys, features.signed, start, at_once=True)
        after.append(end)
        return output

    outputs = of_sequences(features, tokens, causal)
    entries = (
        torch.cat(some).unflatten(0, tokens.x.shape[:-2]) for some in zip(*after, strict=True)
    )
    return outputs, LinearAttentionState(*entries)


def blocks(
    features: StreamedMap, tokens: Prepared, chunk: int | None
) -> tuple[Iterator[QueryBlock], Iterator[KeyBlock]]:
    """Yield queries and keys for `causal_blocks` in chunks of `chunk` tokens, or in one chunk for
    None."""
    width = features.output_dim
    return (
        _query_blocks(features, tokens, rows_at_once(width, tokens.x), chunk),
        _key_blocks(features, tokens, rows_at_once(width, tokens.y), chunk),
    )


def features_of_queries(features: StreamedMap, x: Tensor) -> tuple[Features, Tensor]:
    """Compute the features of queries (..., L, d) and their log-scales (..., L, 1)."""
    logarithms = features.log_queries(x)
    return _apart(features.scaled_queries(x)) if logarithms is None else _exponentials(logarithms)


def features_of_keys(features: StreamedMap, y: Tensor) -> tuple[Features, Tensor]:
    """Compute the features of keys (..., L, d) and their log-scales (..., L, 1)."""
    logarithms = features.log_keys(y)
    return _apart(features.scaled_keys(y)) if logarithms is None else _exponentials(logarithms)


def _apart(phi: Scaled) -> tuple[Features, Tensor]:
    return Features(phi.mantissa), phi.log_scale


def _exponentials(phi: Logarithms) -> tuple[Features, Tensor]:
    with component(EXPONENTIALS):
        largest = phi.logarithms.detach().amax(-1, keepdim=True)
        log_scale = phi.log_weight + largest
        if torch.compiler.is_compiling():
            logarithms = phi.logarithms - largest
            return Features(logarithms.exp(), logarithms), log_scale
        # `exp2` takes a quarter of the time of `exp`, a thirtieth for subnormal results.
        out = phi.logarithms if phi.own and may_write(phi.logarithms, largest) else None
        scaled = torch.add(-LOG2_E * largest, phi.logarithms, alpha=LOG2_E, out=out)
        if out is not None:
            return Features(scaled.exp2_()), log_scale
        return Features(scaled.exp2(), phi.logarithms - largest), log_scale


def rows_at_once(width: int, tokens: Tensor) -> int | None:
    """Return the number of tokens, a multiple of CHUNK, to process at once if each needs `width`
    numbers.

    None, which means all, under a compiler, which fuses operations and may not know L, and on
    accelerators.
    """
    if torch.compiler.is_compiling() or tokens.device.type != "cpu":
        return None
    sequences = max(1, tokens.numel() // max(1, tokens.shape[-2] * tokens.shape[-1]))
    return CHUNK * max(1, CPU_BLOCK // (CHUNK * sequences * width))


def _query_blocks(
    features: StreamedMap, tokens: Prepared, rows: int | None, chunk: int | None
) -> Iterator[QueryBlock]:
    for x, bound in tokens.queries(rows):
        phi, log_scale = features_of_queries(features, x)
        # The floor is in units of the query's scale, which is left out of the numerator and the
        # denominator.
        floors = _parts(None if bound is None else bound - log_scale, chunk)
        # A loop, as newer versions of Dynamo do not compile `yield from`.
        for block in zip(phi.parts(chunk), floors, strict=False):  # noqa: UP028
            yield block


def _key_blocks(
    features: StreamedMap, tokens: Prepared, rows: int | None, chunk: int | None
) -> Iterator[KeyBlock]:
    for y, values, visible in tokens.keys(rows):
        phi, log_scale = features_of_keys(features, y)
        if visible is not None:
            log_scale = log_scale.masked_fill(~visible, -torch.inf)
        scales = parts(log_scale, chunk, -2)
        for block in zip(phi.parts(chunk), scales, parts(values, chunk, -2), strict=True):  # noqa: UP028
            yield block
