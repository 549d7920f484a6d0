"""Random projection vectors, one coupling a file. Each row is N(0, I_d) on its own."""

from attention.projections.registry import available_projections, projection, resolve_projection

__all__ = ["available_projections", "projection", "resolve_projection"]
