"""Recorded demonstrations: robomimic's HDF5, written, checked and read in batches."""
