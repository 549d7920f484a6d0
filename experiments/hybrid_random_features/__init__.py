"""Figures and tables of Hybrid Random Features (Choromanski et al. 2022)."""
