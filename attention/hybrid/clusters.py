"""Clusters of queries or keys: centres, second moments and nearest centres."""

import torch
from torch import Tensor

from attention.features.parameters import given_numbers, holds
from attention.features.vectors import sums_by_vector
from attention.options import check_count
from foveate_extras import needs


def initial_centers(
    side: str, centers: Tensor | None, number: int | None, heads: int | None, omega: Tensor
) -> Tensor:
    """Return a copy of the given centres on the device of omega, or `number` zero centres, for
    `fit_clusters` to set.

    (number, d), or (heads, number, d); default 2 where no centres are given. Raises ValueError for
    another shape, entries that are not finite or a number below 1; `side`, "query" or "key", is
    part of the argument names.
    """
    dim = omega.shape[-1]
    leading = () if heads is None else (heads,)
    if centers is None:
        number = check_count(f"num_{side}_clusters", 2 if number is None else number)
        return omega.new_zeros(*leading, number, dim)
    centers = given_numbers(f"{side}_centers", centers)
    shape = tuple(centers.shape)
    number = shape[-2] if number is None and len(shape) > 1 else number
    allowed = (*leading, number, dim)
    if shape != allowed:
        raise ValueError(f"{side}_centers must have shape {allowed}, got {shape}")
    if not holds(centers.isfinite()):
        raise ValueError(f"{side}_centers must be finite, got a non-finite entry")
    return centers.to(omega, copy=True)


def fit_clusters(u: Tensor, centers: Tensor, rms: Tensor, seed: int) -> None:
    """Set centres (c, d) by k-means of all tokens u (..., L, d), and their clusters' root mean
    squares; or (heads, c, d) for each head of u (..., heads, L, d)."""
    if centers.ndim == 2:
        points = u.flatten(0, -2)
        centers.copy_(k_means(points, len(centers), seed))
        rms.copy_(root_mean_squares(points, centers))
        return
    for points, own, own_rms in zip(u.movedim(-3, 0), centers, rms, strict=True):
        fit_clusters(points, own, own_rms, seed)


def root_mean_squares(points: Tensor, centers: Tensor) -> Tensor:
    """Return sqrt(E u_k^2) over the cluster of each centre: points (N, d), centers (c, d) -> (c,
    d).

    The variance of a cluster includes one more member with the variance pooled over all clusters. A
    cluster with at most one member therefore has the pooled variance, and clusters of equal spread
    have the unbiased variance.
    """
    member = nearest(points, centers).to(points)
    size = member.sum(0).unsqueeze(-1)
    deviations = points - member @ centers
    squares = member.T @ deviations.square()
    pooled = squares.sum(0) / (size - 1).clamp(min=0).sum().clamp(min=1)
    return (centers.square() + (squares + pooled) / size.clamp(min=1)).sqrt()


def k_means(points: Tensor, clusters: int, seed: int) -> Tensor:
    """Cluster points (N, d) by scikit-learn's k-means with ten starts; return centres (clusters,
    d).

    The result does not depend on the number of threads.

    Raises ValueError for fewer points than clusters, ImportError without scikit-learn.
    """
    with needs("fit of clustered_hybrid without centres", "sklearn"):
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

    if len(points) < clusters:
        raise ValueError(
            f"fit needs at least {clusters} tokens, one for each cluster, got {len(points)}"
        )
    means = KMeans(clusters, n_init=10, random_state=seed % 2**32)
    with threadpool_limits(1):  # several threads would change the order of the sums
        fitted = means.fit(points.detach().double().cpu().numpy())
    return torch.as_tensor(fitted.cluster_centers_).to(points)


def nearest(u: Tensor, centers: Tensor) -> Tensor:
    """Return the nearest centre, one-hot bool: u (..., L, d), centers (..., c, d) -> (..., L,
    c)."""
    # |u|^2 is common to all centres.
    distances = sums_by_vector(centers.square()) - 2 * u @ centers.mT
    chosen = distances.argmin(-1, keepdim=True)
    return chosen == torch.arange(centers.shape[-2], device=u.device)
