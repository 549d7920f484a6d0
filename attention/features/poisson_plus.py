"""Poisson features made positive by a shift: PoisRF+ of Chefs' Random Tables, section 3.2.3."""

from attention.features.poisson import PoissonFeatures
from attention.features.shifted import Shifted


class PoissonPlusFeatures(Shifted, PoissonFeatures):
    """`PoissonFeatures` of u - c; see `Shifted`."""
