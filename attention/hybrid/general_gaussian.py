"""The general Gaussian coefficient: near 1 where x is close to -M y.

lambda(x, y) = exp(-|x + M y|^2 / (2 c^2)) (Hybrid Random Features eq 20, with the minus signs that
are missing in the text) is a Gaussian kernel of x/c and -M y/c, so any feature map of that kernel
estimates it. M = I favours opposite queries and keys, M = -I equal ones.
"""

from typing import Unpack

import torch
from torch import Tensor

from attention.features import FeatureMap, PositiveFeatures, TrigFeatures
from attention.features.map_options import VectorOptions
from attention.features.parameters import given_numbers
from attention.hybrid.coefficient import Coefficient, coefficient_seed
from attention.hybrid.gaussian import check_lambda_features
from attention.options import check_positive
from attention.precision import full_precision, working_dtype


class GaussianCoefficient(Coefficient):
    """The coefficient exp(-|x + M y|^2 / (2 c^2)), a = 0. R = n for positive features, 2n for trig.

    Args:
        dim: d.
        num_features: n, number of random vectors tau.
        M: (d, d), or (heads, d, d); default the identity.
        c: width of the region, above 0.
        lambda_features: "positive" (estimates above 0) or "trig" (exact at x = -M y).
        options: options of the taus, `VectorOptions`, as in `ProjectedCoefficient`.

    Raises:
        ValueError: if c is not positive and finite, M has another shape, or lambda_features is
            unknown.
    """

    M: Tensor
    """(d, d) or (heads, d, d)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        M: Tensor | None = None,
        c: float = 1.0,
        lambda_features: str = "positive",
        **options: Unpack[VectorOptions],
    ) -> None:
        super().__init__()
        check_positive(c=c)
        options["seed"] = coefficient_seed(options.get("seed", 0))
        self.features = gaussian_features(lambda_features, dim, num_features, **options)
        omega = self.features.omega
        assert isinstance(omega, Tensor)
        matrix = torch.eye(dim, device="cpu") if M is None else given_numbers("M", M)
        heads = options.get("heads")
        shapes = ((dim, dim), (heads, dim, dim))
        if tuple(matrix.shape) not in shapes:
            allowed = f"{shapes[0]}" if heads is None else f"{shapes[0]} or {shapes[1]}"
            raise ValueError(f"M must have shape {allowed}, got {tuple(matrix.shape)}")
        self.c = c
        self.register_buffer("M", matrix.to(omega, copy=True))

    @property
    def width(self) -> int:
        return self.features.output_dim

    def queries(self, x: Tensor) -> Tensor:
        return self.features.queries(x.to(working_dtype(x.dtype)) / self.c)

    def keys(self, y: Tensor) -> Tensor:
        y = y.to(working_dtype(y.dtype))
        with full_precision(y):
            return self.features.keys(-(y @ self.M.to(y.dtype).mT) / self.c)

    def redraw(self, generator: torch.Generator) -> None:
        self.features.redraw(generator)


def gaussian_features(
    name: str, dim: int, num_features: int, **options: Unpack[VectorOptions]
) -> FeatureMap:
    """Return the map of the Gaussian kernel that estimates a coefficient: "positive" or "trig"."""
    check_lambda_features(name)
    maps: dict[str, type[PositiveFeatures] | type[TrigFeatures]] = {
        "positive": PositiveFeatures,
        "trig": TrigFeatures,
    }
    return maps[name](dim, num_features, kernel="gaussian", **options)
