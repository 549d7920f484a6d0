"""Base schemes by the name that `Skeleton.from_dict` takes."""

from attention.compositional.base import Base
from attention.compositional.characters import Categorical, Circle, Gaussian, Sign
from attention.compositional.inner_product import Coordinate, Direction, Sphere

BASES: dict[str, type[Base]] = {
    kind.kind: kind for kind in (Sign, Circle, Gaussian, Categorical, Sphere, Coordinate, Direction)
}
"""The class of each, by its name."""
