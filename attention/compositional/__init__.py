"""Computation skeletons and their random features (Random Features for Compositional Kernels).

    from attention.compositional import Skeleton, CompositionalFeatures

    skeleton = Skeleton.from_dict({
        "inputs": {"x": {"kind": "circle", "columns": [0]}, "y": {"kind": "sign", "columns": [1]}},
        "nodes": {"v": {"inputs": ["x", "y"], "activation": "relu"}},
    })
    gram = skeleton.gram(data)                                              # exact
    features = CompositionalFeatures(skeleton, n_components=1000, random_state=0)
    z = features.fit_transform(data)                                        # z @ z.T ~ gram

Skeletons and features need NumPy, and `CompositionalFeatures` needs scikit-learn. They are imported
on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attention.compositional.bounds import (
    excess_loss,
    function_error,
    regularisation,
    sufficient_features,
    variance,
)

if TYPE_CHECKING:
    from attention.compositional.activations import (
        ACTIVATIONS,
        Activation,
        Exponential,
        Identity,
        Polynomial,
        ReLU,
    )
    from attention.compositional.base import Base
    from attention.compositional.bases import BASES
    from attention.compositional.characters import Categorical, Circle, Gaussian, Sign
    from attention.compositional.dedup import deduplicate
    from attention.compositional.features import Features, phase_offsets
    from attention.compositional.images import image_skeleton
    from attention.compositional.inner_product import Coordinate, Direction, Sphere
    from attention.compositional.patches import PatchComponents
    from attention.compositional.sampling import draw, draw_distinct
    from attention.compositional.skeleton import Internal, Skeleton
    from attention.compositional.transformer import CompositionalFeatures

__all__ = [
    "ACTIVATIONS",
    "BASES",
    "Activation",
    "Base",
    "Categorical",
    "Circle",
    "CompositionalFeatures",
    "Coordinate",
    "Direction",
    "Exponential",
    "Features",
    "Gaussian",
    "Identity",
    "Internal",
    "PatchComponents",
    "Polynomial",
    "ReLU",
    "Sign",
    "Skeleton",
    "Sphere",
    "deduplicate",
    "draw",
    "draw_distinct",
    "excess_loss",
    "function_error",
    "image_skeleton",
    "phase_offsets",
    "regularisation",
    "sufficient_features",
    "variance",
]

_MODULES = (
    "activations",
    "base",
    "bases",
    "characters",
    "dedup",
    "features",
    "images",
    "inner_product",
    "patches",
    "sampling",
    "skeleton",
    "transformer",
)


def __getattr__(name: str) -> Any:
    """Import names that need NumPy or scikit-learn on first use."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        for home in ("transformer",) if name == "CompositionalFeatures" else _MODULES:
            members = vars(import_module(f"{__name__}.{home}"))
            if name in members:
                return members[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
