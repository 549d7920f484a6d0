"""The von Mises kernel on a circle or torus, its harmonics, and the truncation error.

exp(kappa (cos t - 1)) = sum over integers n of c_n cos(n t), c_n = exp(-kappa) I_n(kappa) > 0, with
sum 1 (Abramowitz and Stegun, Handbook of Mathematical Functions, 9.6.34). On a torus the kernel is
the product over axes, t and n are vectors, n t is their scalar product, and c_n is the product of
the coefficients of the axes. Features keep a set S of frequencies and omit the tail, 1 - sum_S c_n.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attention.options import check_count, is_real

PerAxis = float | Sequence[float]
"""A number for all axes of the torus, or one per axis."""


def harmonic_tail(num_features: int, *, kappa: PerAxis = 1.0, dim: int = 1) -> float:
    """Return the share of the von Mises kernel that `harmonic` features omit, accurate to 1e-15.

    It is the largest error of the truncated sum, which occurs at x = y. The map divides the sum by
    1 - tail, so that its kernel is 1 at x = y; its errors are at most 2 tail.

    Args:
        num_features: m, the number of frequencies besides 0, those of largest weight: on a circle 1
            to m.
        kappa: concentration, a number or one per axis.
        dim: d, 1 for a circle, 2 for a torus.

    Raises ValueError for numbers that are not positive.
    """
    axes = check_axes("kappa", kappa, check_count("dim", dim))
    _, weights = harmonics(check_count("num_features", num_features), axes)
    return max(0.0, 1 - math.fsum(weights.tolist()))


def harmonic_rms_error(num_features: int, *, kappa: PerAxis = 1.0, dim: int = 1) -> float:
    """Return the root mean square error of the kernel of `harmonic` features over the torus,
    accurate to 1e-8.

    By Parseval's theorem its square is sum_S (c_n / (1 - tail) - c_n)^2 plus the sum of c_n^2
    outside S, where all c_n^2 on an axis sum to exp(-2 kappa) I_0(2 kappa). Arguments and
    exceptions are those of `harmonic_tail`.
    """
    axes = check_axes("kappa", kappa, check_count("dim", dim))
    count = check_count("num_features", num_features)
    weights, shares = harmonics(count, axes)[1], harmonic_shares(count, axes)[1]
    kept, more = (float(c[0] ** 2 + (c[1:] ** 2).sum() / 2) for c in (weights, shares - weights))
    every = math.prod(math.exp(log_bessel(2 * axis, 0)[0]) for axis in axes)
    return math.sqrt(more + max(0.0, every - kept))


def check_axes(name: str, given: PerAxis, dim: int) -> tuple[float, ...]:
    """Return a positive number for each of dim axes. Raises ValueError for other values."""
    axes: Any = [given] * dim if is_real(given) else given
    sound = isinstance(axes, Sequence) and not isinstance(axes, str) and len(axes) == dim
    if not sound or not all(is_real(axis) and 0 < axis < math.inf for axis in axes):
        raise ValueError(
            f"{name} must be a positive finite number, or one for each of dim={dim} axes, got "
            f"{given!r}"
        )
    return tuple(map(float, axes))


def harmonics(count: int, kappa: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return the frequencies of largest weight, (count, d) integers in float64, and the weights (1
    + count,).

    Only one of n and -n, which have the same cosine, is kept, with weight c_n + c_-n; the first
    weight is c_0.
    """
    frequencies, log_weights = _log_weights(count, kappa)
    weights = log_weights.exp()
    weights[1:] *= 2
    return frequencies, weights


def harmonic_shares(count: int, kappa: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return the frequencies of `harmonics` and their weights divided by the sum of the weights.

    On a torus of hundreds of axes every weight is smaller than the smallest float64.
    """
    frequencies, log_weights = _log_weights(count, kappa)
    if log_weights[0] < _LEAST_LOG:
        log_weights -= log_weights[0].clone()
    weights = log_weights.exp()
    weights[1:] *= 2
    return frequencies, weights / weights.sum()


_LEAST_LOG = -600.0
"""Largest log of a weight below which weights are rescaled before they are added."""


def _log_weights(count: int, kappa: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return the frequencies and log c_n, (count, d) and (1 + count,), the largest first."""
    logs = [log_bessel(axis, count) for axis in kappa]
    found = itertools.islice(_in_order(logs), 1, count + 1)
    frequencies = torch.tensor(list(found), dtype=torch.float64).reshape(count, len(kappa))
    log_weights = torch.zeros(count + 1, dtype=torch.float64)
    for axis, table in enumerate(torch.tensor(logs, dtype=torch.float64)):
        log_weights[0] += table[0]
        log_weights[1:] += table[frequencies[:, axis].abs().long()]
    return frequencies, log_weights


def _in_order(logs: list[list[float]]) -> Iterator[tuple[int, ...]]:
    """Yield vectors of integers, one of each n and -n, in decreasing order of the sum of
    logs[axis][|n|].

    Best-first search: the predecessor of a vector has its last nonzero entry reduced by one and has
    a larger weight, since log c_n decreases with n.
    """
    d = len(logs)
    start = (0,) * d
    waiting = [(-sum(log[0] for log in logs), start)]
    while waiting:
        cost, sizes = heapq.heappop(waiting)
        nonzero = [axis for axis in range(d) if sizes[axis]]
        yield from _signed(sizes, nonzero)
        for axis in range(nonzero[-1] if nonzero else 0, d):
            n = sizes[axis] + 1
            if n < len(logs[axis]):
                step = logs[axis][n - 1] - logs[axis][n]
                heapq.heappush(waiting, (cost + step, (*sizes[:axis], n, *sizes[axis + 1 :])))


def _signed(sizes: tuple[int, ...], nonzero: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield all signs of the nonzero entries; the first is positive."""
    for signs in itertools.product((1, -1), repeat=max(0, len(nonzero) - 1)):
        entries = list(sizes)
        for axis, sign in zip(nonzero[1:], signs, strict=True):
            entries[axis] *= sign
        yield tuple(entries)


def log_bessel(kappa: float, largest: int) -> list[float]:
    """Return log(exp(-kappa) I_n(kappa)) for n = 0 ... largest.

    The ratios r_n = I_n / I_{n-1} = 1 / (2 n / kappa + r_{n+1}) are computed downwards from a large
    n, where the starting value does not matter (Gautschi, Computational Aspects of Three-Term
    Recurrence Relations).
    """
    start = math.ceil(math.sqrt(largest**2 + 40 * kappa)) + 20
    ratio, ratios = 0.0, []
    for n in range(start, 0, -1):
        ratio = 1 / (2 * n / kappa + ratio)
        ratios.append(ratio)
    first = torch.special.i0e(torch.tensor(kappa, dtype=torch.float64)).log().item()
    return list(itertools.accumulate(map(math.log, ratios[::-1][:largest]), initial=first))
