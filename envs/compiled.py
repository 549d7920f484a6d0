"""Numerical functions compiled by Numba.

Arrays of four legs with three joints are too small for NumPy, where a call costs as much as twenty
products, and too large for Python floats. So are the pixels of a small triangle."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from foveate_extras import needs

with needs("an environment in PyBullet", "sim", "numba", "llvmlite"):
    from foveate_numba import compiled

__all__ = ["compiled", "product"]


@partial(compiled, fastmath={"contract"})
def product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Product of two small matrices, within compiled functions.

    Each number is summed in order, by fused multiplications and additions where the processor has
    them, as OpenBLAS does; Numba's own product needs SciPy."""
    made = np.empty((left.shape[0], right.shape[1]))
    for row in range(left.shape[0]):
        for column in range(right.shape[1]):
            total = 0.0
            for k in range(left.shape[1]):
                total += left[row, k] * right[k, column]
            made[row, column] = total
    return made
