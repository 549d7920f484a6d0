"""Allowed values of settings, in a separate module that does not need PyTorch."""

from typing import Literal

__all__ = ["Edges", "ImageScaling", "Layout", "Repair"]

Layout = Literal["HW", "HWC", "CHW", "NHW", "NHWC", "NCHW", "THWC", "TCHW", "vector"]
"""How the axes of an image are meant, see `PolicyConfig.layout`."""
ImageScaling = (
    Literal["auto", "space", "running"] | tuple[float, float] | dict[str, tuple[float, float]]
)
"""See `PolicyConfig.image_scaling`."""
Edges = Literal["auto", "pad", "drop"]
"""See `PolicyConfig.edges`."""
Repair = Literal["none", "holes", "full"]
"""See `PolicyConfig.repair`."""
