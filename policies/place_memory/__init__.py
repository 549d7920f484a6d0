"""Policies that remember where the ground has holes."""
