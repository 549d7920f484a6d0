"""Exact kernels against their definitions, which all other tests take for the truth; lengths."""

import math

import pytest
import torch
from torch.testing import assert_close

from attention import kernels
from attention.norms import half_squares, token_norms
from tests.attention.cases import tokens

X, Y = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -0.7]], dtype=torch.float64)


def test_kernels():
    # x.y = 0.3 - 0.2 - 0.35.
    assert kernels.softmax(X, Y).item() == pytest.approx(math.exp(-0.25), rel=1e-14)
    # |x - y|^2 = 0.49 + 4.41 + 1.44.
    assert kernels.gaussian(X, Y).item() == pytest.approx(math.exp(-6.34 / 2), rel=1e-14)
    wide = kernels.gaussian(X, Y, sigma=1.5).item()
    assert wide == pytest.approx(math.exp(-6.34 / (2 * 2.25)), rel=1e-14)
    x = torch.stack((X, 2 * X))
    for kernel in (kernels.softmax, kernels.gaussian):
        expected = torch.stack([torch.stack([kernel(a, b) for b in (Y, X, -Y)]) for a in x])
        assert_close(kernel(x[:, None], torch.stack((Y, X, -Y))), expected)


@pytest.mark.parametrize("dim", [3, 16, 40])
def test_lengths(dim):
    # In one pass from some d on; zero tokens, rows with gaps and huge tokens too.
    x = tokens(2, 7, dim, dtype=torch.float64)
    x[0, 0], x[1, 2] = 0, 1e150
    for given in (x, x.mT.contiguous().mT):
        squares, norms = half_squares(given), token_norms(given)
        with torch.no_grad():
            assert_close(half_squares(given), squares)
            assert_close(token_norms(given), norms)
        assert_close(squares.squeeze(-1), 0.5 * x.square().sum(-1))
        assert norms.min() > 0
    x = torch.zeros(1, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(token_norms(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert torch.equal(second, torch.zeros_like(x))
