"""Gauss-Hermite quadrature: expectations over a projection in d = 2 are sums over 80 x 80 nodes."""

import numpy as np
import torch
from torch import Tensor

from attention import kernels

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
    query = (omega @ u - (u * u).sum() / 2).exp()
    return (query * (omega @ w - (w * w).sum() / 2).exp()).real
