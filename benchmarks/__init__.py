"""Commands that print measured figures, and write them with hardware and seeds."""
