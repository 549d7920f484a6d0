"""Geometric features made positive by a shift: GeomRF+ of Chefs' Random Tables, section 3.2.3."""

from attention.features.geometric import GeometricFeatures
from attention.features.shifted import Shifted


class GeometricPlusFeatures(Shifted, GeometricFeatures):
    """`GeometricFeatures` of u - c; see `Shifted`."""
