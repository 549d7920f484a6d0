"""Grouped-query heads: groups of neighbouring query heads that share a key and a value head
(Ainslie et al. 2023, GQA), without repeating keys or values.

Keys and values have a dimension of size 1 where queries have the group, so that features of keys
and sums over them are computed once a group.
"""

from torch import Tensor


def split_queries(q: Tensor, kv_heads: int) -> Tensor:
    """(batch, heads, L, d) -> (batch, heads / kv_heads, kv_heads, L, d); unchanged if kv_heads is
    heads."""
    heads = q.shape[1]
    return q if heads == kv_heads else q.unflatten(1, (kv_heads, -1)).transpose(1, 2)


def split_keys(k: Tensor, heads: int) -> Tensor:
    """(batch, kv_heads, S, d) -> (batch, 1, kv_heads, S, d), for `heads` query heads; unchanged if
    kv_heads is heads."""
    return k if k.shape[1] == heads else k.unsqueeze(1)


def joined_heads(attended: Tensor) -> Tensor:
    """(batch, groups, kv_heads, L, dv) -> (batch, heads, L, dv); other shapes unchanged."""
    return attended if attended.ndim < 5 else attended.transpose(1, 2).flatten(1, 2)
