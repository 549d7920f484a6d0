"""Numerical functions compiled by Numba.

Arrays of four legs with three joints are too small for NumPy, where a call costs as much as twenty
products, and too large for Python floats. So are the pixels of a small triangle."""

from foveate_extras import needs

with needs("an environment in PyBullet", "sim", "numba", "llvmlite"):
    from foveate_numba import compiled

__all__ = ["compiled"]
