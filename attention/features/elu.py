"""elu(u) + 1, the map of linear transformers: for comparison, another kernel.

phi(u)_l = u_l + 1 for u_l >= 0, exp(u_l) below (Katharopoulos et al., Transformers are RNNs, eq 7).
Nothing is random and nothing estimated: the kernel is phi(x).phi(y) itself, and neither exp(x.y)
nor the Gaussian kernel.
"""

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, component
from attention.features.base import FeatureMap, LogFeatures, ScaledFeatures, scaled_exp
from attention.features.vectors import check_unused
from attention.precision import working_dtype


class EluFeatures(FeatureMap):
    """F = d, positive.

    Args:
        dim: d.
        num_features, projection, seed: checked and not used: there are no random vectors.
        kernel: either name; the map has its own kernel and is the same for both.
        heads: as in `FeatureMap`.
        dtype, device: of the inputs that the map takes; default PyTorch's.

    Raises ValueError for a projection that is no coupling's name.
    """

    own_kernel = True

    place: Tensor
    """Empty; its dtype and device are the map's."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str = "orthogonal",
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel, heads=heads)
        check_unused("elu", projection)
        dtype = working_dtype(dtype or torch.get_default_dtype())
        self.register_buffer("place", torch.empty(0, dtype=dtype, device=device), persistent=False)

    @property
    def output_dim(self) -> int:
        return self.dim

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries and keys", x, self.place)
        with component(EXPONENTIALS):
            return x.relu() + x.clamp(max=0).exp()

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        logarithms, _ = self.log_queries(x)
        with component(EXPONENTIALS):
            return scaled_exp(logarithms)

    def log_queries(self, x: Tensor) -> LogFeatures:
        x = self.prepare("queries and keys", x, self.place)
        with component(EXPONENTIALS):
            return LogFeatures(x.relu().log1p() + x.clamp(max=0), x.new_zeros(1))

    def redraw(self, generator: torch.Generator) -> None:
        """Nothing is random: this does nothing."""
