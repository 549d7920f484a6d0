"""ReLU features of Performer's generalised attention, with a different kernel, for comparison.

phi(u) = (max(omega_i.u, 0) + epsilon) / sqrt(m). With angle theta between x and y the estimate's
mean is (arc-cosine kernel of order 1)

    |x||y| (sin theta + (pi - theta) cos theta) / (2 pi)
        + epsilon (|x| + |y|) / sqrt(2 pi) + epsilon^2,

neither exp(x.y) nor the Gaussian kernel, so a softmax model does not carry over to it.
"""

import math
from typing import Unpack

import torch
from torch import Tensor

from attention.features.base import ScaledFeatures
from attention.features.map_options import MapOptions
from attention.features.projected import ProjectedFeatures
from attention.options import check_positive


class ReluFeatures(ProjectedFeatures):
    """ReLU features: F = m, positive.

    Args:
        dim, num_features: d and m.
        epsilon: positive constant, so that every query attends to something; part of the kernel.
        options: options of every map, see `MapOptions`. `kernel` has no effect: the map has a
            custom kernel.

    Raises ValueError for an epsilon that is not positive and finite.
    """

    own_kernel = True
    functions_per_projection = 1

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        epsilon: float = 1e-3,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        check_positive(epsilon=epsilon)
        self.epsilon = epsilon

    def evaluate(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        return (projections.relu() + self.epsilon) * log_weight.exp()

    def evaluate_scaled(
        self, projections: Tensor, log_weight: Tensor, dim: int = -1
    ) -> ScaledFeatures:
        features = projections.relu() + self.epsilon
        largest = features.detach().amax(dim, keepdim=True)
        return ScaledFeatures(features / largest, log_weight + largest.log())

    def log_weight(self, half_square: Tensor) -> Tensor:
        return torch.full_like(half_square, -0.5 * math.log(self.num_features))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, epsilon={self.epsilon}"
