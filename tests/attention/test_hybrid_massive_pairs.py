"""The clustered hybrid with bases for the most massive pairs of clusters alone."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import theory
from tests.attention.cases import estimate, points

D = 4
CENTERS = (points(2, D, 20, 0.6), points(3, D, 21, 0.6))
PAIRS = [[0, 1], [0, 2], [1, 1]]
"""Most massive in `data`: two queries of three in cluster 0, most keys in clusters 1 and 2."""
OPTIONS = {
    "query_centers": CENTERS[0],
    "key_centers": CENTERS[1],
    "num_pairs": 3,
    "dtype": torch.float64,
}


def data() -> tuple[Tensor, Tensor]:
    """30 queries and 40 keys about their centres."""
    x = CENTERS[0].repeat_interleave(torch.tensor([20, 10]), 0)
    y = CENTERS[1].repeat_interleave(torch.tensor([3, 21, 16]), 0)
    return x + points(30, D, 1, 0.05), y + points(40, D, 2, 0.05)


def hybrid(**options: object) -> attention.FeatureMap:
    return attention.feature_map("clustered_hybrid", D, 5, **OPTIONS, **options)


def kept(x: Tensor, y: Tensor) -> Tensor:
    """Whether a pair of tokens has a base of its own: (L, S)."""
    i, j = (torch.cdist(u, c).argmin(-1) for u, c in zip((x, y), CENTERS, strict=True))
    table = torch.zeros(2, 3, dtype=torch.bool)
    for pair in PAIRS:
        table[tuple(pair)] = True
    return table[i][:, j]


@pytest.mark.parametrize("default_base", ["trig", "hyperbolic", "positive"])
@pytest.mark.parametrize("complex_a", [True, False])
def test_pairs_have_their_bases_and_the_others_the_default(complex_a, default_base):
    x, y = data()
    fm = hybrid(complex_a=complex_a, default_base=default_base).fit(x, y)
    assert fm.pairs.tolist() == PAIRS
    all_pairs = attention.feature_map(
        "clustered_hybrid", D, 5, **{**OPTIONS, "num_pairs": None}, complex_a=complex_a
    )
    default = attention.feature_map(default_base, D, 5, dtype=torch.float64)
    estimates = [m.queries(x) @ m.keys(y).mT for m in (fm, all_pairs, default)]
    expected = torch.where(kept(x, y), estimates[1], estimates[2])
    assert_close(estimates[0], expected, rtol=1e-11, atol=1e-12)
    width = 5 * (2 if complex_a else 1)
    assert fm.output_dim == fm.keys(y).shape[-1] == 3 * width + 2 * default.output_dim
    assert fm.signed == (complex_a or default_base == "trig")
    (phi_q, scale_q), (phi_k, scale_k) = fm.scaled_queries(x), fm.scaled_keys(y)
    scaled = phi_q @ phi_k.mT * (scale_q + scale_k.mT).exp()
    assert_close(scaled, expected, rtol=1e-11, atol=1e-12)
    if not fm.signed:
        exact = expected @ y / expected.sum(-1, keepdim=True)
        assert_close(fm.attend(x, y, y), exact, rtol=1e-10, atol=1e-12)
        assert_close(fm.token_scores(x, y), expected.sum(0), rtol=1e-10, atol=0)


def test_one_pair_and_all_pairs():
    # One pair kept of 2 x 3 is the hybrid of one pair of clusters.
    x, y = data()
    options = {"coefficients": "gaussian", "lambda_scale": 2.0, "num_lambda_features": 3}
    fm = attention.feature_map("clustered_hybrid", D, 5, **{**OPTIONS, "num_pairs": 1}, **options)
    fm.fit(x, y)
    assert fm.pairs.tolist() == [[0, 1]]
    one = {"query_centers": CENTERS[0][:1], "key_centers": CENTERS[1][1:2], "num_pairs": None}
    single = attention.feature_map("clustered_hybrid", D, 5, **{**OPTIONS, **one}, **options)
    assert fm.output_dim == single.output_dim
    assert_close(fm.queries(x), single.queries(x), rtol=1e-12, atol=1e-14)
    assert_close(fm.keys(y), single.keys(y), rtol=1e-12, atol=1e-14)
    # No default base then; masses of equal clusters leave the first pairs.
    every, six = (
        attention.feature_map("clustered_hybrid", D, 5, **{**OPTIONS, "num_pairs": n})
        for n in (None, 6)
    )
    x, y = data()
    assert six.pairs is None
    assert torch.equal(six.fit(x, y).keys(y), every.keys(y))
    equal = hybrid().fit(CENTERS[0], CENTERS[1])
    assert equal.pairs.tolist() == [[0, 0], [0, 1], [0, 2]]


def test_heads_have_pairs_of_their_own():
    """Found by `fit` and kept in the state."""
    x, y = data()
    centers = {
        "query_centers": CENTERS[0].repeat(2, 1, 1),
        "key_centers": CENTERS[1].repeat(2, 1, 1),
    }
    both = {**OPTIONS, **centers, "heads": 2}
    fm = attention.feature_map("clustered_hybrid", D, 5, **both)
    assert fm.pairs.tolist() == [[[0, 0], [0, 1], [0, 2]]] * 2
    other = y[:24]  # three keys of cluster 0, and no more of cluster 2
    fm.fit(torch.stack((x, x)), torch.stack((y[:24], y[16:])))
    assert fm.pairs[0].tolist() == [[0, 0], [0, 1], [1, 1]]
    assert fm.pairs[1].tolist() == [[0, 1], [0, 2], [1, 2]]
    alone = hybrid().fit(x, other)
    assert_close(fm.keys(torch.stack((y, y)))[0], alone.keys(y), rtol=0, atol=0)
    again = attention.feature_map("clustered_hybrid", D, 5, **both, seed=4)
    again.load_state_dict(fm.state_dict())
    assert torch.equal(
        again.queries(torch.stack((x, y[:30]))), fm.queries(torch.stack((x, y[:30])))
    )
    assert "pairs" not in attention.feature_map("clustered_hybrid", D, 5).state_dict()
    fm.reset_parameters()
    assert fm.pairs.tolist() == [[[0, 0], [0, 1], [0, 2]]] * 2


@pytest.mark.parametrize("coefficients", ["zero_one", "gaussian"])
def test_closed_form_of_drawn_estimates(coefficients):
    """Mean and error at pairs kept and left out, 5,000 draws: |z| > 4 once in 1,000 tries."""
    heads, options = 5_000, {"coefficients": coefficients, "num_lambda_features": 2}
    options |= {"lambda_scale": 2.5, "lambda_features": "trig", "complex_a": False}
    centers = {
        "query_centers": CENTERS[0].expand(heads, 2, D),
        "key_centers": CENTERS[1].expand(heads, 3, D),
    }
    fm = attention.feature_map(
        "clustered_hybrid",
        D,
        2,
        projection="iid",
        heads=heads,
        **{**OPTIONS, **centers, "num_pairs": 1},
        **options,
    )
    x, y = CENTERS[0] + points(2, D, 5, 0.1), CENTERS[1][:2] + points(2, D, 6, 0.1)
    values = estimate(fm, x.expand(heads, 2, D), y.expand(heads, 2, D))
    exact = attention.kernels.softmax(x, y)
    settings = {"query_centers": CENTERS[0], "key_centers": CENTERS[1], "pairs": fm.pairs[0]}
    error = theory.mse("clustered_hybrid", x, y, 2, **options, **settings)
    for sample, expected in ((values, exact), ((values - exact).square(), error)):
        z = (sample.mean(0) - expected) / sample.std(0) * math.sqrt(heads)
        assert z.abs().max() < 4


def test_tokens_without_a_base_of_their_own_train():
    """Queries of cluster 1 have the default base alone, keys of cluster 0 too: finite gradients."""
    x, y = (u.float().requires_grad_() for u in data())
    options = {**OPTIONS, "num_pairs": 2, "dtype": torch.float32}
    for complex_a in (True, False):
        fm = attention.feature_map(
            "clustered_hybrid", D, 5, **options, complex_a=complex_a, default_base="hyperbolic"
        ).fit(x, y)
        assert fm.pairs.tolist() == [[0, 1], [0, 2]]
        fm.attend(x, y, y).square().sum().backward()
        assert x.grad.isfinite().all()
        assert y.grad.isfinite().all()
