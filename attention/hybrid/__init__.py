"""Hybrid random features: base maps weighted by estimated coefficients lambda(x, y)."""

from attention.hybrid.angular import AngularCoefficient, AngularHybrid
from attention.hybrid.bases import HybridOptions
from attention.hybrid.clustered import ClusteredHybrid
from attention.hybrid.coefficient import Coefficient
from attention.hybrid.composition import HybridFeatures
from attention.hybrid.gaussian import BipolarGaussianCoefficient, GaussianHybrid
from attention.hybrid.general_gaussian import GaussianCoefficient
from attention.hybrid.nested import NestedCoefficient

__all__ = [
    "AngularCoefficient",
    "AngularHybrid",
    "BipolarGaussianCoefficient",
    "ClusteredHybrid",
    "Coefficient",
    "GaussianCoefficient",
    "GaussianHybrid",
    "HybridFeatures",
    "HybridOptions",
    "NestedCoefficient",
]
