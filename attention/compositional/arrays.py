"""Where this package takes NumPy from, so that one sentence says that it is missing."""

try:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
except ImportError as error:
    raise ImportError("attention.compositional needs NumPy: pip install numpy") from error

__all__ = ["ArrayLike", "NDArray", "np"]
