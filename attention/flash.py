"""Causal linear attention by the kernels of flash-linear-attention, on GPUs.

Its operator `chunk_simple_gla` (MIT; versions 0.4 to 0.6 have the same arguments; Yang et al. 2024,
Gated Linear Attention Transformers with Hardware-Efficient Training) computes for each sequence

    S_i = exp(g_i) S_{i-1} + k_i v_i^T,    o_i = q_i S_i.

A key has features phi_i exp(s_i). In the units of `attention.causal`, r_i = max(r_{i-1}, s_i), it
is k_i = phi_i exp(s_i - r_i), and earlier sums decay by g_i = r_{i-1} - r_i. No exponent is
positive, so nothing overflows, and a later key changes no earlier output. A column of ones beside
the values gives denominators, whose rounding errors are those of the numerators.

The kernels compute in bfloat16 with sums in float32, so they are used for queries and keys in
bfloat16, whose features have such errors anyway, and without gradients, which could overflow there
(see `attention.products`).
"""

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attention.causal import KeyBlock, QueryBlock
from attention.components import SCORE, component, is_watched
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.norms import lengths
from attention.precision import full_precision, product_dtype
from attention.products import key_unit
from attention.relative import largest_entry
from attention.running import running_max
from attention.sums import LinearAttentionState, empty_state
from attention.tracing import may_write

Operator = Callable[..., tuple[Tensor, Tensor]]
"""`chunk_simple_gla`."""
LEAST_GATE = -120.0
"""exp(-120) is zero in float32. The kernel adds gates, and smaller ones would leave no digits."""


def operator(x: Tensor, y: Tensor, values: Tensor) -> Operator | None:
    """Return the operator for queries, keys (..., L, d) and values (..., L, dv), or None if
    `attention.causal` computes them. FOVEATE_FLA=0 turns it off."""
    if (
        product_dtype(x, y) != torch.bfloat16
        or not may_write(x, y, values)
        or torch.jit.is_tracing()
        or is_watched()
        or os.environ.get("FOVEATE_FLA") == "0"
    ):
        return None
    return _installed()


@cache
def _installed() -> Operator | None:
    try:
        kernels: Any = import_module("fla.ops.simple_gla")
    except ImportError:
        return None
    found: Operator = kernels.chunk_simple_gla
    return found


def causal(
    operator: Operator,
    queries: QueryBlock,
    keys: KeyBlock,
    signed: bool,
    state: LinearAttentionState | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[Tensor, LinearAttentionState]:
    """Return what `attention.causal.causal_blocks` does for all tokens as one block.

    Args:
        operator: `chunk_simple_gla`.
        dtype: in which the operator computes products.
    """
    (phi_q, log_floor), (phi_k, log_scale, v) = queries, keys
    with component(SCORE), full_precision(v):
        if state is None:
            state = empty_state(phi_k.mantissa, v)
        leading, length = state.values.shape[:-2], v.shape[-2]
        log_scale = log_scale.expand(*leading, length, 1)
        scales = running_max(torch.cat((state.log_scale, log_scale), -2), -2)
        before, reference = scales[..., :-1, :], scales[..., 1:, :]
        unit = key_unit(v.dtype, signed)
        weighted = phi_k.mantissa * ((log_scale - reference).exp() * unit)
        extended = torch.cat((v, v.new_ones(*v.shape[:-1], 1)), -1)
        sums = torch.cat((state.values, state.normaliser.mT), -1)

        def apart(t: Tensor) -> Tensor:
            # Each sequence and head is a sequence of one head, so that nothing is transposed.
            return t.expand(*leading, *t.shape[-2:]).reshape(-1, t.shape[-2], 1, t.shape[-1])

        output, sums = operator(
            *(apart(t.to(dtype)) for t in (phi_q.mantissa, weighted, extended)),
            g=apart((before - reference).clamp_min(LEAST_GATE)).squeeze(-1),
            scale=1.0,
            initial_state=sums.reshape(-1, 1, *sums.shape[-2:]),
            output_final_state=True,
        )
        both = output.to(v.dtype).reshape(*leading, length, -1)
        numerator, denominator = both[..., :-1], both[..., -1:]
        mass, largest = state.mass, state.largest_value
        if signed:
            sizes = log_scale + lengths(phi_k.mantissa).log()
            total = torch.cat((state.mass.log() + state.log_scale, sizes), -2).logcumsumexp(-2)
            mass = (total[..., 1:, :] - reference).exp()
            floor = rounding_floor(lengths(phi_q.mantissa), mass)
            largest = torch.maximum(largest, running_max(largest_entry(v), -2))
            denominator = raised(denominator, log_floor, reference, floor)
            result = bounded(divide(numerator, denominator, signed), largest)
        else:
            denominator = raised(denominator, log_floor, reference, unit=unit)
            result = divide(numerator, denominator, signed)
        sums = sums.reshape(*leading, *sums.shape[-2:])
        values, normaliser = sums[..., :-1].contiguous(), sums[..., -1:].mT.contiguous()
        ends = (entry[..., -1:, :].clone() for entry in (mass, largest, reference))
        return result, LinearAttentionState(values, normaliser, *ends)
