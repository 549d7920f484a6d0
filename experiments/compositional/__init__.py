"""Compositional kernels and networks of the same skeletons, on images of clothes."""
