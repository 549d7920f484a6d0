"""Tokens of a seed, estimates and errors, for the tests of several mechanisms."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import attention


def tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def doubles(*shape: int, seed: int = 0) -> Tensor:
    """`tokens` in float64."""
    return tokens(*shape, seed=seed, dtype=torch.float64)


def features(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers from 0 to 1, as positive features are."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def points(count: int, dim: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """(count, dim), in float64."""
    return scale * tokens(count, dim, seed=seed, dtype=torch.float64)


def estimate(fm: attention.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    """The map's estimate of the kernel of each pair, (..., d) -> (...)."""
    return (fm.queries(x) * fm.keys(y)).sum(-1)


def scaled_estimate(fm: attention.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    """`estimate` from the scaled features."""
    (phi_q, scale_q), (phi_k, scale_k) = fm.scaled_queries(x), fm.scaled_keys(y)
    return (phi_q * phi_k).sum(-1) * (scale_q + scale_k).exp().squeeze(-1)


def relative_error(computed: Tensor, expected: Tensor) -> float:
    """Length of the difference, as a share of the expected length."""
    computed, expected = computed.detach().double(), expected.detach().double()
    return float((computed - expected).norm() / expected.norm())


def rejects(message: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """The call must raise a ValueError whose sentence matches `message`."""
    with pytest.raises(ValueError, match=message):
        function(*args, **options)


class LargestTensor(TorchDispatchMode):
    """Entries of the largest tensor that any operation returned."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self.entries = max(self.entries, part.numel())
        return result
