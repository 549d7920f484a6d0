"""Figures of Random Features for Compositional Kernels (Daniely et al. 2017)."""
