"""Keyword options that maps and coefficients share, said once: `**options: Unpack[MapOptions]`."""

from typing import TypedDict

import torch
from torch import Tensor


class CommonOptions(TypedDict, total=False):
    """Where random vectors come from, and where they are."""

    seed: int
    """Seeds a generator of the map's own, on the CPU; default 0."""
    heads: int | None
    """A set of vectors a head, for inputs (..., heads, L, d); default None, one for all."""
    dtype: torch.dtype | None
    """Of the random vectors; default PyTorch's, or that of an explicit tensor."""
    device: torch.device | str | None
    """Of the random vectors; default PyTorch's, or that of an explicit tensor."""


class VectorOptions(CommonOptions, total=False):
    """Options of everything that has random vectors (m, d)."""

    projection: str | Tensor | None
    """Name of a coupling, default "orthogonal"; an explicit tensor (m, d), with `heads` for all of
    them, or (heads, m, d); or None where a hybrid supplies the vectors."""


class MapOptions(VectorOptions, total=False):
    """Options of every random feature map."""

    kernel: str
    """"softmax" for exp(x.y), the default, or "gaussian" for exp(-|x-y|^2/2)."""
