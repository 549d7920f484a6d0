"""Maps without random vectors: nothing is estimated, the kernel is phi(x).phi(y) itself."""

from typing import ClassVar

import torch
from torch import Tensor

from attention.features.base import FeatureMap
from attention.precision import working_dtype
from attention.projections import available_projections


class FixedFeatures(FeatureMap):
    """A map with a kernel of its own, neither exp(x.y) nor the Gaussian one.

    Args:
        dim, heads: as in `FeatureMap`.
        num_features: checked, and used where a subclass says so.
        kernel: either name; the map is the same for both.
        projection, seed: checked and not used: there are no random vectors.
        dtype, device: of the inputs that the map takes; default PyTorch's.

    Raises ValueError for a projection that is no coupling's name.
    """

    name: ClassVar[str]
    """Under which `attention.feature_map` knows it."""
    own_kernel = True

    place: Tensor
    """Empty; its dtype and device are the map's."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor | None = "orthogonal",
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel, heads=heads)
        if projection not in available_projections():
            got = repr(projection) if isinstance(projection, str) else "a tensor"
            raise ValueError(
                f"projection of {self.name}, which has none, must be a name that other maps take, "
                f"got {got}"
            )
        dtype = working_dtype(dtype or torch.get_default_dtype())
        self.register_buffer("place", torch.empty(0, dtype=dtype, device=device), persistent=False)

    def redraw(self, generator: torch.Generator) -> None:
        """Nothing is random: this does nothing."""
