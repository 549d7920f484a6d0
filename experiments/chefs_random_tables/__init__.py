"""Figures of Chefs' Random Tables (Likhosherstov et al. 2022)."""
