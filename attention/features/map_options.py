"""Keyword options shared by maps and coefficients: `**options: Unpack[MapOptions]`."""

from typing import TypedDict

import torch
from torch import Tensor


class CommonOptions(TypedDict, total=False):
    """Options of random vectors: seed, heads, dtype and device."""

    seed: int
    """Seed of the map's generator, on the CPU; default 0."""
    heads: int | None
    """Number of heads, each with its vectors, for inputs (..., heads, L, d). Default None: one set
    for all inputs."""
    dtype: torch.dtype | None
    """dtype of the random vectors; default: PyTorch's, or that of an explicit tensor."""
    device: torch.device | str | None
    """Device of the random vectors; default: PyTorch's, or that of an explicit tensor."""


class VectorOptions(CommonOptions, total=False):
    """Options of modules with random vectors (m, d)."""

    projection: str | Tensor | None
    """Name of a coupling, default "orthogonal"; an explicit tensor (m, d), shared by all heads, or
    (heads, m, d); or None if a hybrid supplies the vectors."""


class MapOptions(VectorOptions, total=False):
    """Options of every random feature map."""

    kernel: str
    """"softmax" for exp(x.y), the default, or "gaussian" for exp(-|x-y|^2/2)."""
