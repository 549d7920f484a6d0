"""The exact kernels against their definitions: every other test takes them for the truth."""

import math

import pytest
import torch
from torch.testing import assert_close

from attention import kernels

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
