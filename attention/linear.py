"""Linear attention: the same result as the quadratic form on the features, in O(L F dv).

out_i = sum_j (phi_q_i . phi_k_j) v_j / sum_j (phi_q_i . phi_k_j), where the product of key features
and values is computed first. There is no epsilon: a constant added to features or denominators
would bias the result and dominate it when features are small.

Key features may be given as mantissa * exp(log_scale). Sums are then kept in units of the largest
scale: of all visible keys, or for causal attention of the keys up to each query, so that a later
key, however large, changes no earlier output by a bit. Features without scales are first
normalised, so that tiny and huge features lose no precision in outputs and gradients.
"""

from collections.abc import Iterable

from torch import Tensor

from attention.causal import KeyBlock, QueryBlock, causal_blocks, chunk_rows
from attention.components import SCORE, component
from attention.joining import Rows
from attention.precision import full_precision
from attention.scales import scaled_tokens
from attention.sums import LongSum, empty_state, read
from attention.token_checks import check_features, check_tokens, without_queries


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_log_scale: Tensor | None = None,
    log_floor: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Compute attention from features.

    phi_q (..., L, F), phi_k (..., S, F), v (..., S, dv) -> (..., L, dv) in v's dtype. Sums are in
    float32 for float16 and bfloat16, autocast or not.

    Scaling a row of phi_q, or all of phi_k by one number, changes nothing; scaling single rows of
    phi_k does. A query that sees no key gets an output of zeros and zero gradients. L = 0 gives an
    output (..., 0, dv) for any S.

    Args:
        causal: query i sees keys 0..i only; needs L = S.
        key_mask: boolean, True where a key takes part. Masked keys are left out of the numerator
            and the denominator. The shape is (S,), or has as many leading dimensions as the tokens:
            (B, 1, S) with heads.
        key_log_scale: (..., S, 1), the key features are phi_k * exp(key_log_scale).
        log_floor: (..., L, 1), log of the least denominator sum_j phi_q_i . phi_k_j allowed.
        signed: whether the features can give denominators at or below zero (trig, hybrids). If so,
            denominators below their rounding error are raised and the output is clipped to +-max
            |v|, the policy of `attention.denominators`. Otherwise the output is the plain ratio.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, no key for a query, or a mask that
            is not boolean.
    """
    check_tokens(phi_q, phi_k, v, causal, key_mask, ("phi_q", "phi_k"))
    check_features(phi_q, phi_k)
    if phi_q.shape[-2] == 0:
        return without_queries(phi_q, phi_k, v)
    tokens = scaled_tokens(
        phi_q,
        phi_k,
        v,
        causal=causal,
        key_mask=key_mask,
        key_log_scale=key_log_scale,
        log_floor=log_floor,
    )
    if causal:
        rows = chunk_rows(phi_q)
        output, _ = causal_blocks(tokens.query_blocks(rows), tokens.key_blocks(rows), signed)
    else:
        output = bidirectional_blocks(
            tokens.query_blocks(None), tokens.key_blocks(None), signed, phi_q.shape[-2]
        )
    return output.to(v.dtype)


def bidirectional_blocks(
    queries: Iterable[QueryBlock], keys: Iterable[KeyBlock], signed: bool, count: int
) -> Tensor:
    """Attention of all `count` queries over all keys. Blocks are processed one at a time, all keys
    first."""
    sums = None
    for phi_k, log_scale, v in keys:
        with component(SCORE), full_precision(v):
            if sums is None:
                sums = LongSum(empty_state(phi_k.mantissa, v), own=True)
            sums.absorb(phi_k, log_scale, v, signed)
    assert sums is not None
    state = sums.total
    outputs = Rows(count)
    for phi_q, log_floor in queries:
        with component(SCORE), full_precision(phi_q.mantissa):
            outputs.add(read(state, phi_q, log_floor, signed))
    return outputs.whole()
