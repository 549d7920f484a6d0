"""Token scores and their gradients, compiled by Numba; imported by `attention.compiled` alone.

Tokens are in blocks of 128 whose projections and features stay in the innermost cache, with tokens
in the last dimension, so that LLVM makes one instruction for up to 16 tokens of each inner loop.
Features are never written to memory: the backward pass computes them again.

A map is a list of bases with features exp(e |u|^2 + c) [f_1(p), ..., f_t(p)], p = omega.u + b, T in
all, and n taus for [1, sgn(tau.u)] (see `attention.hybrid.bipolar`; n = 0 without a coefficient).
Scores are sum_tr f_t(y) r_r(y) C_tr sum_i f_t(x_i) r_r(x_i).
"""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from foveate_numba import compiled

_intrinsic: Any = intrinsic
Array = NDArray[np.float32]

POSITIVE, HYPERBOLIC, TRIG = 0, 1, 2
"""Kinds of bases: [exp(p)], [exp(p), exp(-p)], [sin(p), cos(p)]."""

_B = 128  # tokens of a block
_G = 4  # projections computed at once
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
# Cephes' expf and sinf, with the reduction of Cody and Waite.
_LOWEST, _HIGHEST = np.float32(-104), np.float32(89)  # the exponential is 0, and infinite
_LOG2E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E0, _E1, _E2, _E3, _E4, _E5 = map(
    np.float32,
    (
        *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
        *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
    ),
)
_TWO_OVER_PI = np.float32(0.636619772367581343)
_PI0, _PI1, _PI2 = map(np.float32, (1.5703125, 4.837512969970703125e-4, 7.54978995489188e-8))
_QUARTER = np.float32(0.7853982)
_S0, _S1, _S2 = map(np.float32, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_C0, _C1, _C2 = map(np.float32, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))


@_intrinsic
def _rounded(typingctx: Any, value: Any) -> Any:
    """The nearest whole number, as a float32."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.rint", [ir.FloatType()])
        return builder.call(function, args)

    return types.float32(types.float32), code


@_intrinsic
def _times_power(typingctx: Any, value: Any, exponent: Any) -> Any:
    """value 2^exponent, from -252 to 254, in two factors: the power alone can leave the range."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        whole = builder.fptosi(args[1], word)
        first = builder.ashr(whole, word(1))
        result = args[0]
        for part in (first, builder.sub(whole, first)):
            bits = builder.shl(builder.add(part, word(127)), word(23))
            result = builder.fmul(result, builder.bitcast(bits, ir.FloatType()))
        return result

    return types.float32(types.float32, types.float32), code


@_intrinsic
def _turned(typingctx: Any, own: Any, other: Any, quadrant: Any) -> Any:
    """sin(r + q pi/2) from sin(r), cos(r) and q; cos(r + q pi/2) with q + 1."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        whole = builder.fptosi(args[2], word)
        odd = builder.trunc(whole, ir.IntType(1))
        value = builder.bitcast(builder.select(odd, args[1], args[0]), word)
        sign = builder.shl(builder.and_(whole, word(2)), word(30))
        return builder.bitcast(builder.xor(value, sign), ir.FloatType())

    return types.float32(types.float32, types.float32, types.float32), code


_exact = partial(compiled, fastmath={"contract"})
_fast = partial(compiled, fastmath={"contract", "reassoc", "nsz"}, nogil=True)


@_exact
def _exp(x: np.float32) -> np.float32:
    x = _LOWEST if x < _LOWEST else x
    x = _HIGHEST if x > _HIGHEST else x
    n = _rounded(x * _LOG2E)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5
    return _times_power(p * (r * r) + r + _ONE, n)


@_exact
def _reduced(x: np.float32, n: np.float32) -> np.float32:
    r = x - n * _PI0 - n * _PI1 - n * _PI2
    r = -_QUARTER if r < -_QUARTER else r
    return _QUARTER if r > _QUARTER else r


@_exact
def _sine(r: np.float32) -> np.float32:
    z = r * r
    return ((_S0 * z + _S1) * z + _S2) * z * r + r


@_exact
def _cosine(r: np.float32) -> np.float32:
    z = r * r
    return ((_C0 * z + _C1) * z + _C2) * (z * z) - _HALF * z + _ONE


@_fast
def _load(tokens: Array, image: int, start: int, U: Array, H: Array) -> int:
    """Copy a block of tokens (N, d, L) to rows, zero where there are none; |u|^2; their number."""
    length = min(tokens.shape[2] - start, _B)
    for j in range(_B):
        H[j] = _ZERO
    for k in range(tokens.shape[1]):
        for j in range(length):
            U[k, j] = tokens[image, k, start + j]
        for j in range(length, _B):
            U[k, j] = _ZERO
        for j in range(_B):
            H[j] += U[k, j] * U[k, j]
    return length


@_fast
def _store(rows: Array, length: int, out: Array, image: int, start: int) -> None:
    """Copy rows of a block to `out` (N, d, L)."""
    for k in range(out.shape[1]):
        for j in range(length):
            out[image, k, start + j] = rows[k, j]


@_fast
def _project(
    weight: Array, head: int, base: int, first: int, count: int, U: Array, P: Array
) -> None:
    """P: projections by `count` <= 4 omegas, from `first` on."""
    d = weight.shape[3] - 1
    for k in range(0, d, 4):
        for g in range(count):
            i = first + g
            w0, w1 = weight[head, base, i, k], weight[head, base, i, k + 1]
            w2, w3 = weight[head, base, i, k + 2], weight[head, base, i, k + 3]
            if k == 0:
                b = weight[head, base, i, d]
                for j in range(_B):
                    P[g, j] = b + w0 * U[0, j] + w1 * U[1, j] + w2 * U[2, j] + w3 * U[3, j]
            else:
                for j in range(_B):
                    P[g, j] += w0 * U[k, j] + w1 * U[k + 1, j] + w2 * U[k + 2, j] + w3 * U[k + 3, j]


@_fast
def _weigh(kind: int, exponent: float, constant: float, length: int, H: Array, W: Array) -> None:
    """W: the log-weight of each token, -inf where there is none; for trig its exponential."""
    for j in range(_B):
        W[j] = exponent * H[j] + constant
    for j in range(length, _B):
        W[j] = -np.inf
    if kind == TRIG:
        for j in range(_B):
            W[j] = _exp(W[j])


@_fast
def _evaluate(kind: int, count: int, P: Array, W: Array, F: Array) -> None:
    """F: the features of `count` projections, those of f_1, and from row 4 on those of f_2."""
    for g in range(count):
        if kind == TRIG:
            for j in range(_B):
                n = _rounded(P[g, j] * _TWO_OVER_PI)
                r = _reduced(P[g, j], n)
                s, c = _sine(r), _cosine(r)
                F[g, j] = _turned(s, c, n) * W[j]
                F[_G + g, j] = _turned(s, c, n + _ONE) * W[j]
        else:
            for j in range(_B):
                F[g, j] = _exp(W[j] + P[g, j])
            if kind == HYPERBOLIC:
                for j in range(_B):
                    F[_G + g, j] = _exp(W[j] - P[g, j])


@_fast
def _signs(taus: Array, head: int, U: Array, P: Array, R: Array) -> None:
    """R: [r, r sgn(tau.u)], with sgn(0) = 1 and r in row 0."""
    n = taus.shape[2]
    for first in range(0, n, _G):
        count = min(_G, n - first)
        _project(taus, head, 0, first, count, U, P)
        for g in range(count):
            for j in range(_B):
                R[1 + first + g, j] = -R[0, j] if P[g, j] < _ZERO else R[0, j]


@_fast
def _add_products(F: Array, f: int, R: Array, sums: Array, image: int, index: int) -> None:
    """Add sum_j f(j) r(j) of all rows of R to sums[image, index]."""
    for r in range(sums.shape[2]):
        total = _ZERO
        for j in range(_B):
            total += F[f, j] * R[r, j]
        sums[image, index, r] += total


@_fast
def _combine(sums: Array, image: int, index: int, R: Array, S: Array) -> None:
    """S: sum_r sums[image, index, r] r(j)."""
    factor = sums[image, index, 0]
    for j in range(_B):
        S[j] = factor * R[0, j]
    for r in range(1, sums.shape[2]):
        factor = sums[image, index, r]
        for j in range(_B):
            S[j] += factor * R[r, j]


@_fast
def _add_read(F: Array, f: int, S: Array, out: Array) -> None:
    for j in range(_B):
        out[0, j] += S[j] * F[f, j]


@_fast
def _derive(kind: int, t: int, g: int, F: Array, S: Array, D: Array, Q: Array) -> None:
    """Add the derivative of S f_t by p to D, which t = 0 overwrites, and by the log-weight to Q."""
    f = t * _G + g
    for j in range(_B):
        Q[j] += S[j] * F[f, j]
    by_p = (1 - t) * _G + g if kind == TRIG else f
    if t == 0:
        for j in range(_B):
            D[g, j] = S[j] * F[by_p, j]
    else:
        for j in range(_B):
            D[g, j] -= S[j] * F[by_p, j]


@_fast
def _pull(weight: Array, head: int, base: int, first: int, count: int, D: Array, V: Array) -> None:
    """Add the products of D and `count` <= 4 omegas to V."""
    for g in range(count, _G):
        for j in range(_B):
            D[g, j] = _ZERO
    last = first + count - 1
    i0, i1, i2, i3 = first, min(first + 1, last), min(first + 2, last), min(first + 3, last)
    for k in range(V.shape[0]):
        w0, w1 = weight[head, base, i0, k], weight[head, base, i1, k]
        w2, w3 = weight[head, base, i2, k], weight[head, base, i3, k]
        for j in range(_B):
            V[k, j] += w0 * D[0, j] + w1 * D[1, j] + w2 * D[2, j] + w3 * D[3, j]


@_fast
def _add_norms(exponent: float, U: Array, Q: Array, V: Array) -> None:
    """Add the gradient through exp(e |u|^2) to V, and set Q to zero."""
    for k in range(V.shape[0]):
        for j in range(_B):
            V[k, j] += (2 * exponent) * U[k, j] * Q[j]
    for j in range(_B):
        Q[j] = _ZERO


@_fast
def scores(
    x: Array,
    y: Array,
    weight: Array,
    kinds: NDArray[np.int64],
    exponents: Array,
    constants: Array,
    taus: Array,
    coefficients: Array,
    received: Array,
    out: Array,
) -> None:
    """Write token scores (N, 1, S) to `out`, and C_tr sum_i f_t(x_i) r_r(x_i) to `received`.

    Args:
        x, y: queries and keys (N, d, L), (N, d, S).
        weight: omegas (heads, bases, m, d' + 1), where d' is d up to a multiple of 4, with zeros,
            and the last column holds b. Image n has the head n mod heads.
        kinds, exponents, constants: kind, e and c of each base.
        taus: (heads, 1, n, d' + 1).
        coefficients: C (heads, T, n + 1).
        received: (N, T, n + 1), zeros.
        out: (N, 1, S).
    """
    images, heads, bases, m = x.shape[0], weight.shape[0], weight.shape[1], weight.shape[2]
    U = np.zeros((weight.shape[3] - 1, _B), np.float32)
    H, W, S = np.empty(_B, np.float32), np.empty(_B, np.float32), np.empty(_B, np.float32)
    P, F = np.empty((_G, _B), np.float32), np.empty((2 * _G, _B), np.float32)
    R = np.empty((received.shape[2], _B), np.float32)
    total = np.empty((1, _B), np.float32)
    for image in range(images):
        head = image % heads
        for side in range(2):
            tokens = x if side == 0 else y
            for start in range(0, tokens.shape[2], _B):
                length = _load(tokens, image, start, U, H)
                for j in range(_B):
                    total[0, j], R[0, j] = _ZERO, _ONE
                _signs(taus, head, U, P, R)
                offset = 0
                for base in range(bases):
                    kind = kinds[base]
                    _weigh(kind, exponents[base], constants[base], length, H, W)
                    terms = 1 if kind == POSITIVE else 2
                    for first in range(0, m, _G):
                        count = min(_G, m - first)
                        _project(weight, head, base, first, count, U, P)
                        _evaluate(kind, count, P, W, F)
                        for t in range(terms):
                            for g in range(count):
                                f, index = t * _G + g, offset + t * m + first + g
                                if side == 0:
                                    _add_products(F, f, R, received, image, index)
                                else:
                                    _combine(received, image, index, R, S)
                                    _add_read(F, f, S, total)
                    offset += terms * m
                if side == 1:
                    _store(total, length, out, image, start)
            if side == 0:
                for t in range(received.shape[1]):
                    for r in range(received.shape[2]):
                        received[image, t, r] *= coefficients[head, t, r]


@_fast
def gradients(
    x: Array,
    y: Array,
    grad: Array,
    weight: Array,
    kinds: NDArray[np.int64],
    exponents: Array,
    constants: Array,
    taus: Array,
    coefficients: Array,
    received: Array,
    seen: Array,
    dx: Array,
    dy: Array,
) -> None:
    """Write the gradients of `scores` to dx (N, d, L) and dy (N, d, S).

    Args:
        grad: gradient of the scores (N, 1, S).
        seen: (N, T, n + 1), zeros; used as memory.
        others: as in `scores`.
    """
    images, heads, bases, m = x.shape[0], weight.shape[0], weight.shape[1], weight.shape[2]
    U = np.zeros((weight.shape[3] - 1, _B), np.float32)
    V, D = np.empty((x.shape[1], _B), np.float32), np.empty((_G, _B), np.float32)
    H, W = np.empty(_B, np.float32), np.empty(_B, np.float32)
    S, Q = np.empty(_B, np.float32), np.zeros(_B, np.float32)
    P, F = np.empty((_G, _B), np.float32), np.empty((2 * _G, _B), np.float32)
    R = np.empty((received.shape[2], _B), np.float32)
    for image in range(images):
        head = image % heads
        for side in range(2):  # keys first: they give the gradients of sums over queries
            tokens = y if side == 0 else x
            sums = received if side == 0 else seen
            for start in range(0, tokens.shape[2], _B):
                length = _load(tokens, image, start, U, H)
                for j in range(_B):
                    R[0, j] = _ONE
                if side == 0:
                    for j in range(length):
                        R[0, j] = grad[image, 0, start + j]
                _signs(taus, head, U, P, R)
                for k in range(V.shape[0]):
                    for j in range(_B):
                        V[k, j] = _ZERO
                offset = 0
                for base in range(bases):
                    kind = kinds[base]
                    _weigh(kind, exponents[base], constants[base], length, H, W)
                    terms = 1 if kind == POSITIVE else 2
                    for first in range(0, m, _G):
                        count = min(_G, m - first)
                        _project(weight, head, base, first, count, U, P)
                        _evaluate(kind, count, P, W, F)
                        for t in range(terms):
                            for g in range(count):
                                index = offset + t * m + first + g
                                if side == 0:
                                    _add_products(F, t * _G + g, R, seen, image, index)
                                _combine(sums, image, index, R, S)
                                _derive(kind, t, g, F, S, D, Q)
                        _pull(weight, head, base, first, count, D, V)
                    _add_norms(exponents[base], U, Q, V)
                    offset += terms * m
                if side == 0:
                    _store(V, length, dy, image, start)
                else:
                    _store(V, length, dx, image, start)
            if side == 0:
                for t in range(received.shape[1]):
                    for r in range(received.shape[2]):
                        seen[image, t, r] *= coefficients[head, t, r]
