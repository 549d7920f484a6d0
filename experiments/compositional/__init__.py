"""Compositional kernels and networks of the same skeletons, on pictures of clothes."""
