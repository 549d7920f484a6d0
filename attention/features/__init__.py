"""Random feature maps, one per file."""

from attention.features.base import FeatureMap, ScaledFeatures
from attention.features.complex_exponential import ComplexExponentialFeatures
from attention.features.discrete import DiscreteFeatures
from attention.features.elu import EluFeatures
from attention.features.geometric import GeometricFeatures
from attention.features.geometric_plus import GeometricPlusFeatures
from attention.features.gerf import GerfFeatures
from attention.features.harmonic import HarmonicFeatures
from attention.features.hyperbolic import HyperbolicFeatures
from attention.features.map_options import MapOptions, VectorOptions
from attention.features.oprf import OprfFeatures
from attention.features.poisson import PoissonFeatures
from attention.features.poisson_plus import PoissonPlusFeatures
from attention.features.positive import PositiveFeatures
from attention.features.projected import ProjectedFeatures
from attention.features.quadratic import QuadraticFeatures
from attention.features.relu import ReluFeatures
from attention.features.trig import TrigFeatures
from attention.features.trig_phase import TrigPhaseFeatures

__all__ = [
    "ComplexExponentialFeatures",
    "DiscreteFeatures",
    "EluFeatures",
    "FeatureMap",
    "GeometricFeatures",
    "GeometricPlusFeatures",
    "GerfFeatures",
    "HarmonicFeatures",
    "HyperbolicFeatures",
    "MapOptions",
    "OprfFeatures",
    "PoissonFeatures",
    "PoissonPlusFeatures",
    "PositiveFeatures",
    "ProjectedFeatures",
    "QuadraticFeatures",
    "ReluFeatures",
    "ScaledFeatures",
    "TrigFeatures",
    "TrigPhaseFeatures",
    "VectorOptions",
]
