"""Maps that take no vectors, whose kernel is their own."""

from typing import ClassVar

import torch
from torch import Tensor

from attention.features.base import FeatureMap
from attention.precision import working_dtype
from attention.projections import available_projections


class FixedFeatures(FeatureMap):
    """Base class of maps with a custom kernel, neither exp(x.y) nor the Gaussian kernel.

    Args:
        dim, heads: as in `FeatureMap`.
        num_features: validated; used only by some subclasses.
        kernel: validated; the map is the same for both kernels.
        projection, seed: validated but not used, since there are no random vectors.
        dtype, device: of the inputs; default: those of PyTorch.

    Raises ValueError for a projection that is not the name of a coupling.
    """

    name: ClassVar[str]
    """Name of the map in `attention.feature_map`."""
    own_kernel = True

    place: Tensor
    """Empty tensor that holds the dtype and device of the map."""

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
                f"projection of {self.name}, which takes no vectors, must be a known name, "
                f"got {got}"
            )
        dtype = working_dtype(dtype or torch.get_default_dtype())
        self.register_buffer("place", torch.empty(0, dtype=dtype, device=device), persistent=False)

    def redraw(self, generator: torch.Generator) -> None:
        """Does nothing: the map has no random vectors."""
