"""Hybrid random features: base maps weighted by estimated coefficients lambda(x, y)."""

from attention.hybrid.angular import AngularHybrid

__all__ = ["AngularHybrid"]
