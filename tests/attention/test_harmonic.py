"""Harmonic features: the truncated von Mises kernel, and its closed-form error."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ive
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map, theory
from attention.theory.harmonic import harmonics
from attention.tracing import for_onnx
from tests.attention.cases import DOUBLE, Calls

GRID = 200
"""Angles on a circle, more than twice as many as any frequency here: means over them are exact."""


def circle(count: int = GRID) -> Tensor:
    return torch.arange(count, dtype=torch.float64).unsqueeze(-1) * (2 * math.pi / count)


def torus(count: int) -> Tensor:
    axis = circle(count).squeeze(-1)
    return torch.cartesian_prod(axis, axis)


def errors(places: Tensor, m: int, kappa: float) -> Tensor:
    """Of the kernel of a map, over all differences of places from 0."""
    dim = places.shape[-1]
    fm = feature_map("harmonic", dim, m, kappa=kappa, **DOUBLE)
    kernel = fm.queries(places) @ fm.keys(torch.zeros(dim, **DOUBLE))
    return kernel - attention.kernels.von_mises(places, torch.zeros(dim, **DOUBLE), kappa)


@pytest.mark.parametrize(("m", "kappa"), [(1, 0.5), (5, 60.0), (26, 112.0), (60, 112.0)])
def test_error_on_a_circle(m, kappa):
    tail = theory.harmonic_tail(m, kappa=kappa)
    assert tail == pytest.approx(2 * sum(ive(n, kappa) for n in range(m + 1, 400)), abs=1e-14)
    _, weights = harmonics(m, (kappa,))
    cosines = (circle() * torch.arange(m + 1)).cos()
    exact = attention.kernels.von_mises(circle(), torch.zeros(1, **DOUBLE), kappa)
    plain = (cosines @ weights - exact).abs()
    assert plain[0] == pytest.approx(tail, abs=1e-14)
    assert plain.max() <= plain[0] + 1e-14
    normalised = errors(circle(), m, kappa)
    assert normalised.abs().max() <= 2 * tail + 1e-14
    rms = theory.harmonic_rms_error(m, kappa=kappa)
    assert normalised.square().mean().sqrt().item() == pytest.approx(rms, rel=1e-6, abs=2e-8)


@pytest.mark.parametrize(("m", "kappa"), [(4, 1.0), (60, 10.0), (300, 30.0)])
def test_error_on_a_torus(m, kappa):
    found = errors(torus(60), m, kappa)
    assert found.abs().max() <= 2 * theory.harmonic_tail(m, kappa=kappa, dim=2) + 1e-14
    rms = theory.harmonic_rms_error(m, kappa=kappa, dim=2)
    assert found.square().mean().sqrt().item() == pytest.approx(rms, rel=1e-6, abs=2e-8)


def test_the_kernel_is_von_mises_where_frequencies_are_many():
    """Which is a Gaussian close by."""
    generator = torch.Generator().manual_seed(0)
    x, y = 4 * torch.rand(2, 9, 2, generator=generator, **DOUBLE) - 2
    settings = {"kappa": (3.0, 8.0), "period": (2.0, 0.7)}
    fm = feature_map("harmonic", 2, 1500, **settings, **DOUBLE)
    expected = torch.ones(9, 9, **DOUBLE)
    for axis, (kappa, period) in enumerate(zip(*settings.values(), strict=True)):
        own = slice(axis, axis + 1)
        pairs = x[:, None, own], y[None, :, own]
        expected = expected * attention.kernels.von_mises(*pairs, kappa, period)
    assert_close(fm.queries(x) @ fm.keys(y).mT, expected, rtol=1e-10, atol=1e-12)
    x, y = torch.tensor([[0.3, 0.31]], **DOUBLE), torch.tensor([[0.31, 0.29]], **DOUBLE)
    kappa, period = 112.0, 2.0
    expected = attention.kernels.gaussian(x, y, period / (2 * math.pi * math.sqrt(kappa)))
    found = attention.kernels.von_mises(x, y, kappa, period)
    assert_close(found, expected, rtol=2e-3, atol=0)
    assert_close(attention.kernels.von_mises(x, y + 2, kappa, period), found)


def test_features_have_length_one_and_the_period():
    fm = feature_map("harmonic", 2, 40, kappa=9.0, period=2.0, heads=3, **DOUBLE)
    u = torch.rand(3, 7, 2, generator=torch.Generator().manual_seed(0), **DOUBLE)
    phi = fm.keys(u)
    assert phi.shape == (3, 7, 81)
    assert_close(phi.norm(dim=-1), torch.ones(3, 7, **DOUBLE))
    assert_close(fm.queries(u - 6), phi)
    assert "kappa=(9.0, 9.0), period=[2.0, 2.0]" in repr(fm)
    assert not fm.state_dict()
    # Against all of a square, sorted; the square of as many features leaves more out.
    kappa, n = (20.0, 5.0), 12
    frequencies, weights = harmonics(150, kappa)
    one, two = (torch.tensor(ive(abs(np.arange(-40, 41)), k)) for k in kappa)
    best = torch.outer(one, two).flatten().sort(descending=True).values[:301]
    assert weights.sum().item() == pytest.approx(best.sum().item(), rel=1e-12)
    both = torch.cat((frequencies, -frequencies))
    assert len({tuple(row) for row in both.tolist()}) == 300
    m = ((2 * n + 1) ** 2 - 1) // 2
    square = 1 - (1 - theory.harmonic_tail(n, kappa=30.0)) ** 2
    assert theory.harmonic_tail(m, kappa=30.0, dim=2) < 0.9 * square


@pytest.mark.parametrize("shape", [(1,), (5, 1), (2, 3, 5, 1)])
def test_what_becomes_onnx_takes_one_sine_a_place(shape):
    """And what stays PyTorch's, as many as there are features."""
    places = torch.rand(shape, generator=torch.Generator().manual_seed(0), **DOUBLE)
    features = feature_map("harmonic", 1, 6, kappa=4.0, **DOUBLE)

    module = Calls(features, lambda features, places: features.queries(places))
    with torch.no_grad():
        plain = torch.export.export(module, (places,))
        with for_onnx():
            products = torch.export.export(module, (places,))
    for program, sines in ((plain, 6), (products, 1 if places.dim() > 1 else 6)):
        assert_close(program.module()(places), features.queries(places), rtol=0, atol=1e-14)
        (sine,) = (node for node in program.graph.nodes if "sin." in str(node.target))
        assert sine.meta["val"].numel() == sines * places.numel()
