"""Euclidean norms of tokens and of features."""

import torch
from torch import Tensor

from attention.tracing import is_for_onnx, may_write


def column_sums(rows: Tensor) -> Tensor:
    """Sums over rows: (..., n, L) -> (..., 1, L). ONNX Runtime is quicker with a product."""
    if is_for_onnx():
        return rows.new_ones(1, rows.shape[-2]) @ rows
    return rows.sum(-2, keepdim=True)


def half_squares(tokens: Tensor) -> Tensor:
    """|u|^2 / 2 of each token: (..., L, d) -> (..., L, 1)."""
    if _in_one_pass(tokens):
        return torch.linalg.vector_norm(tokens, dim=-1, keepdim=True).square_().mul_(0.5)
    return 0.5 * tokens.square().sum(-1, keepdim=True)


def token_norms(tokens: Tensor) -> Tensor:
    """|.|_2 of each token: (..., L, d) -> (..., L, 1), at least the square root of the smallest
    number.

    Unlike with `vector_norm`, second derivatives at a zero token are finite: 0.
    """
    if _in_one_pass(tokens):
        least = torch.finfo(tokens.dtype).tiny ** 0.5
        return torch.linalg.vector_norm(tokens, dim=-1, keepdim=True).clamp_min_(least)
    return root(tokens.square().sum(-1, keepdim=True))


def root(squares: Tensor) -> Tensor:
    """sqrt of at least the smallest number, so that its derivatives at 0 are finite."""
    return squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()


def lengths(rows: Tensor) -> Tensor:
    """|.|_2 of each row: (..., C, F) -> (..., C, 1). Constant for gradients, as floors are."""
    rows = rows.detach()
    if rows.dtype == torch.bfloat16:
        rows = rows.float()
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True)


def _in_one_pass(tokens: Tensor) -> bool:
    """Whether `vector_norm` is correct and faster than the two passes of a sum of squares. It is
    several times slower on short or non-contiguous rows."""
    return tokens.shape[-1] >= 16 and tokens.stride(-1) == 1 and may_write(tokens)
