"""Token scores and attention compiled by Numba where it is installed (extra `fast`).

The forward and the backward pass compute features in blocks that stay in the cache
(`attention.compiled_kernels`), and save queries, keys and one sum per feature, instead of features
of all tokens. Results and gradients are those of plain PyTorch to about 1e-6 of the largest, which
is the order of rounding errors in either. A sequence's result does not depend on its batch. Without
gradients, attention by these maps is compiled, too, except by `trig`.

It applies on the CPU in float32, for token scores up to 16 dimensions. Compilers, exports, traces,
transforms such as `torch.vmap`, and second derivatives use plain PyTorch. The environment variable
`FOVEATE_NUMBA=0` turns it off.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from operator import is_
from threading import Thread
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from attention.components import is_watched
from attention.tracing import fixed_shape, is_plain

LARGEST_DIM = 16
"""Largest d: for longer queries and keys matrix products dominate, in which PyTorch is as fast."""
LEAST_LENGTH = 512
"""Least number of queries and keys together whose attention is compiled."""
_KINDS = {"positive": (0, 1), "hyperbolic": (1, 2), "trig": (2, 2)}
"""Number of each kind in `attention.compiled_kernels`, and its functions per projection."""
_WORTH_THREADS = 2**22
"""Number of features per thread from which on starting threads pays."""

Plain = Callable[[Tensor, Tensor], Tensor]


class Base(NamedTuple):
    """Features exp(exponent |u|^2 / 2) / sqrt(terms m) f(p), where p = weight.u + bias."""

    kind: str
    """The elementwise functions f: a key of `_KINDS`."""
    weight: Tensor
    """(m, d) or (heads, m, d)"""
    bias: Tensor | None
    """(m,) or (heads, 1, m)"""
    exponent: float
    terms: int


class Described(NamedTuple):
    """A map or hybrid."""

    bases: list[Base]
    taus: Tensor | None = None
    """Random vectors of an angular coefficient, (n, d) or (heads, n, d)."""
    coefficients: Tensor | None = None
    """C of a hybrid, (T, n + 1) or (heads, T, n + 1)."""


def scores_apply(x: Tensor, y: Tensor, like: Tensor) -> bool:
    """Whether scores of queries x and keys y, by random vectors `like`, are computed compiled."""
    return like.shape[-1] <= LARGEST_DIM and _applies(x, y, like) and not _learned(like)


def attention_applies(x: Tensor, y: Tensor, values: Tensor, like: Tensor) -> bool:
    """Whether attention without gradients is computed compiled."""
    return (
        x.shape[-2] + y.shape[-2] >= LEAST_LENGTH
        and x.shape[:-2] == y.shape[:-2] == values.shape[:-2]
        and _applies(x, y, values, like)
        and not _learned(x, y, values, like)
    )


def _learned(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _applies(*tensors: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and all(map(_is_simple, tensors))
        and (_recording or not torch.jit.is_tracing())
        and not is_watched()
        and not is_in_torch_dispatch_mode()
        and is_plain(*tensors)
        and os.environ.get("FOVEATE_NUMBA") != "0"
        and _kernels() is not None
    )


@contextmanager
def recording() -> Iterator[None]:
    """Context manager for traces that run in this process only: they call the kernels, too."""
    global _recording
    before, _recording = _recording, True
    try:
        yield
    finally:
        _recording = before


_recording = False


def token_scores(
    x: Tensor,
    y: Tensor,
    owner: nn.Module,
    describe: Callable[[], Described],
    sources: tuple[Tensor, ...],
    plain: Plain,
) -> Tensor:
    """Compute scores (..., S) of queries x (..., L, d) and keys y (..., S, d), with gradients.

    Args:
        x, y: tokens in float32.
        owner: the map.
        describe: describes it.
        sources: the tensors that the description depends on; it is computed again if they change.
        plain: computes the same in PyTorch, for second derivatives.
    """
    (*leading, _, _), (*others, _, _) = fixed_shape(x), fixed_shape(y)
    if leading != others:
        leading = [*torch.broadcast_shapes(leading, others)]
        x, y = (u.expand(*leading, -1, -1) for u in (x, y))
    images = math.prod(leading)
    flat = (x, y) if len(leading) == 1 else (u.reshape(images, *u.shape[-2:]) for u in (x, y))
    queries, keys = (u.mT.contiguous() for u in flat)
    given = _arguments(owner, describe, sources)
    if torch.jit.is_tracing():
        scores = _operators().token_scores(queries, keys, *given.tensors)
    elif torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):

        def plain_rows(x: Tensor, y: Tensor) -> Tensor:
            x, y = (u.mT.reshape(*leading, *u.mT.shape[-2:]) for u in (x, y))
            return plain(x, y).reshape(images, 1, y.shape[-2])

        scores = _Scores.apply(queries, keys, given, plain_rows)
    else:
        scores, _ = _forward(queries, keys, given)
    return scores.squeeze(1) if len(leading) == 1 else scores.reshape(*leading, scores.shape[-1])


def _forward(x: Tensor, y: Tensor, given: "_Arguments") -> tuple[Tensor, Tensor]:
    """Scores (N, 1, S) of queries (N, d, L) and keys (N, d, S), and sums over queries (N, T, n +
    1)."""
    received = x.new_zeros(len(x), *given.tensors.coefficients.shape[1:])
    scores = x.new_empty(len(y), 1, y.shape[-1])
    _run("scores", (x, y), given.arrays, (received, scores), *given.work(x, y))
    return scores, received


def _recorded_scores(x: Tensor, y: Tensor, *of_map: Tensor) -> Tensor:
    return _forward(x, y, _Arguments(_Tensors(*of_map)))[0]


@cache
def _operators() -> Any:
    """The kernels without gradients as operators, which traces record."""
    library = torch.library.Library("foveate", "FRAGMENT")
    of_map = ", ".join(f"Tensor {name}" for name in _Tensors._fields)
    library.define(f"token_scores(Tensor x, Tensor y, {of_map}) -> Tensor")
    library.impl("token_scores", _recorded_scores, "CPU")
    results = ", ".join(["Tensor"] * len(Read._fields))
    library.define(
        f"attend_signs(Tensor x, Tensor y, Tensor values, Tensor hidden, {of_map}, "
        f"bool causal) -> ({results})"
    )
    library.impl("attend_signs", _recorded(_signs), "CPU")
    library.define(
        f"attend_positive(Tensor x, Tensor y, Tensor values, Tensor hidden, {of_map}, "
        "bool causal) -> (Tensor, Tensor)"
    )
    library.impl("attend_positive", _recorded(_positive), "CPU")
    _libraries.append(library)
    return torch.ops.foveate


_libraries: list[Any] = []  # operators exist as long as their library


class Read(NamedTuple):
    """Sums that queries read, in units of exp(log_scale + reference), without gradients."""

    numerator: Tensor
    """(..., L, dv)"""
    denominator: Tensor
    """(..., L, 1)"""
    log_scale: Tensor
    """(..., L, 1), scale of the features of queries."""
    size: Tensor
    """(..., L, 1), |phi| of queries in units of exp(log_scale)."""
    mass: Tensor
    """(..., 1 or L, 1), sum of |phi| over keys in units of exp(reference)."""
    reference: Tensor
    """(..., 1 or L, 1)"""


BITS = 4
"""Number of signs of a pattern: tokens of 16 patterns are summed apart."""


def attend_signs(
    x: Tensor,
    y: Tensor,
    values: Tensor,
    visible: Tensor | None,
    owner: nn.Module,
    describe: Callable[[], Described],
    sources: tuple[Tensor, ...],
    *,
    causal: bool,
) -> Read:
    """Sums that queries read in attention by an angular hybrid, without gradients.

    Args:
        x, y, values: (..., L, d), (..., S, d), (..., S, dv).
        visible: (..., S, 1), or None if all keys are.
        owner, describe, sources: as in `token_scores`.
    """
    arguments = _arguments(owner, describe, sources)
    return Read(*_attended("attend_signs", _signs, x, y, values, visible, arguments, causal))


def _attended(
    name: str, run: "_Attention", x: Tensor, y: Tensor, values: Tensor, visible: Tensor | None,
    given: "_Arguments", causal: bool,
) -> list[Tensor]:  # fmt: skip
    """What `run`, or where it is traced the operator `name`, returns for x (N, L, d), y (N, S, d),
    values (N, S, dv) and hidden keys (N, S), or (N, 0) if none is, with the leading dimensions of
    x."""
    *leading, _, _ = fixed_shape(x)
    images = math.prod(leading)
    x, y, values = (
        t.detach().reshape(images, *fixed_shape(t)[-2:]).contiguous() for t in (x, y, values)
    )
    if visible is None:
        hidden = torch.zeros(images, 0, dtype=torch.bool)
    else:
        hidden = ~visible.expand(*leading, -1, -1).reshape(images, -1)
    if torch.jit.is_tracing():
        operator = getattr(_operators(), name)
        numerator, *others = operator(x, y, values, hidden, *given.tensors, causal)
    else:
        numerator, *others = run(x, y, values, hidden, given, causal)
    return [
        numerator.reshape(*leading, *fixed_shape(numerator)[-2:]),
        *(tensor.reshape(*leading, -1, 1) for tensor in others),
    ]


def _signs(
    x: Tensor, y: Tensor, values: Tensor, hidden: Tensor, given: "_Arguments", causal: bool
) -> tuple[Tensor, ...]:
    """The entries of `Read` for x (N, L, d), y (N, S, d), values (N, S, dv) and hidden (N, S)."""
    images, length, _ = x.shape
    each, all_ = (length,), (length,) if causal else ()
    shapes = (length, values.shape[-1]), each, each, each, all_, all_
    out = [values.new_zeros(images, *shape) for shape in shapes]
    name = "causal_signs" if causal else "attend_signs"
    _run(name, (x, y, values, hidden), [*given.arrays, BITS], out, *given.work(x, y))
    return tuple(out)


def attend_positive(
    x: Tensor,
    y: Tensor,
    values: Tensor,
    visible: Tensor | None,
    owner: nn.Module,
    describe: Callable[[], Described],
    sources: tuple[Tensor, ...],
    *,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """Numerators (..., L, dv) and denominators (..., L, 1), in units of `products.key_unit`, of
    attention by positive features without gradients. Arguments are those of `attend_signs`."""
    given = _arguments(owner, describe, sources)
    numerator, denominator = _attended(
        "attend_positive", _positive, x, y, values, visible, given, causal
    )
    return numerator, denominator


def _positive(
    x: Tensor, y: Tensor, values: Tensor, hidden: Tensor, given: "_Arguments", causal: bool
) -> tuple[Tensor, Tensor]:
    images, length, _ = x.shape
    out = values.new_zeros(images, length, values.shape[-1]), values.new_zeros(images, length)
    work = given.work(x, y)
    _run("attend_positive", (x, y, values, hidden), [*given.arrays, causal], out, *work)
    return out


_Attention = Callable[[Tensor, Tensor, Tensor, Tensor, "_Arguments", bool], tuple[Tensor, ...]]


def _recorded(run: _Attention) -> Callable[..., tuple[Tensor, ...]]:
    """`run` as an operator, whose arguments are tensors."""

    def operator(
        x: Tensor, y: Tensor, values: Tensor, hidden: Tensor, *of_map: Any
    ) -> tuple[Tensor, ...]:
        return run(x, y, values, hidden, _Arguments(_Tensors(*of_map[:-1])), of_map[-1])

    return operator


class _Scores(torch.autograd.Function):
    """Autograd function of queries (N, d, L) and keys (N, d, S): (N, 1, S)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, given: "_Arguments", plain: Plain) -> Tensor:
        scores, received = _forward(x, y, given)
        ctx.save_for_backward(x, y, received)
        ctx.given, ctx.plain = given, plain
        return scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, received = ctx.saved_tensors
        if torch.is_grad_enabled() or not is_plain(grad):
            return (*_plain_gradients(ctx.plain, x, y, grad), None, None)
        seen = torch.zeros_like(received)
        of_x, of_y = torch.empty_like(x), torch.empty_like(y)
        given, out = (x, y, grad.contiguous()), (received, seen, of_x, of_y)
        _run("gradients", given, ctx.given.arrays, out, *ctx.given.work(x, y))
        return of_x, of_y, None, None


def _plain_gradients(plain: Plain, x: Tensor, y: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients by PyTorch, which can be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        if not again:
            x, y = (u.detach().requires_grad_(u.requires_grad) for u in (x, y))
        wanted = [u for u in (x, y) if u.requires_grad]
        found = iter(torch.autograd.grad(plain(x, y), wanted, grad, create_graph=again))
    return tuple(next(found) if u.requires_grad else None for u in (x, y))


class _Tensors(NamedTuple):
    """Arguments of kernels that describe a map."""

    weight: Tensor
    """(heads, bases, m, d' + 1)"""
    kinds: Tensor
    exponents: Tensor
    constants: Tensor
    taus: Tensor
    """(heads, 1, n, d' + 1)"""
    coefficients: Tensor
    """(heads, T, n + 1)"""


class _Arguments:
    """The tensors, and their arrays."""

    def __init__(self, tensors: _Tensors) -> None:
        self.tensors, self.dim = tensors, max(1, tensors.weight.shape[-1] - 1)
        self.arrays = [] if torch.jit.is_tracing() else [tensor.numpy() for tensor in tensors]

    def work(self, x: Tensor, y: Tensor) -> tuple[int, int]:
        """Number of heads, and of features computed for queries and keys."""
        tokens = (x.numel() + y.numel()) // self.dim
        return len(self.tensors.weight), self.tensors.coefficients.shape[1] * tokens


_known: WeakKeyDictionary[nn.Module, tuple[tuple[Tensor, ...], list[int], _Arguments]]
_known = WeakKeyDictionary()


@torch.no_grad()
def _arguments(
    owner: nn.Module, describe: Callable[[], Described], sources: tuple[Tensor, ...]
) -> _Arguments:
    """Arguments for a map, those of the last call if its tensors are the same and unchanged."""
    if torch.jit.is_tracing() or any(tensor.is_inference() for tensor in sources):
        return _Arguments(_tensors(*describe()))
    versions = [tensor._version for tensor in sources]
    known = _known.get(owner)
    if known is not None and versions == known[1] and all(map(is_, sources, known[0])):
        return known[2]
    with torch.inference_mode(False):
        found = _Arguments(_tensors(*describe()))
    _known[owner] = sources, versions, found
    return found


def _tensors(bases: list[Base], taus: Tensor | None, coefficients: Tensor | None) -> _Tensors:
    weight = torch.stack([_with_bias(base.weight, base.bias) for base in bases], 1)
    heads, _, m, width = fixed_shape(weight)
    if taus is None:
        taus_rows = weight.new_zeros(heads, 1, 0, width)
    else:
        taus_rows = _with_bias(taus, None).unsqueeze(1)
    if coefficients is None:
        features = m * sum(_KINDS[base.kind][1] for base in bases)
        coefficients = weight.new_ones(features, 1)
    return _Tensors(
        weight,
        torch.tensor([_KINDS[base.kind][0] for base in bases]),
        torch.tensor([0.5 * base.exponent for base in bases], dtype=torch.float32),
        torch.tensor([-0.5 * math.log(base.terms * m) for base in bases], dtype=torch.float32),
        taus_rows,
        coefficients.expand(heads, *fixed_shape(coefficients)[-2:]).contiguous(),
    )


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    """(m, d) or (heads, m, d) -> (heads, m, d' + 1): zeros up to a multiple of 4, and the bias."""
    dim = weight.shape[-1]
    if weight.ndim == 2:
        weight = weight.unsqueeze(0)
    padded = nn.functional.pad(weight, (0, -dim % 4 + 1))
    if bias is not None:
        padded[..., -1] = bias.reshape(-1, weight.shape[-2])
    return padded


def _run(
    name: str,
    given: Sequence[Tensor],
    of_map: Sequence[Any],
    out: Sequence[Tensor],
    heads: int,
    work: int,
) -> None:
    """Run a kernel, in threads if PyTorch has several: an image is computed by one thread.

    Args:
        given, out: tensors (N, ...).
        of_map: other arguments, between these.
        heads: image n has the head n mod heads.
        work: number of features computed.
    """
    kernel = getattr(_kernels(), name)
    images = len(given[0])
    threads = min(torch.get_num_threads(), images // heads, work // _WORTH_THREADS)
    if threads < 2:
        kernel(*(t.numpy() for t in given), *of_map, *(t.numpy() for t in out))
        return
    size = -(images // -(heads * threads)) * heads
    running = []
    for start in range(0, images, size):
        parts = ([t[start : start + size].numpy() for t in group] for group in (given, out))
        before, after = parts
        running.append(Thread(target=kernel, args=(*before, *of_map, *after)))
        running[-1].start()
    for thread in running:
        thread.join()


def _is_simple(tensor: Tensor) -> bool:
    """Whether it is a plain tensor on the CPU in float32."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
    )


@cache
def _kernels() -> Any:
    """The module of kernels, or None where Numba is not installed or compiles nothing."""
    try:
        import numba

        from attention import compiled_kernels
    except ImportError:
        return None
    config: Any = numba.config
    return None if config.DISABLE_JIT else compiled_kernels
