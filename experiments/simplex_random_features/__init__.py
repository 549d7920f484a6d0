"""Figures and tables of Simplex Random Features (Reid et al. 2023)."""
