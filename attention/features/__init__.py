"""Random feature maps, one a file."""

from attention.features.base import FeatureMap, ScaledFeatures
from attention.features.hyperbolic import HyperbolicFeatures
from attention.features.positive import PositiveFeatures
from attention.features.projected import ProjectedFeatures
from attention.features.trig import TrigFeatures

__all__ = [
    "FeatureMap",
    "HyperbolicFeatures",
    "PositiveFeatures",
    "ProjectedFeatures",
    "ScaledFeatures",
    "TrigFeatures",
]
