"""Foothold heads: votes over a grid of offsets, and the plane of the ground."""
