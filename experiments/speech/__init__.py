"""Conformer-Performers on spoken strings of digits."""
