"""The map of degree 2: its kernel, and random products for it."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import attention
from attention import feature_map, kernels, theory
from tests.attention.cases import DOUBLE, doubles, estimate, rejects, seeded, z_score
from tests.attention.test_estimators import pairs

TERMS = {"c": 0.7, "s": 1.3}


@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize("options", [{}, TERMS, {"c": 0.0}])
def test_its_kernel_is_exact_and_nothing_is_random(options, heads):
    x, y = doubles(2, 9, 5), doubles(2, 9, 5, seed=1)
    fm = feature_map("quadratic", 5, 15, heads=heads, **options, **DOUBLE)
    expected = kernels.quadratic(x, y, **options)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-12)
    assert fm.output_dim == fm.queries(x).shape[-1] == 1 + 5 + 15
    other = feature_map("quadratic", 5, 99, heads=heads, seed=7, projection="iid", **options)
    other.redraw(seeded(0))
    assert other.output_dim == 21
    assert torch.equal(other.double().queries(x), fm.queries(x))
    assert not fm.state_dict()
    for projection in attention.available_projections():
        assert (theory.mse("quadratic", x, y, 15, projection=projection, **options) == 0).all()


@pytest.mark.parametrize("projection", ["iid", "orthogonal"])
def test_products_are_unbiased_with_the_predicted_error(projection):
    """5 products in d = 3, 4000 independent heads. False alarm: 1 in 1000 seeds."""
    x, y = pairs()
    draws = 4000
    options = {**TERMS, "projection": projection}
    fm = feature_map("quadratic", 3, 5, heads=draws, seed=3, **options, **DOUBLE)
    assert fm.output_dim == 1 + 3 + 5
    estimates = estimate(fm, x.expand(draws, -1, -1), y.expand(draws, -1, -1))
    exact = kernels.quadratic(x, y, **TERMS)
    assert z_score(estimates, exact).abs().max() < 4
    error = theory.mse("quadratic", x, y, 5, **options)
    assert (error > 0).all()
    assert z_score((estimates - exact).square(), error).abs().max() < 4


def test_products_are_redrawn_only_when_asked():
    x = doubles(4, 6)
    first = feature_map("quadratic", 6, 20, seed=1, **DOUBLE)
    before = first.queries(x)
    assert torch.equal(first.fit(x, x).queries(x), before)
    assert torch.equal(feature_map("quadratic", 6, 20, seed=1, **DOUBLE).queries(x), before)
    first.redraw(seeded(2))
    assert torch.equal(first.queries(x)[:, :7], before[:, :7])
    assert not torch.isclose(first.queries(x)[:, 7:], before[:, 7:]).any()
    rejects("generator must be a torch.Generator", first.redraw, None)


def test_terms_and_couplings_without_a_closed_form_are_refused():
    x = np.ones(3)
    rejects("s must be a positive finite number, got -1", kernels.quadratic, x, x, 1.0, -1.0)
    closed_form = "closed form for projection='iid' and 'orthogonal' only, got 'simplex'"
    rejects(closed_form, theory.mse, "quadratic", x, x, 5, projection="simplex")
    rejects("c must be a finite number of at least 0", theory.mse, "quadratic", x, x, 6, c=-1)


@pytest.mark.parametrize("num_features", [10, 4])
def test_attention_and_memory_over_it(num_features):
    """The sum is attention with its kernel; the delta rule recalls as many values as features."""
    torch.manual_seed(0)
    layer = attention.RandomFeatureAttention(
        8, 2, feature_map="quadratic", num_features=num_features, batch_first=True
    )
    u = torch.randn(2, 7, 8)
    output, _ = layer(u, u, u)
    assert output.isfinite().all()
    memory = attention.LinearMemory(
        4, 1, "quadratic", num_features, rule="delta", dtype=torch.float64
    )
    keys = torch.nn.functional.normalize(doubles(1, 6, 4), dim=-1)
    values = doubles(1, 6, 1, seed=1).sign()
    state = memory.initial_state(1)
    for _ in range(2000):
        state = memory.write(state, keys, values)
    assert_close(memory.read(state, keys), values, rtol=0, atol=1e-2)
    total = attention.LinearMemory(4, 1, "quadratic", num_features, dtype=torch.float64)
    read = total.read(total.write(total.initial_state(1), keys, values), keys[:, :3])
    expected = total.feature_map.attend(keys[:, :3], keys, values)
    if num_features == 10:
        assert_close(read, expected, rtol=1e-6, atol=1e-6)
