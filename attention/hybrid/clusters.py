"""Cluster centres of queries or keys, and which of them is nearest."""

import torch
from torch import Tensor


def k_means(points: Tensor, clusters: int, seed: int) -> Tensor:
    """Centres of points (N, d) by scikit-learn's k-means, ten starts: (clusters, d)."""
    from sklearn.cluster import KMeans

    if len(points) < clusters:
        raise ValueError(
            f"fit needs at least {clusters} tokens for as many clusters, got {len(points)}"
        )
    fitted = KMeans(clusters, n_init=10, random_state=seed).fit(
        points.detach().double().cpu().numpy()
    )
    return torch.as_tensor(fitted.cluster_centers_).to(points)


def nearest(u: Tensor, centers: Tensor) -> Tensor:
    """Which centre is nearest, one-hot bool: u (..., L, d), centers (..., c, d) -> (..., L, c)."""
    # |u|^2 is common to all centres.
    distances = centers.square().sum(-1).unsqueeze(-2) - 2 * u @ centers.mT
    chosen = distances.argmin(-1, keepdim=True)
    return chosen == torch.arange(centers.shape[-2], device=u.device)
