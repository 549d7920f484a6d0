"""Bases for the pairs of clusters with the most mass, and a default base for the others.

Hybrid Random Features, end of section 2.4. A pair's mass is its share of the pairs of tokens: the
share of queries in cluster i times that of keys in cluster j. With zero-one coefficients the
default base S_0 has the weight 1 - sum lambda_ij, which is 1 on the omitted pairs and 0 on the
others: a table W of zeros and ones. With one-hot rows e_i of the query's cluster,

    [e_i(x) (x) phi_0(x)].[W_.j(y) (x) phi_0(y)],   nq T features,

needs neither a column per pair nor differences of features, unlike Lemma 2.3.
"""

import torch
from torch import Tensor

from attention.features import ScaledFeatures
from attention.hybrid.clusters import nearest
from attention.hybrid.composition import common_scale
from attention.options import check_count
from attention.precision import lowest


def first_pairs(
    number: int | None, clusters: tuple[int, int], heads: int | None, device: torch.device
) -> Tensor | None:
    """Return the first `number` of nq x nk pairs, for a map before `fit`: (p, 2) or (heads, p, 2).

    Returns None for all pairs. Raises ValueError for a number outside 1 to nq nk.
    """
    most = clusters[0] * clusters[1]
    if number is None or check_count("num_pairs", number) == most:
        return None
    if number > most:
        raise ValueError(
            f"num_pairs must be at most {most}, the number of pairs of clusters, got {number}"
        )
    flat = torch.arange(number, device=device)
    pairs = torch.stack((flat // clusters[1], flat % clusters[1]), -1)
    return pairs if heads is None else pairs.repeat(heads, 1, 1)


def cluster_masses(u: Tensor, centers: Tensor) -> Tensor:
    """Return the share of the tokens u (..., L, d) in each cluster: centers (c, d) -> (c,), or with
    heads."""
    own = nearest(u, centers).to(u.dtype).mean(-2)
    return own.reshape(-1, *centers.shape[:-1]).mean(0)


def massive_pairs(of_queries: Tensor, of_keys: Tensor, number: int) -> Tensor:
    """Return the p = `number` pairs with the most mass; among equal ones the first.

    Masses of clusters (..., nq), (..., nk) -> (..., p, 2).
    """
    mass = (of_queries.unsqueeze(-1) * of_keys.unsqueeze(-2)).flatten(-2)
    order = torch.sort(mass, dim=-1, descending=True, stable=True).indices
    flat = order[..., :number].sort(-1).values
    count = of_keys.shape[-1]
    return torch.stack((flat // count, flat % count), -1)


def of_pairs(table: Tensor, pairs: Tensor) -> Tensor:
    """Select the rows (..., nq, nk, d) of pairs (..., p, 2): (..., p, d)."""
    flat = pairs[..., 0] * table.shape[-2] + pairs[..., 1]
    return torch.take_along_dim(table.flatten(-3, -2), flat.unsqueeze(-1), -2)


def default_rows(own: Tensor, pairs: Tensor, clusters: tuple[int, int], *, key: bool) -> Tensor:
    """Return the weights of the default base's features of tokens: e_i or W_.j, (..., L, nq).

    own (..., L, c): the cluster of each token, one-hot. The weight is zero for tokens without the
    default base.
    """
    first, second = (
        (pairs[..., side, None] == torch.arange(count, device=pairs.device)).to(torch.float32)
        for side, count in enumerate(clusters)
    )
    rest = 1 - first.mT @ second
    if key:
        return own.to(rest.dtype) @ rest.mT
    return own * rest.amax(-1, keepdim=True).mT


def with_default(own: ScaledFeatures, default: ScaledFeatures, rows: Tensor) -> ScaledFeatures:
    """Return features of the bases of the pairs and, weighted by `default_rows`, of the default
    base."""
    rest = (rows.unsqueeze(-1) * default.mantissa.unsqueeze(-2)).flatten(-2)
    unused = ~rows.any(-1, keepdim=True)
    scale = default.log_scale.masked_fill(unused, lowest(rest.dtype))
    parts, log_scale = common_scale([own, ScaledFeatures(rest, scale)])
    return ScaledFeatures(torch.cat(parts, -1), log_scale)
