"""Base schemes by their name in `Skeleton.from_dict`."""

from attention.compositional.base import Base
from attention.compositional.characters import Categorical, Circle, Gaussian, Sign
from attention.compositional.inner_product import Coordinate, Direction, Sphere

BASES: dict[str, type[Base]] = {
    kind.kind: kind for kind in (Sign, Circle, Gaussian, Categorical, Sphere, Coordinate, Direction)
}
"""The classes by name."""
