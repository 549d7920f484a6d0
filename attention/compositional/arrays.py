"""Where this package takes NumPy from, so that one sentence says that it is missing."""

from foveate_extras import needs

with needs("attention.compositional", "sklearn", "numpy"):
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["ArrayLike", "NDArray", "np"]
