"""elu(u) + 1, the map of linear transformers, with a different kernel, for comparison.

phi(u)_l = u_l + 1 for u_l >= 0, exp(u_l) below (Katharopoulos et al., Transformers are RNNs, eq 7).
The map is deterministic: the kernel is phi(x).phi(y) itself, neither exp(x.y) nor the Gaussian
kernel.
"""

from torch import Tensor

from attention.components import EXPONENTIALS, component
from attention.features.base import LogFeatures, ScaledFeatures, scaled_exp
from attention.features.fixed import FixedFeatures


class EluFeatures(FixedFeatures):
    """elu(u) + 1: F = d, positive. num_features is not used. The arguments are those of
    `FixedFeatures`."""

    name = "elu"

    @property
    def output_dim(self) -> int:
        return self.dim

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries and keys", x, self.place)
        with component(EXPONENTIALS):
            return x.relu() + x.masked_fill(x > 0, 0).exp()

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        logarithms = self.log_queries(x).logarithms
        with component(EXPONENTIALS):
            return scaled_exp(logarithms)

    def log_queries(self, x: Tensor) -> LogFeatures:
        x = self.prepare("queries and keys", x, self.place)
        with component(EXPONENTIALS):
            return LogFeatures(x.relu().log1p() + x.masked_fill(x > 0, 0), x.new_zeros(1))
