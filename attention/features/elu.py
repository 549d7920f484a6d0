"""elu(u) + 1, the map of linear transformers: for comparison, another kernel.

phi(u)_l = u_l + 1 for u_l >= 0, exp(u_l) below (Katharopoulos et al., Transformers are RNNs, eq 7).
Nothing is random and nothing estimated: the kernel is phi(x).phi(y) itself, and neither exp(x.y)
nor the Gaussian kernel.
"""

from torch import Tensor

from attention.components import EXPONENTIALS, component
from attention.features.base import LogFeatures, ScaledFeatures, scaled_exp
from attention.features.fixed import FixedFeatures


class EluFeatures(FixedFeatures):
    """F = d, positive; num_features is not used. Args as in `FixedFeatures`."""

    name = "elu"

    @property
    def output_dim(self) -> int:
        return self.dim

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries and keys", x, self.place)
        with component(EXPONENTIALS):
            return x.relu() + x.clamp(max=0).exp()

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        logarithms = self.log_queries(x).logarithms
        with component(EXPONENTIALS):
            return scaled_exp(logarithms)

    def log_queries(self, x: Tensor) -> LogFeatures:
        x = self.prepare("queries and keys", x, self.place)
        with component(EXPONENTIALS):
            return LogFeatures(x.relu().log1p() + x.clamp(max=0), x.new_zeros(1))
