"""Token scores with gradients, compiled by Numba where it is installed (extra `fast`).

The forward and the backward pass compute features in blocks that stay in the cache
(`attention.score_kernels`), and save queries, keys and one sum per feature, instead of features of
all tokens. Results and gradients are those of plain PyTorch to about 1e-6 of the largest, which is
the order of rounding errors in either.

It applies on the CPU in float32, where gradients are recorded: without gradients results stay the
same to the bit whether Numba is installed or not. Compilers, exports, traces, transforms such as
`torch.vmap`, and second derivatives use plain PyTorch. The environment variable `FOVEATE_NUMBA=0`
turns it off.
"""

import math
import os
from collections.abc import Callable
from functools import cache
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention.components import is_watched
from attention.tracing import is_plain

LARGEST_DIM = 32
"""Largest d: for longer queries and keys matrix products dominate, in which PyTorch is faster."""
_KINDS = {"positive": (0, 1), "hyperbolic": (1, 2), "trig": (2, 2)}
"""Number of each kind in `attention.score_kernels`, and its functions per projection."""
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


def applies(dim: int, x: Tensor, y: Tensor, like: Tensor) -> bool:
    """Whether scores of queries x and keys y, by random vectors `like`, are computed compiled."""
    return (
        torch.is_grad_enabled()
        and (x.requires_grad or y.requires_grad)
        and not torch.compiler.is_compiling()
        and all(_is_simple(tensor) for tensor in (x, y, like))
        and not like.requires_grad
        and dim <= LARGEST_DIM
        and not torch.jit.is_tracing()
        and not is_watched()
        and is_plain(x, y, like)
        and os.environ.get("FOVEATE_NUMBA") != "0"
        and _kernels() is not None
    )


def token_scores(
    x: Tensor,
    y: Tensor,
    bases: list[Base],
    plain: Plain,
    taus: Tensor | None = None,
    coefficients: Tensor | None = None,
) -> Tensor:
    """Compute scores (..., S) of queries x (..., L, d) and keys y (..., S, d) with gradients.

    Args:
        x, y: tokens in float32.
        bases: of the map or hybrid.
        plain: computes the same in PyTorch, for second derivatives.
        taus: random vectors of an angular coefficient, (n, d) or (heads, n, d).
        coefficients: C of a hybrid, (T, n + 1) or (heads, T, n + 1).
    """
    leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    images = math.prod(leading)
    rows = [
        u.mT.expand(*leading, *u.mT.shape[-2:]).reshape(images, *u.mT.shape[-2:]).contiguous()
        for u in (x, y)
    ]
    with torch.no_grad():
        given = _arguments(bases, taus, coefficients)

    def plain_rows(x: Tensor, y: Tensor) -> Tensor:
        x, y = (u.mT.reshape(*leading, *u.mT.shape[-2:]) for u in (x, y))
        return plain(x, y).reshape(images, 1, y.shape[-2])

    scores: Tensor = _Scores.apply(*rows, given, plain_rows)
    return scores.reshape(*leading, y.shape[-2])


class _Scores(torch.autograd.Function):
    """Autograd function of queries (N, d, L) and keys (N, d, S): (N, 1, S)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, given: "_Arguments", plain: Plain) -> Tensor:
        received = x.new_zeros(len(x), *given.coefficients.shape[1:])
        scores = x.new_empty(len(y), 1, y.shape[-1])
        _run("scores", (x, y), given, (received, scores))
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
        _run("gradients", (x, y, grad.contiguous()), ctx.given, (received, seen, of_x, of_y))
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


class _Arguments(NamedTuple):
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


def _arguments(bases: list[Base], taus: Tensor | None, coefficients: Tensor | None) -> _Arguments:
    weight = torch.stack([_with_bias(base.weight, base.bias) for base in bases], 1)
    heads, _, m, width = weight.shape
    if taus is None:
        taus_rows = weight.new_zeros(heads, 1, 0, width)
    else:
        taus_rows = _with_bias(taus, None).unsqueeze(1)
    if coefficients is None:
        features = m * sum(_KINDS[base.kind][1] for base in bases)
        coefficients = weight.new_ones(features, 1)
    return _Arguments(
        weight,
        torch.tensor([_KINDS[base.kind][0] for base in bases]),
        torch.tensor([0.5 * base.exponent for base in bases], dtype=torch.float32),
        torch.tensor([-0.5 * math.log(base.terms * m) for base in bases], dtype=torch.float32),
        taus_rows,
        coefficients.detach().expand(heads, *coefficients.shape[-2:]).contiguous(),
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


def _run(name: str, given: tuple[Tensor, ...], map_: _Arguments, out: tuple[Tensor, ...]) -> None:
    """Run a kernel, in threads if PyTorch has several: an image is computed by one thread."""
    kernel = getattr(_kernels(), name)
    arguments = [tensor.numpy() for tensor in map_]
    images, heads = len(given[0]), len(map_.weight)
    features = map_.coefficients.shape[1] * sum(u.shape[0] * u.shape[-1] for u in given[:2])
    threads = min(torch.get_num_threads(), images // heads, features // _WORTH_THREADS)
    if threads < 2:
        kernel(*(t.numpy() for t in given), *arguments, *(t.numpy() for t in out))
        return
    size = -(images // -(heads * threads)) * heads
    running = []
    for start in range(0, images, size):
        parts = ([t[start : start + size].numpy() for t in group] for group in (given, out))
        before, after = parts
        running.append(Thread(target=kernel, args=(*before, *arguments, *after)))
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

        from attention import score_kernels
    except ImportError:
        return None
    config: Any = numba.config
    return None if config.DISABLE_JIT else score_kernels
