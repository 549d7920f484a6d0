"""Tokens of a seed, estimates and errors, draws of couplings and quadrature, for several tests."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import attention
from attention import kernels

DOUBLE = {"dtype": torch.float64}


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


class Calls(torch.nn.Module):
    """A module that calls a function of an inner module, for exports and traces."""

    def __init__(self, inner: torch.nn.Module, run: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.run = inner, run

    def forward(self, *inputs: Any) -> Any:
        return self.run(self.inner, *inputs)


class LargestTensor(TorchDispatchMode):
    """Entries of the largest tensor that any operation returned."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self.entries = max(self.entries, part.numel())
        return result


FAST = ("fast_simplex", "hadamard")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(name: str, m: int, d: int, seed: int = 0, heads: int | None = None) -> Tensor:
    return attention.projection(name, m, d, seeded(seed), torch.float64, heads=heads)


def blocks(name: str, count: int, d: int, seed: int) -> Tensor:
    """(count, d, d) independent blocks; of Halton, whose points are all coupled, 800 draws."""
    if name == "halton":
        return draw(name, d, d, seed, heads=800)
    return draw(name, count * d, d, seed).reshape(count, d, d)


def z_score(samples: Tensor, expected: Tensor | float) -> Tensor:
    """Of means over the first dimension; 0 where samples are constant and as expected."""
    return (samples.mean(0) - expected) / (samples.std(0) / math.sqrt(len(samples)) + 1e-12)


def cosines(block: Tensor) -> Tensor:
    """All pairs i != j, (..., b, d) -> (..., b (b - 1))."""
    units = block / block.norm(dim=-1, keepdim=True)
    return (units @ units.mT)[..., ~torch.eye(block.shape[-2], dtype=torch.bool)]


X = torch.tensor([0.3, -0.5], dtype=torch.float64)
Y = torch.tensor([0.7, 0.2], dtype=torch.float64)
SM = kernels.softmax(X, Y)
REAL = torch.tensor([[0.9, 0.4], [-0.3, 1.2]], dtype=torch.float64)
COMPLEX = torch.complex(REAL, torch.tensor([[0.2, -0.5], [0.6, 0.3]], dtype=torch.float64))


def gaussian_nodes(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return torch.tensor(nodes), torch.tensor(weights / weights.sum())


LINE, LINE_WEIGHT = gaussian_nodes(80)
OMEGA = torch.cartesian_prod(LINE, LINE)
WEIGHT = torch.outer(LINE_WEIGHT, LINE_WEIGHT).flatten()


def expectation(values: Tensor) -> Tensor:
    return (WEIGHT * values).sum()


def complex_estimate(A: Tensor, x: Tensor = X, y: Tensor = Y) -> Tensor:
    """Re(Psi_A(x) Psi(y)) at every node, for a matrix A."""
    matrix = A.to(torch.complex128)
    u = matrix @ x.to(torch.complex128)
    w = torch.linalg.inv(matrix).mT @ y.to(torch.complex128)
    omega = OMEGA.to(torch.complex128)
    return ((omega @ u - (u * u).sum() / 2).exp() * (omega @ w - (w * w).sum() / 2).exp()).real
