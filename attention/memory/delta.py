"""The delta rule: a token corrects the memory's output at its key, S += b k (v - S^T k)^T.

With unit features k = phi(y) / |phi(y)| a token is a rank-one update, S <- (I - b k k^T) S + b k
v^T, which cannot grow for b in [0, 1]. This is Widrow and Hoff's rule as a fast weight memory:
Schlag, Irie and Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers, eq 24; with
forgetting, S <- d S before it, Yang, Kautz and Hatamizadeh, Gated Delta Networks, eq 10.

Many tokens at once: S after token i is D_i S_0 + sum_{j<=i} (D_i / D_j) k_j r_j^T, where D_i is the
product of all factors up to i, and the corrections r solve a unit triangular system,

    r_i + b_i sum_{j<i} (D_i / D_j) (k_i.k_j) r_j = b_i (v_i - D_i S_0^T k_i)

(the UT transform of the WY representation: Yang, Wang, Zhang, Shen and Kim, Parallelizing Linear
Transformers with the Delta Rule over Sequence Length, section 3.2). The rest is a plain sum.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.causal import slices
from attention.decays import between, since_start, without_subnormal
from attention.memory.tokens import Written
from attention.products import Features, product
from attention.tracing import is_exporting

TOKENS = 64
"""Number of tokens per triangular system, of size TOKENS^2."""


class DeltaState(NamedTuple):
    """State of the delta rule."""

    values: Tensor
    """S (..., F, dv)"""


def initial_state(
    shape: tuple[int, ...],
    num_features: int,
    value_dim: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> DeltaState:
    """Return the state of zeros before the first token; arguments as in `attention.recurrent`."""
    return DeltaState(torch.zeros(*shape, num_features, value_dim, dtype=dtype, device=device))


def unit(features: Tensor) -> Tensor:
    """Normalise features (..., F) to length 1; zeros are not changed."""
    return torch.nn.functional.normalize(features, dim=-1, eps=torch.finfo(features.dtype).tiny)


def read(state: DeltaState, queries: Features) -> Tensor:
    """Read the memory at queries (..., L, F): S^T phi / |phi|, (..., L, dv)."""
    return product(unit(queries.mantissa), state.values)


def write(state: DeltaState, tokens: Written, decay: Tensor) -> DeltaState:
    """Multiply the state by the decay (...), then write L tokens in order."""
    state = DeltaState(state.values * decay[..., None, None])
    for rows in slices(tokens.values.shape[-2], TOKENS):
        keys, values, rates = _unit_tokens(tokens, rows)
        if values.shape[-2] > 0:
            state = DeltaState(state.values + keys.mT @ _corrections(state, keys, values, rates))
    return state


def write_frames(state: DeltaState, tokens: Written, decay: Tensor) -> DeltaState:
    """Return the states after each of T frames, (..., T, F, dv): T calls of `write` by one solve.

    tokens are (..., T, L, .) and decay (..., T).
    """
    frames, length = tokens.values.shape[-3:-1]
    if frames == 1:
        only = tokens.frame()
        return DeltaState(write(state, only, decay[..., 0]).values.unsqueeze(-3))
    keys, values, rates = _unit_tokens(tokens, slice(None))
    factors = without_subnormal(decay).unsqueeze(-1)
    # The decay comes before the first token of a frame.
    by_token = torch.cat((factors, factors.new_ones(*decay.shape, length - 1)), -1)
    k, v, b, d = (t.flatten(-3, -2) for t in (keys, values, rates, by_token.unsqueeze(-1)))
    corrections = _corrections(state, k, v, b, d).unflatten(-2, (frames, length))
    added = keys.mT @ corrections
    sums = (between(factors) @ added.flatten(-2)).unflatten(-1, added.shape[-2:])
    return DeltaState(state.values.unsqueeze(-3) * since_start(factors).unsqueeze(-1) + sums)


def _unit_tokens(tokens: Written, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Unit keys, values and rates b (..., L, 1) of tokens."""
    keys, log_scale, values, gates = tokens
    rates = (log_scale[..., rows, :] > -torch.inf).to(values.dtype)
    if gates is not None:
        rates = rates * gates[..., rows, :]
    return unit(keys.mantissa[..., rows, :]), values[..., rows, :], rates


def _corrections(
    state: DeltaState, keys: Tensor, values: Tensor, rates: Tensor, factors: Tensor | None = None
) -> Tensor:
    """Return r (..., n, dv) of n tokens in order, each after a decay of factors (..., n, 1)."""
    n = keys.shape[-2]
    overlaps, expected = rates * (keys @ keys.mT), product(keys, state.values)
    if factors is not None:
        overlaps, expected = overlaps * between(factors), expected * since_start(factors)
    wanted = rates * (values - expected)
    if not (torch.compiler.is_compiling() and is_exporting()):
        return torch.linalg.solve_triangular(overlaps, wanted, upper=False, unitriangular=True)
    # ONNX has no such operator: forward substitution, unrolled for a static n.
    found = wanted[..., :1, :]
    for i in range(1, n):
        row = wanted[..., i : i + 1, :] - overlaps[..., i : i + 1, :i] @ found
        found = torch.cat((found, row), -2)
    return found
