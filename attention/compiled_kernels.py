"""Token scores, their gradients and attention, compiled by Numba.

Imported by `attention.compiled` alone. Compiled functions call each other, so they are in one file,
as Numba's cache requires.

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
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from foveate_numba import compiled

_intrinsic: Any = intrinsic
Array = NDArray[np.float32]

POSITIVE, HYPERBOLIC, TRIG = 0, 1, 2
"""Kinds of bases: [exp(p)], [exp(p), exp(-p)], [sin(p), cos(p)]."""

_B = 128  # tokens of a block
_G = 4  # projections computed at once
_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
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
    ranks = sums.shape[2]
    for r in range(0, ranks - ranks % 4, 4):
        t0, t1, t2, t3 = _ZERO, _ZERO, _ZERO, _ZERO
        for j in range(_B):
            t0 += F[f, j] * R[r, j]
            t1 += F[f, j] * R[r + 1, j]
            t2 += F[f, j] * R[r + 2, j]
            t3 += F[f, j] * R[r + 3, j]
        sums[image, index, r] += t0
        sums[image, index, r + 1] += t1
        sums[image, index, r + 2] += t2
        sums[image, index, r + 3] += t3
    for r in range(ranks - ranks % 4, ranks):
        t0 = _ZERO
        for j in range(_B):
            t0 += F[f, j] * R[r, j]
        sums[image, index, r] += t0


@_fast
def _combine(sums: Array, image: int, index: int, R: Array, S: Array) -> None:
    """S: sum_r sums[image, index, r] r(j)."""
    ranks = sums.shape[2]
    w0 = sums[image, index, 0]
    for j in range(_B):
        S[j] = w0 * R[0, j]
    fours = (ranks - 1) // 4 * 4
    for r in range(1, 1 + fours, 4):
        w0, w1 = sums[image, index, r], sums[image, index, r + 1]
        w2, w3 = sums[image, index, r + 2], sums[image, index, r + 3]
        for j in range(_B):
            S[j] += w0 * R[r, j] + w1 * R[r + 1, j] + w2 * R[r + 2, j] + w3 * R[r + 3, j]
    for r in range(1 + fours, ranks):
        w0 = sums[image, index, r]
        for j in range(_B):
            S[j] += w0 * R[r, j]


@_fast
def _add_read(F: Array, f: int, S: Array, out: Array) -> None:
    for j in range(_B):
        out[0, j] += S[j] * F[f, j]


@_fast
def _add_weighted(
    F: Array, f: int, count: int, sums: Array, image: int, i: int, out: Array
) -> None:
    """Add the features from f on, times sums from i on, to a row; like `_combine` and `_add_read`
    without a coefficient, for four features at once."""
    if count < _G:
        for g in range(count):
            w0 = sums[image, i + g, 0]
            for j in range(_B):
                out[0, j] += w0 * F[f + g, j]
        return
    w0, w1 = sums[image, i, 0], sums[image, i + 1, 0]
    w2, w3 = sums[image, i + 2, 0], sums[image, i + 3, 0]
    for j in range(_B):
        out[0, j] += w0 * F[f, j] + w1 * F[f + 1, j] + w2 * F[f + 2, j] + w3 * F[f + 3, j]


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
                            if side == 1 and taus.shape[2] == 0:
                                i = offset + t * m + first
                                _add_weighted(F, t * _G, count, received, image, i, total)
                                continue
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


_LONG = 4 * _B  # tokens of a block that are sorted by their signs
_LANES, _COLUMNS, _ROWS = 16, 2, 4  # a product is computed in tiles of 4 rows and 2 x 16 columns
_TILE = _LANES * _COLUMNS
_LOWEST_SCALE = np.float32(0.5 * np.finfo(np.float32).min)


def _tile(adds: bool) -> Any:
    """A tile of c (+)= a b: 4 rows of `a`, 32 columns of `b`, sums over `count` terms in registers.

    Arrays are flat; ai, bi, ci are the first entries, ar and ak the distances of rows and of terms
    in `a`, bk that of terms in `b`, cr that of rows in `c`.
    """

    @_intrinsic
    def tile(
        typingctx: Any, a: Any, ai: Any, ar: Any, ak: Any, b: Any, bi: Any, bk: Any, c: Any,
        ci: Any, cr: Any, count: Any,
    ) -> Any:  # fmt: skip
        long = types.int64
        signature = types.void(a, long, long, long, b, long, long, c, long, long, long)
        vector, word = ir.VectorType(ir.FloatType(), _LANES), ir.IntType(64)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, b, c = (
                context.make_array(signature.args[k])(context, builder, args[k]).data
                for k in (0, 4, 7)
            )
            ai, ar, ak, bi, bk, ci, cr, count = (args[k] for k in (1, 2, 3, 5, 6, 8, 9, 10))

            def place(base: Any, at: Any, part: int) -> Any:
                at = builder.add(at, word(part * _LANES))
                return builder.bitcast(builder.gep(base, [at]), vector.as_pointer())

            def row(first: Any, step: Any, number: int) -> Any:
                return builder.add(first, builder.mul(step, word(number)))

            cells = [(r, part) for r in range(_ROWS) for part in range(_COLUMNS)]
            sums = {cell: cgutils.alloca_once(builder, vector) for cell in cells}
            for r, part in cells:
                builder.store(ir.Constant(vector, [0.0] * _LANES), sums[r, part])
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
            nothing = ir.Constant(vector, ir.Undefined)
            with cgutils.for_range(builder, count) as loop:
                at_a = builder.add(ai, builder.mul(ak, loop.index))
                at_b = builder.add(bi, builder.mul(bk, loop.index))
                terms = [builder.load(place(b, at_b, part), align=4) for part in range(_COLUMNS)]
                for r in range(_ROWS):
                    one = builder.load(builder.gep(a, [row(at_a, ar, r)]))
                    one = builder.insert_element(nothing, one, ir.IntType(32)(0))
                    one = builder.shuffle_vector(one, nothing, zeros)
                    for part in range(_COLUMNS):
                        product = builder.fmul(one, terms[part])
                        total = builder.fadd(builder.load(sums[r, part]), product)
                        builder.store(total, sums[r, part])
            for r, part in cells:
                to, total = place(c, row(ci, cr, r), part), builder.load(sums[r, part])
                if adds:  # the terms first: a long sum would lose digits of each
                    total = builder.fadd(builder.load(to, align=4), total)
                builder.store(total, to, align=4)
            return context.get_dummy_value()

        return signature, code

    return tile


_set_tile, _add_tile = _tile(False), _tile(True)


@_fast
def _project_rows(
    tokens: Array, image: int, start: int, length: int, transposed: Array, biases: Array, head: int,
    X: Array, Y: Array, P: Array, H: Array,
) -> None:  # fmt: skip
    """P (rows, 128): projections of a block of tokens (N, L, d) by columns of `transposed` (heads,
    d, rows), whose number is a multiple of 32; H: |u|^2. X (128, d) and Y (128, rows) are used as
    memory."""
    d, columns = tokens.shape[2], transposed.shape[2]
    for j in range(length):
        square = _ZERO
        for k in range(d):
            X[j, k] = tokens[image, start + j, k]
            square += X[j, k] * X[j, k]
        H[j] = square
    for j in range(length, _B):
        H[j] = _ZERO
        for k in range(d):
            X[j, k] = _ZERO
    a, b, c, at = X.reshape(-1), transposed.reshape(-1), Y.reshape(-1), head * d * columns
    for j in range(0, _B, _ROWS):
        for i in range(0, columns, _TILE):
            _set_tile(a, j * d, d, 1, b, at + i, columns, c, j * columns + i, columns, d)
    for i in range(P.shape[0]):
        for j in range(_B):
            P[i, j] = Y[j, i] + biases[head, i]


_BLOCKS = 64
"""Number of blocks of 128 keys that are summed before their sums are added to those of all."""


@_fast
def _flush(sums: Array, total: Array) -> None:
    """Add sums to the total and begin anew: long sums in one float32 lose digits."""
    for r in range(sums.shape[0]):
        for q in range(sums.shape[1]):
            total[r, q] += sums[r, q]
            sums[r, q] = _ZERO


@_fast
def _added(sums: Array, total: Array, out: Array) -> None:
    for r in range(sums.shape[0]):
        for q in range(sums.shape[1]):
            out[r, q] = total[r, q] + sums[r, q]


@_fast
def _scale(rows: Array, factor: np.float32) -> None:
    for r in range(rows.shape[0]):
        for q in range(rows.shape[1]):
            rows[r, q] *= factor


@_fast
def _log_sizes(kinds: NDArray[np.int64], m: int, P: Array, logs: Array, out: Array) -> None:
    """The logarithm of the largest possible feature of each token, with log-weights `logs`."""
    for j in range(_B):
        out[j] = -np.inf
    for base in range(len(kinds)):
        kind = kinds[base]
        if kind == TRIG:
            for j in range(_B):
                out[j] = max(out[j], logs[base, j])
            continue
        for i in range(base * m, base * m + m):
            for j in range(_B):
                p = P[i, j] if kind == POSITIVE else abs(P[i, j])
                out[j] = max(out[j], p + logs[base, j])


@_fast
def _write_features(
    kinds: NDArray[np.int64], m: int, P: Array, logs: Array, scales: Array, rows: Array, W: Array,
    F: Array, squares: Array, at: int, out: Array,
) -> None:  # fmt: skip
    """Write features / exp(scales) to rows of `out` from `at` on, and |f|^2 by base to
    `squares`."""
    offset = 0
    for base in range(len(kinds)):
        kind = kinds[base]
        terms = 1 if kind == POSITIVE else 2
        for j in range(_B):
            W[j] = logs[base, j] - scales[j]
            squares[base, at + j] = _ZERO
        if kind == TRIG:
            for j in range(_B):
                W[j] = _exp(W[j])
        for first in range(0, m, _G):
            count = min(_G, m - first)
            for g in range(count):
                for j in range(_B):
                    rows[g, j] = P[base * m + first + g, j]
            _evaluate(kind, count, rows, W, F)
            for t in range(terms):
                for g in range(count):
                    f, index = t * _G + g, offset + t * m + first + g
                    for j in range(_B):
                        squares[base, at + j] += F[f, j] * F[f, j]
                    for j in range(_B):
                        out[at + j, index] = F[f, j]
        offset += terms * m


@_fast
def _write_signs(
    P: Array, first: int, n: int, bits: int, at: int, signs: NDArray[np.int64]
) -> None:
    """Write the patterns of signs of each group of `bits` taus, whose rows begin at `first`."""
    for group in range(signs.shape[0]):
        for j in range(_B):
            signs[group, at + j] = 0
        for b in range(min(bits, n - group * bits)):
            for j in range(_B):
                if P[first + group * bits + b, j] < _ZERO:
                    signs[group, at + j] |= 1 << b


@_fast
def _sort(
    signs: NDArray[np.int64],
    group: int,
    length: int,
    order: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Order tokens by their patterns; ends[s] is the end of those with pattern s."""
    for s in range(len(ends)):
        ends[s] = 0
    for j in range(length):
        ends[signs[group, j]] += 1
    for s in range(1, len(ends)):
        ends[s] += ends[s - 1]
    for j in range(length - 1, -1, -1):
        ends[signs[group, j]] -= 1
        order[ends[signs[group, j]]] = j
    for s in range(len(ends) - 1):
        ends[s] = ends[s + 1]
    ends[len(ends) - 1] = length


@_fast
def _tables(
    sums: Array, earlier: Array, columns: int, bits: int, C: Array, head: int, halves: Array,
    differences: Array, table: Array,
) -> None:  # fmt: skip
    """From two parts of the sums (patterns, T' columns) over the tokens of each pattern, what a
    query of each reads: sum_r C_tr rho_r sum_j rho_r f_t v.

    Sums over all patterns and over each sign are made by halving, tables by doubling.
    """
    patterns = 1 << bits
    for first in range(0, table.shape[0], patterns):
        r = first // patterns * bits
        count = min(bits, C.shape[2] - 1 - r)
        for t in range(C.shape[1]):
            at = t * columns
            for s in range(patterns):
                for c in range(columns):
                    halves[s, c] = sums[first + s, at + c] + earlier[first + s, at + c]
            for b in range(bits - 1, -1, -1):
                for c in range(columns):
                    differences[b, c] = _ZERO
                for s in range(1 << b):
                    for c in range(columns):
                        low, high = halves[s, c], halves[s + (1 << b), c]
                        differences[b, c] += low - high
                        halves[s, c] = low + high
            for c in range(columns):
                table[first, at + c] = C[head, t, 0] * halves[0, c] if r == 0 else _ZERO
            for b in range(count):
                for c in range(columns):
                    differences[b, c] *= C[head, t, 1 + r + b]
                    table[first, at + c] += differences[b, c]
            for b in range(count):
                for s in range(1 << b):
                    for c in range(columns):
                        table[first + s + (1 << b), at + c] = (
                            table[first + s, at + c] - _TWO * differences[b, c]
                        )


@_fast
def _prepare(
    weight: Array, kinds: NDArray[np.int64], taus: Array, C: Array, transposed: Array,
    biases: Array, sizes: Array,
) -> None:  # fmt: skip
    """Random vectors as columns, bases first, their biases, and sum_r C_tr^2 of each base, from
    arrays of zeros."""
    bases, m, n = weight.shape[1], weight.shape[2], taus.shape[2]
    for head in range(weight.shape[0]):
        offset = 0
        for base in range(bases):
            for i in range(m):
                biases[head, base * m + i] = weight[head, base, i, weight.shape[3] - 1]
                for k in range(transposed.shape[1]):
                    transposed[head, k, base * m + i] = weight[head, base, i, k]
            for r in range(n + 1):
                sizes[head, base] += C[head, offset, r] * C[head, offset, r]
            offset += m if kinds[base] == POSITIVE else 2 * m
        for r in range(n):
            for k in range(transposed.shape[1]):
                transposed[head, k, bases * m + r] = taus[head, 0, r, k]


@_fast
def _log_weights(
    exponents: Array, constants: Array, H: Array, count: int, hidden: NDArray[np.bool_], image: int,
    start: int, logs: Array,
) -> None:  # fmt: skip
    """Log-weights (bases, 128) of a block; -inf for tokens that are hidden or not there."""
    for base in range(len(exponents)):
        for j in range(_B):
            logs[base, j] = exponents[base] * H[j] + constants[base]
        for j in range(count, _B):
            logs[base, j] = -np.inf
        if hidden.shape[1] > 0:
            for j in range(count):
                if hidden[image, start + j]:
                    logs[base, j] = -np.inf


@_fast
def _norm(sizes: Array, head: int, squares: Array, j: int) -> np.float32:
    """|phi| of a token, from sums of squares by base."""
    square = _ZERO
    for base in range(squares.shape[0]):
        square += sizes[head, base] * squares[base, j]
    return np.sqrt(square)


@_fast
def _absorb(
    f: Array, signs: NDArray[np.int64], values: Array, image: int, start: int, length: int,
    order: NDArray[np.int64], ends: NDArray[np.int64], sorted_f: Array, sorted_rows: Array,
    sums: Array, norms: Array,
) -> None:  # fmt: skip
    """Add f v^T and f of a block of keys to the sums of their patterns."""
    width, columns, patterns = f.shape[1], sorted_rows.shape[1], len(ends)
    flat_f, flat_rows, flat_sums = sorted_f.reshape(-1), sorted_rows.reshape(-1), sums.reshape(-1)
    for group in range(signs.shape[0]):
        _sort(signs, group, length, order, ends)
        for k in range(length):
            j = order[k]
            for t in range(width):
                sorted_f[k, t] = f[j, t]
            for c in range(values.shape[2]):
                sorted_rows[k, c] = values[image, start + j, c]
        first = 0
        for s in range(patterns):
            bucket, last = group * patterns + s, ends[s]
            for t in range(0, width, _ROWS):
                for c in range(0, columns, _TILE):
                    _add_tile(
                        flat_f, first * width + t, 1, width,
                        flat_rows, first * columns + c, columns,
                        flat_sums, (bucket * width + t) * columns + c, columns, last - first,
                    )  # fmt: skip
            for k in range(first + 1, last):
                for t in range(width):
                    sorted_f[first, t] += sorted_f[k, t]
            if first < last:
                for t in range(width):
                    norms[bucket, t] += sorted_f[first, t]
            first = last


@_fast
def _read(
    f: Array, signs: NDArray[np.int64], image: int, start: int, length: int,
    order: NDArray[np.int64], ends: NDArray[np.int64], sorted_f: Array, sorted_rows: Array,
    table: Array, norm_table: Array, out: Array, denominator: Array,
) -> None:  # fmt: skip
    """Add the products of the features of a block of queries and the tables of their patterns."""
    width, columns, patterns = f.shape[1], sorted_rows.shape[1], len(ends)
    flat_f, flat_rows, flat_table = sorted_f.reshape(-1), sorted_rows.reshape(-1), table.reshape(-1)
    for group in range(signs.shape[0]):
        _sort(signs, group, length, order, ends)
        for k in range(length):
            j = order[k]
            for t in range(width):
                sorted_f[k, t] = f[j, t]
        first = 0
        for s in range(patterns):
            bucket, last = group * patterns + s, ends[s]
            for k in range(first, last, _ROWS):  # rows beyond the last are written again
                for c in range(0, columns, _TILE):
                    _set_tile(
                        flat_f, k * width, width, 1,
                        flat_table, bucket * width * columns + c, columns,
                        flat_rows, k * columns + c, columns, width,
                    )  # fmt: skip
            for k in range(first, last):
                product = _ZERO
                for t in range(width):
                    product += sorted_f[k, t] * norm_table[bucket, t]
                denominator[image, start + order[k]] += product
            first = last
        for k in range(length):
            i = start + order[k]
            for c in range(out.shape[2]):
                out[image, i, c] += sorted_rows[k, c]


@_fast
def attend_signs(
    x: Array,
    y: Array,
    values: Array,
    hidden: NDArray[np.bool_],
    weight: Array,
    kinds: NDArray[np.int64],
    exponents: Array,
    constants: Array,
    taus: Array,
    C: Array,
    bits: int,
    out: Array,
    denominator: Array,
    log_scale: Array,
    size: Array,
    mass: Array,
    reference: Array,
) -> None:
    """Attention of all queries over all keys by a hybrid with an angular coefficient.

    The features are f (x) r, r = [1, sgn(tau_1.u), ..., sgn(tau_n.u)]. Tokens whose signs are the
    same share r: sums of f (x) [v, 1] over the keys of each pattern of 4 signs give all sums of f
    (x) r (x) [v, 1], and a query reads a table of its pattern. A token then takes T dv operations
    for every 4 signs instead of T dv (n + 1).

    Args:
        x, y, values: (N, L, d), (N, S, d), (N, S, dv).
        hidden: (N, S), or (N, 0) if no key is.
        weight, kinds, exponents, constants, taus: as in `scores`.
        C: coefficients (heads, T, n + 1).
        bits: number of signs of a pattern.
        out, denominator: numerators (N, L, dv) and denominators (N, L), zeros, in units of
            exp(log_scale + reference).
        log_scale, size: (N, L), scale of the features of each query, and |phi| in its unit.
        mass, reference: (N,), sum of |phi| over keys, and the logarithm of its unit.
    """
    images, heads, bases, m = x.shape[0], weight.shape[0], weight.shape[1], weight.shape[2]
    d, dv, n = x.shape[2], values.shape[2], taus.shape[2]
    groups, patterns = (n + bits - 1) // bits, 1 << bits
    width, columns = (C.shape[1] + 3) // 4 * 4, (dv + _TILE - 1) // _TILE * _TILE
    every = bases * m + n
    transposed = np.zeros((heads, d, (every + _TILE - 1) // _TILE * _TILE), np.float32)
    biases, sizes = np.zeros((heads, every), np.float32), np.zeros((heads, bases), np.float32)
    _prepare(weight, kinds, taus, C, transposed, biases, sizes)
    X, Y = np.empty((_B, d), np.float32), np.empty((_B, transposed.shape[2]), np.float32)
    P, H, W = np.empty((every, _B), np.float32), np.empty(_B, np.float32), np.empty(_B, np.float32)
    rows, F = np.empty((_G, _B), np.float32), np.empty((2 * _G, _B), np.float32)
    logs, scales = np.empty((bases, _B), np.float32), np.empty(_B, np.float32)
    squares = np.empty((bases, _LONG), np.float32)
    f = np.zeros((_LONG, width), np.float32)
    sorted_f = np.zeros((_LONG + _ROWS, width), np.float32)
    sorted_rows = np.zeros((_LONG + _ROWS, columns), np.float32)
    sums = np.empty((groups * patterns, width * columns), np.float32)
    norms = np.empty((groups * patterns, width), np.float32)
    table, norm_table = np.zeros_like(sums), np.zeros_like(norms)  # rows beyond T' stay 0
    halves = np.empty((patterns, columns), np.float32)
    differences = np.empty((bits, columns), np.float32)
    all_sums, all_norms = np.empty_like(sums), np.empty_like(norms)
    signs, order = np.empty((groups, _LONG), np.int64), np.empty(_LONG, np.int64)
    ends, none = np.empty(patterns, np.int64), np.zeros((images, 0), np.bool_)
    for image in range(images):
        head = image % heads
        unit, heavy = _LOWEST_SCALE, _ZERO
        for zeros in (sums, norms, all_sums, all_norms):
            zeros[:] = _ZERO
        for side in range(2):
            tokens = y if side == 0 else x
            for start in range(0, tokens.shape[1], _LONG):
                length = min(_LONG, tokens.shape[1] - start)
                for at in range(0, length, _B):
                    count = min(_B, length - at)
                    _project_rows(
                        tokens, image, start + at, count, transposed, biases, head, X, Y, P, H
                    )
                    shown = hidden if side == 0 else none
                    _log_weights(exponents, constants, H, count, shown, image, start + at, logs)
                    _log_sizes(kinds, m, P, logs, scales)
                    if side == 0:
                        largest = unit
                        for j in range(count):
                            largest = max(largest, scales[j])
                        if largest > unit:
                            factor = _exp(unit - largest)
                            unit = largest
                            heavy *= factor
                            for each in (sums, norms, all_sums, all_norms):
                                _scale(each, factor)
                            _scale(f[:at], factor)
                            _scale(squares[:, :at], factor * factor)
                        for j in range(_B):
                            scales[j] = unit
                    else:
                        for j in range(count):
                            log_scale[image, start + at + j] = scales[j]
                        for j in range(count, _B):
                            scales[j] = _ZERO
                    _write_features(kinds, m, P, logs, scales, rows, W, F, squares, at, f)
                    _write_signs(P, bases * m, n, bits, at, signs)
                if side == 0:
                    added = _ZERO
                    for j in range(length):
                        added += _norm(sizes, head, squares, j)
                    heavy += added
                    _absorb(
                        f, signs, values, image, start, length, order, ends, sorted_f, sorted_rows,
                        sums, norms,
                    )  # fmt: skip
                    if start // _B % _BLOCKS + length // _B >= _BLOCKS:
                        _flush(sums, all_sums)
                        _flush(norms, all_norms)
                else:
                    for j in range(length):
                        square = _ZERO
                        for base in range(bases):
                            square += squares[base, j]
                        size[image, start + j] = np.sqrt(square * np.float32(n + 1))
                    _read(
                        f, signs, image, start, length, order, ends, sorted_f, sorted_rows, table,
                        norm_table, out, denominator,
                    )  # fmt: skip
            if side == 0:
                mass[image], reference[image] = heavy, unit
                _tables(sums, all_sums, columns, bits, C, head, halves, differences, table)
                _tables(norms, all_norms, 1, bits, C, head, halves, differences, norm_table)


@_fast
def _products(
    kinds: NDArray[np.int64], m: int, C: Array, head: int, i: int, fq: Array, fk: Array, rq: Array,
    rk: Array, scratch: Array, A: Array,
) -> None:  # fmt: skip
    """A: phi_i . phi_j of 4 queries of a block, from the i-th on, and the keys up to each.

    They are sums over bases of (C_t0 + C_t1 r_i . r_j) f_i . f_j. fq (128, T') and rq (128, n) have
    tokens first, fk (T', 128) and rk (n, 128) last.
    """
    width, n, bases = fq.shape[1], rk.shape[0], len(kinds)
    flat_q, flat_k, flat_s = fq.reshape(-1), fk.reshape(-1), scratch.reshape(-1)
    signs_q, signs_k = rq.reshape(-1), rk.reshape(-1)
    ends = i + _ROWS
    for j in range(0, ends, _TILE):
        _set_tile(signs_q, i * n, n, 1, signs_k, j, _B, flat_s, bases * _ROWS * _B + j, _B, n)
        offset = 0
        for base in range(bases):
            count = m if kinds[base] == POSITIVE else 2 * m
            _set_tile(
                flat_q, i * width + offset, width, 1, flat_k, offset * _B + j, _B,
                flat_s, base * _ROWS * _B + j, _B, count,
            )  # fmt: skip
            offset += count
    for r in range(_ROWS):
        offset = 0
        for base in range(bases):
            a, b = C[head, offset, 0], C[head, offset, 1]
            offset += m if kinds[base] == POSITIVE else 2 * m
            if base == 0:
                for j in range(_B):
                    A[i + r, j] = (a + b * scratch[bases, r, j]) * scratch[base, r, j]
            else:
                for j in range(_B):
                    A[i + r, j] += (a + b * scratch[bases, r, j]) * scratch[base, r, j]
        for j in range(i + r + 1, _B):
            A[i + r, j] = _ZERO


@_fast
def causal_signs(
    x: Array,
    y: Array,
    values: Array,
    hidden: NDArray[np.bool_],
    weight: Array,
    kinds: NDArray[np.int64],
    exponents: Array,
    constants: Array,
    taus: Array,
    C: Array,
    bits: int,
    out: Array,
    denominator: Array,
    log_scale: Array,
    size: Array,
    mass: Array,
    reference: Array,
) -> None:
    """Like `attend_signs` with as many queries as keys, of which each query sees those up to it.

    Blocks of 128 keys are summed after their queries have read the sums of earlier blocks; within a
    block products of all pairs are formed. Results of a query are in units of the largest key up to
    it: mass, reference (N, L).
    """
    images, heads, bases, m = x.shape[0], weight.shape[0], weight.shape[1], weight.shape[2]
    d, dv, n = x.shape[2], values.shape[2], taus.shape[2]
    groups, patterns = (n + bits - 1) // bits, 1 << bits
    width, columns = (C.shape[1] + 3) // 4 * 4, (dv + _TILE - 1) // _TILE * _TILE
    every = bases * m + n
    transposed = np.zeros((heads, d, (every + _TILE - 1) // _TILE * _TILE), np.float32)
    biases, sizes = np.zeros((heads, every), np.float32), np.zeros((heads, bases), np.float32)
    _prepare(weight, kinds, taus, C, transposed, biases, sizes)
    X, Y = np.empty((_B, d), np.float32), np.empty((_B, transposed.shape[2]), np.float32)
    P, H, W = np.empty((every, _B), np.float32), np.empty(_B, np.float32), np.empty(_B, np.float32)
    rows, F = np.empty((_G, _B), np.float32), np.empty((2 * _G, _B), np.float32)
    logs = np.empty((bases, _B), np.float32)
    query_scales, key_scales = np.empty(_B, np.float32), np.empty(_B, np.float32)
    units = np.empty(_B, np.float32)
    squares, key_norms = np.empty((bases, _B), np.float32), np.empty(_B, np.float32)
    fq, fk = np.zeros((_B, width), np.float32), np.zeros((_B, width), np.float32)
    turned = np.zeros((width, _B), np.float32)
    rq, rk = np.empty((_B, n), np.float32), np.empty((n, _B), np.float32)
    query_signs, key_signs = np.empty((groups, _B), np.int64), np.empty((groups, _B), np.int64)
    order, ends = np.empty(_B, np.int64), np.empty(patterns, np.int64)
    sorted_f = np.zeros((_B + _ROWS, width), np.float32)
    sorted_rows = np.zeros((_B + _ROWS, columns), np.float32)
    own = np.zeros((_B, columns), np.float32)
    scratch, A = np.empty((bases + 1, _ROWS, _B), np.float32), np.empty((_B, _B), np.float32)
    sums = np.empty((groups * patterns, width * columns), np.float32)
    norms = np.empty((groups * patterns, width), np.float32)
    table, norm_table = np.zeros_like(sums), np.zeros_like(norms)  # rows beyond T' stay 0
    halves = np.empty((patterns, columns), np.float32)
    differences = np.empty((bits, columns), np.float32)
    all_sums, all_norms = np.empty_like(sums), np.empty_like(norms)
    flat_a, flat_own, flat_rows = A.reshape(-1), own.reshape(-1), sorted_rows.reshape(-1)
    none = np.zeros((images, 0), np.bool_)
    for image in range(images):
        head = image % heads
        unit, heavy = _LOWEST_SCALE, _ZERO
        for zeros in (sums, norms, all_sums, all_norms):
            zeros[:] = _ZERO
        for start in range(0, x.shape[1], _B):
            count = min(_B, x.shape[1] - start)
            _project_rows(y, image, start, count, transposed, biases, head, X, Y, P, H)
            _log_weights(exponents, constants, H, count, hidden, image, start, logs)
            _log_sizes(kinds, m, P, logs, key_scales)
            # Each key in its own unit, so that no bit of a query's result depends on later keys.
            for j in range(_B):
                units[j] = key_scales[j] if key_scales[j] > _LOWEST_SCALE else unit
            _write_features(kinds, m, P, logs, units, rows, W, F, squares, 0, fk)
            _write_signs(P, bases * m, n, bits, 0, key_signs)
            for r in range(n):
                for j in range(_B):
                    rk[r, j] = -_ONE if P[bases * m + r, j] < _ZERO else _ONE
            for j in range(_B):
                key_norms[j] = _norm(sizes, head, squares, j)
                for t in range(width):
                    turned[t, j] = fk[j, t]
            _project_rows(x, image, start, count, transposed, biases, head, X, Y, P, H)
            _log_weights(exponents, constants, H, count, none, image, start, logs)
            _log_sizes(kinds, m, P, logs, query_scales)
            for j in range(count):
                log_scale[image, start + j] = query_scales[j]
            for j in range(count, _B):
                query_scales[j] = _ZERO
            _write_features(kinds, m, P, logs, query_scales, rows, W, F, squares, 0, fq)
            _write_signs(P, bases * m, n, bits, 0, query_signs)
            for j in range(_B):
                for r in range(n):
                    rq[j, r] = -_ONE if P[bases * m + r, j] < _ZERO else _ONE
            for j in range(count):
                square = _ZERO
                for base in range(bases):
                    square += squares[base, j]
                size[image, start + j] = np.sqrt(square * np.float32(n + 1))
            if start > 0:
                _tables(sums, all_sums, columns, bits, C, head, halves, differences, table)
                _tables(norms, all_norms, 1, bits, C, head, halves, differences, norm_table)
                _read(
                    fq, query_signs, image, start, count, order, ends, sorted_f, sorted_rows, table,
                    norm_table, out, denominator,
                )  # fmt: skip
            for j in range(count):
                for c in range(dv):
                    own[j, c] = values[image, start + j, c]
            for j in range(count, _B):
                for c in range(dv):
                    own[j, c] = _ZERO
            running = unit
            for i in range(0, count, _ROWS):
                _products(kinds, m, C, head, i, fq, turned, rq, rk, scratch, A)
                for r in range(min(_ROWS, count - i)):
                    token = start + i + r
                    last = i + r
                    if units[last] > running:
                        running = units[last]
                        for j in range(last):
                            W[j] = _exp(units[j] - running)
                    W[last] = _exp(units[last] - running)
                    kept = _exp(unit - running)
                    added = kept * heavy
                    for j in range(last + 1):
                        A[last, j] *= W[j]
                        added += W[j] * key_norms[j]
                    for c in range(dv):
                        out[image, token, c] *= kept
                    denominator[image, token] *= kept
                    mass[image, token], reference[image, token] = added, running
                    product = _ZERO
                    for j in range(last + 1):
                        product += A[last, j]
                    denominator[image, token] += product
                for c in range(0, columns, _TILE):
                    _set_tile(
                        flat_a, i * _B, _B, 1, flat_own, c, columns, flat_rows, i * columns + c,
                        columns, i + _ROWS,
                    )  # fmt: skip
            for i in range(count):
                for c in range(dv):
                    out[image, start + i, c] += sorted_rows[i, c]
            if running > unit:
                factor = _exp(unit - running)
                unit = running
                heavy *= factor
                for each in (sums, norms, all_sums, all_norms):
                    _scale(each, factor)
            for j in range(count):
                key_norms[j] *= W[j]
                for t in range(width):
                    fk[j, t] *= W[j]
            for j in range(count):
                heavy += key_norms[j]
            _absorb(
                fk, key_signs, values, image, start, count, order, ends, sorted_f, sorted_rows,
                sums, norms,
            )  # fmt: skip
            if start // _B % _BLOCKS == _BLOCKS - 1:
                _flush(sums, all_sums)
                _flush(norms, all_norms)


_KEY_UNIT = np.float32(72 * np.log(2))  # of sums over keys: that of `attention.products`


@_fast
def _key_logarithms(
    tokens: Array, image: int, start: int, count: int, rows: Array, biases: Array, head: int,
    exponent: float, constant: float, hidden: NDArray[np.bool_], X: Array, H: Array, P: Array,
    scales: Array,
) -> None:  # fmt: skip
    """P: logarithms of the features of a block of keys, tokens last; -inf for hidden ones. scales:
    the largest of each token. X (d, 128) is used as memory."""
    d, size = tokens.shape[2], rows.shape[1]
    for j in range(_B):
        H[j] = -np.inf
        scales[j] = -np.inf
    for j in range(count):
        square = _ZERO
        for k in range(d):
            square += tokens[image, start + j, k] * tokens[image, start + j, k]
        if hidden.shape[1] == 0 or not hidden[image, start + j]:
            H[j] = exponent * square + constant
    for k in range(d):
        for j in range(count):
            X[k, j] = tokens[image, start + j, k]
        for j in range(count, _B):
            X[k, j] = _ZERO
    flat, flat_x, flat_p = rows.reshape(-1), X.reshape(-1), P.reshape(-1)
    for i in range(0, size, _ROWS):
        for j in range(0, _B, _TILE):
            _set_tile(flat, (head * size + i) * d, d, 1, flat_x, j, _B, flat_p, i * _B + j, _B, d)
    for i in range(biases.shape[1]):
        bias = biases[head, i]
        for j in range(_B):
            P[i, j] += bias + H[j]
            scales[j] = max(scales[j], P[i, j])


@_fast
def _query_features(
    tokens: Array, image: int, start: int, count: int, columns: Array, biases: Array, head: int,
    X: Array, P: Array,
) -> None:  # fmt: skip
    """P: features of a block of queries, tokens first, the largest of each token 1."""
    d, size, features = tokens.shape[2], columns.shape[2], biases.shape[1]
    for j in range(count):
        for k in range(d):
            X[j, k] = tokens[image, start + j, k]
    for j in range(count, _B):
        for k in range(d):
            X[j, k] = _ZERO
    flat_x, flat, flat_p = X.reshape(-1), columns.reshape(-1), P.reshape(-1)
    for i in range(0, size, _TILE):
        for j in range(0, _B, _ROWS):
            at = head * d * size + i
            _set_tile(flat_x, j * d, d, 1, flat, at, size, flat_p, j * size + i, size, d)
    for j in range(_B):
        largest = P[j, 0] + biases[head, 0]
        for i in range(features):
            P[j, i] += biases[head, i]
            largest = max(largest, P[j, i])
        for i in range(features):
            P[j, i] = _exp(P[j, i] - largest)
        for i in range(features, size):
            P[j, i] = _ZERO


@_fast
def attend_positive(
    x: Array,
    y: Array,
    values: Array,
    hidden: NDArray[np.bool_],
    weight: Array,
    kinds: NDArray[np.int64],
    exponents: Array,
    constants: Array,
    taus: Array,
    C: Array,
    causal: bool,
    out: Array,
    denominator: Array,
) -> None:
    """Attention by positive features, of all keys or of those up to each query.

    Args:
        x, y, values, hidden, weight, kinds, exponents, constants: as in `attend_signs`, for one
            base of positive or hyperbolic features.
        taus, C: not used.
        causal: whether blocks of 128 keys are summed after their queries have read the sums of
            earlier blocks; within a block products of all pairs are then formed.
        out, denominator: numerators (N, L, dv) and denominators (N, L), zeros, in units of
            `attention.products.key_unit`.
    """
    images, heads, m = x.shape[0], weight.shape[0], weight.shape[2]
    d, dv = x.shape[2], values.shape[2]
    features = 2 * m if kinds[0] == HYPERBOLIC else m
    size, width = (features + _TILE - 1) // _TILE * _TILE, (dv + _TILE - 1) // _TILE * _TILE
    rows, columns = np.zeros((heads, size, d), np.float32), np.zeros((heads, d, size), np.float32)
    biases = np.empty((heads, features), np.float32)
    for head in range(heads):
        for i in range(features):
            sign = _ONE if i < m else -_ONE
            biases[head, i] = sign * weight[head, 0, i % m, weight.shape[3] - 1]
            for k in range(d):
                rows[head, i, k] = sign * weight[head, 0, i % m, k]
                columns[head, k, i] = rows[head, i, k]
    Q, K, H = np.empty((_B, d), np.float32), np.empty((d, _B), np.float32), np.empty(_B, np.float32)
    phi_q, phi_k = np.empty((_B, size), np.float32), np.zeros((size, _B), np.float32)
    scales, units, W = np.empty(_B, np.float32), np.empty(_B, np.float32), np.empty(_B, np.float32)
    own, result = np.zeros((_B, width), np.float32), np.empty((_B, width), np.float32)
    A = np.empty((_B, _B), np.float32)
    all_sums, all_norms = np.empty((size, width), np.float32), np.empty((size, 1), np.float32)
    both_sums, both_norms = np.empty_like(all_sums), np.empty_like(all_norms)
    sums, norms = np.empty((size, width), np.float32), np.empty((size, 1), np.float32)
    flat_q, flat_k, flat_a = phi_q.reshape(-1), phi_k.reshape(-1), A.reshape(-1)
    flat_own, flat_result, flat_sums = own.reshape(-1), result.reshape(-1), sums.reshape(-1)
    flat_both = both_sums.reshape(-1)
    for image in range(images):
        head = image % heads
        unit = _LOWEST_SCALE
        for zeros in (sums, norms, all_sums, all_norms):
            zeros[:] = _ZERO
        for start in range(0, y.shape[1], _B):
            count = min(_B, y.shape[1] - start)
            _key_logarithms(
                y, image, start, count, rows, biases, head, exponents[0], constants[0], hidden, K,
                H, phi_k, scales,
            )  # fmt: skip
            largest = unit
            for j in range(count):
                largest = max(largest, scales[j])
            for j in range(_B):
                # In causal attention each key is in its own unit, so that no bit of a query's
                # result depends on later keys.
                units[j] = scales[j] if causal and scales[j] > _LOWEST_SCALE else largest
                W[j] = units[j] - _KEY_UNIT
            for i in range(features):
                for j in range(_B):
                    phi_k[i, j] = _exp(phi_k[i, j] - W[j])
            for j in range(count):
                for c in range(dv):
                    own[j, c] = values[image, start + j, c]
            for j in range(count, _B):
                for c in range(dv):
                    own[j, c] = _ZERO
            if causal:
                _query_features(x, image, start, count, columns, biases, head, Q, phi_q)
                _added(sums, all_sums, both_sums)
                _added(norms, all_norms, both_norms)
                running = unit
                for i in range(0, count, _ROWS):
                    for c in range(0, width, _TILE):
                        _set_tile(
                            flat_q, i * size, size, 1, flat_both, c, width,
                            flat_result, i * width + c, width, size,
                        )  # fmt: skip
                    for j in range(0, i + _ROWS, _TILE):
                        _set_tile(
                            flat_q, i * size, size, 1, flat_k, j, _B, flat_a, i * _B + j, _B, size
                        )  # fmt: skip
                    for r in range(min(_ROWS, count - i)):
                        last = i + r
                        if units[last] > running and scales[last] > _LOWEST_SCALE:
                            running = units[last]
                            for j in range(last):
                                W[j] = _exp(units[j] - running)
                        shown = scales[last] > _LOWEST_SCALE
                        W[last] = _exp(units[last] - running) if shown else _ZERO
                        kept, total = _exp(unit - running), _ZERO
                        for t in range(features):
                            total += phi_q[last, t] * both_norms[t, 0]
                        total *= kept
                        for j in range(last + 1):
                            A[last, j] *= W[j]
                            total += A[last, j]
                        for j in range(last + 1, _B):
                            A[last, j] = _ZERO
                        denominator[image, start + last] = total
                        for c in range(dv):
                            result[last, c] *= kept
                    for c in range(0, width, _TILE):
                        _add_tile(
                            flat_a, i * _B, _B, 1, flat_own, c, width, flat_result, i * width + c,
                            width, i + _ROWS,
                        )  # fmt: skip
                for i in range(count):
                    for c in range(dv):
                        out[image, start + i, c] = result[i, c]
                largest = running
            if largest > unit:
                factor = _exp(unit - largest)
                unit = largest
                for each in (sums, norms, all_sums, all_norms):
                    _scale(each, factor)
            for t in range(features):
                total = _ZERO
                if causal:
                    for j in range(count):
                        phi_k[t, j] *= W[j]
                for j in range(count):
                    total += phi_k[t, j]
                norms[t, 0] += total
            for t in range(0, features, _ROWS):
                for c in range(0, width, _TILE):
                    _add_tile(
                        flat_k, t * _B, _B, 1, flat_own, c, width, flat_sums, t * width + c, width,
                        count,
                    )  # fmt: skip
            if start // _B % _BLOCKS == _BLOCKS - 1:
                _flush(sums, all_sums)
                _flush(norms, all_norms)
        if causal:
            continue
        _added(sums, all_sums, both_sums)
        _added(norms, all_norms, both_norms)
        for start in range(0, x.shape[1], _B):
            count = min(_B, x.shape[1] - start)
            _query_features(x, image, start, count, columns, biases, head, Q, phi_q)
            for c in range(0, width, _TILE):
                for j in range(0, count, _ROWS):
                    _set_tile(
                        flat_q, j * size, size, 1, flat_both, c, width, flat_result, j * width + c,
                        width, size,
                    )  # fmt: skip
            for j in range(count):
                total = _ZERO
                for t in range(features):
                    total += phi_q[j, t] * both_norms[t, 0]
                denominator[image, start + j] = total
                for c in range(dv):
                    out[image, start + j, c] = result[j, c]
