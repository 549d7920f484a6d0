"""Import of NumPy for this package, with one error message if it is missing."""

from foveate_extras import needs

with needs("attention.compositional", "sklearn", "numpy"):
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["ArrayLike", "NDArray", "np"]
