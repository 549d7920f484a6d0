"""The clustered hybrid: mixtures against their definitions, centres, most massive pairs."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map, theory
from attention.hybrid import ClusteredHybrid
from tests.attention.cases import DOUBLE, estimate, rejects, scaled_estimate, tokens, z_score
from tests.attention.cases import points as drawn
from tests.pairwise import pairwise

D = 4


def points(count: int, seed: int, scale: float = 0.6) -> Tensor:
    return drawn(count, D, seed, scale)


def diagonal(r: Tensor, s: Tensor, complex_a: bool) -> Tensor:
    """A for one pair of centres with no zeros (eq 86 to 88)."""
    ratio = (s / r).abs().sqrt()
    return torch.where(r * s > 0, 1j * ratio, ratio + 0j) if complex_a else ratio


def pair_estimate(x: Tensor, y: Tensor, A: Tensor, omega: Tensor) -> Tensor:
    """Re of the product of complex features, from its definition with bilinear squares."""
    u, w = A * x, y / A
    z = (u + w) @ omega.to(A.dtype).T
    constant = -0.5 * (u.square().sum(-1) + w.square().sum(-1))
    return (z + constant.unsqueeze(-1)).exp().mean(-1).real


CENTERS = (points(2, 20), points(3, 21))


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("complex_a", [True, False])
def test_zero_one_equals_its_definition(complex_a, kernel):
    """Each estimate is that of the complex exponential base of the two nearest centres."""
    x, y, omega = points(12, 1), points(12, 2), points(5, 3, 1.0)
    query_centers, key_centers = CENTERS
    options = {"kernel": kernel, "projection": omega, "query_centers": query_centers}
    options |= {"key_centers": key_centers, "complex_a": complex_a}
    fm = feature_map("clustered_hybrid", D, 5, **options)
    assert fm.output_dim == 2 * 3 * 5 * (2 if complex_a else 1)
    assert fm.signed == complex_a
    i = torch.cdist(x, query_centers).argmin(-1)
    j = torch.cdist(y, key_centers).argmin(-1)
    assert len(set(i.tolist())) == 2
    assert len(set(j.tolist())) == 3
    expected = pair_estimate(x, y, diagonal(query_centers[i], key_centers[j], complex_a), omega)
    if kernel == "gaussian":
        expected = expected * (-0.5 * (x.square().sum(-1) + y.square().sum(-1))).exp()
    assert_close(estimate(fm, x, y), expected, rtol=1e-11, atol=1e-13)
    assert bool((fm.queries(x).unflatten(-1, (2, 3, -1))[torch.arange(12), 1 - i] == 0).all())


def test_no_error_at_the_centres():
    # Complex A: for every pair of centres; real A leaves an error where signs agree.
    query_centers, key_centers = CENTERS
    options = {"query_centers": query_centers, "key_centers": key_centers, **DOUBLE}
    x, y = query_centers.repeat_interleave(3, 0), key_centers.repeat(2, 1)
    exact = attention.kernels.softmax(x, y)
    fm = feature_map("clustered_hybrid", D, 5, **options)
    assert_close(estimate(fm, x, y), exact, rtol=1e-12, atol=0)
    real = feature_map("clustered_hybrid", D, 5, complex_a=False, **options)
    assert float((estimate(real, x, y) - exact).abs().max()) > 1e-3
    # |A| is 1 where both centres are zero, and held between the limits where one is.
    r = torch.tensor([[0.0, 0.0, 0.5, -0.2]], dtype=torch.float64)
    s = torch.tensor([[0.0, 0.3, 0.0, 0.3]], dtype=torch.float64)
    fm = ClusteredHybrid(D, 3, query_centers=r, key_centers=s, a_limits=(0.1, 8.0), **DOUBLE)
    expected = torch.tensor([1.0, 8.0, 0.1, 1.5**0.5], dtype=torch.float64)
    assert_close(fm.moduli.flatten(), expected, rtol=1e-15, atol=0)
    assert not bool(fm.imaginary.any())
    wide = ClusteredHybrid(D, 3, query_centers=r, key_centers=s, **DOUBLE)
    assert wide.moduli.flatten().tolist()[1:3] == [100.0, 0.01]


@pytest.mark.parametrize(
    ("default_base", "lambda_features", "complex_a"),
    pairwise(["trig", "hyperbolic", "oprf"], ["positive", "trig"], [True, False]),
)
def test_gaussian_equals_its_definition(complex_a, lambda_features, default_base):
    """sum_ij L_ij S_ij + (1 - sum_ij L_ij) S_0 from formulas, moduli in the coefficient."""
    x, y, omega, tau = points(6, 1), points(6, 2), points(5, 3, 1.0), points(3, 4, 1.0)
    query_centers, key_centers = CENTERS
    t = 1.7
    options = {"projection": omega, "query_centers": query_centers, "key_centers": key_centers}
    options |= {"complex_a": complex_a, "coefficients": "gaussian", "num_lambda_features": 3}
    options |= {"lambda_scale": t, "lambda_features": lambda_features, "lambda_projection": tau}
    options |= {"default_base": default_base}
    fm = feature_map("clustered_hybrid", D, 5, **options)
    default = feature_map(default_base, D, 5, projection=omega)
    rest, expected = torch.ones(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    for r in query_centers:
        for s in key_centers:
            A = diagonal(r, s, complex_a)
            sign = torch.where((r * s > 0) & complex_a, -1.0, 1.0)
            u, w = A.abs() * x / t, sign * y / A.abs() / t
            projected = u @ tau.T, w @ tau.T
            if lambda_features == "positive":
                weight = (u.square() + w.square()).sum(-1, keepdim=True)
                level = (projected[0] - projected[1] - weight).exp().mean(-1)
            else:
                level = (projected[0] + projected[1]).cos().mean(-1)
            rest = rest - level
            expected = expected + level * pair_estimate(x, y, A, omega)
    expected = expected + rest * estimate(default, x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-11, atol=1e-12)
    assert_close(scaled_estimate(fm, x, y), expected, rtol=1e-11, atol=1e-12)
    assert fm.queries(x).shape[-1] == fm.keys(y).shape[-1] == fm.output_dim
    rho = 3 if lambda_features == "positive" else 6
    width = 5 * (2 if complex_a else 1)
    assert fm.output_dim == 6 * rho * (width + default.output_dim) + default.output_dim


@pytest.mark.parametrize("coefficients", ["zero_one", "gaussian"])
def test_draws(coefficients):
    # Away from the centres, 20,000 draws at once, as heads; |z| > 4 once in 16,000 tries.
    query_centers, key_centers = CENTERS
    heads = 20_000
    options = {"projection": "iid", "query_centers": query_centers[:1].expand(heads, 1, D)}
    options |= {"key_centers": key_centers[:2].expand(heads, 2, D), "coefficients": coefficients}
    options |= {"lambda_scale": 2.0, "num_lambda_features": 2, "heads": heads}
    fm = feature_map("clustered_hybrid", D, 2, **DOUBLE, **options)
    x, y = query_centers[:1] + points(1, 5, 0.1), key_centers[:1] + points(1, 6, 0.1)
    values = estimate(fm, x.expand(heads, 1, D), y.expand(heads, 1, D)).squeeze(-1)
    assert z_score(values, attention.kernels.softmax(x, y)).abs() < 4
    one, two = (values - values.mean())[::2], (values - values.mean())[1::2]
    assert abs(float((one * two).mean() / values.var())) < 0.05
    # The vectors are those of the named couplings, drawn in this order from one generator.
    options = {"coefficients": coefficients, "num_lambda_features": 2, **DOUBLE}
    fm = feature_map("clustered_hybrid", D, 3, **options)
    fm.redraw(torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    assert torch.equal(fm.omega, attention.projection("orthogonal", 3, D, generator, **DOUBLE))
    if coefficients == "gaussian":
        taus = attention.projection("orthogonal", 2, D, generator, **DOUBLE)
        assert torch.equal(fm.lambda_map.omega, taus)


def clouds(seed: int, centers: Tensor, count: int) -> Tensor:
    return torch.cat([c + points(count, seed + n, 0.02) for n, c in enumerate(centers)])


def test_fit_finds_centres_and_diagonals():
    pytest.importorskip("sklearn")
    x, y = clouds(30, CENTERS[0], 40), clouds(40, CENTERS[1], 40)
    fm = feature_map("clustered_hybrid", D, 8, num_key_clusters=3, **DOUBLE)
    assert float(fm.query_centers.abs().max()) == 0
    before = (fm.queries(x) @ fm.keys(y).mT - (x @ y.mT).exp()).square().mean()
    assert fm.fit(x, y) is fm
    for found, centers in ((fm.query_centers, CENTERS[0]), (fm.key_centers, CENTERS[1])):
        assert float(torch.cdist(centers, found).min(-1).values.max()) < 0.03
    after = (fm.queries(x) @ fm.keys(y).mT - (x @ y.mT).exp()).square().mean()
    assert float(after) < 0.02 * float(before)
    other = feature_map("clustered_hybrid", D, 8, num_key_clusters=3, seed=3, **DOUBLE)
    other.load_state_dict(fm.state_dict())
    assert_close(other.keys(y), fm.keys(y), rtol=0, atol=0)
    given = feature_map("clustered_hybrid", D, 8, query_centers=CENTERS[0], **DOUBLE)
    given.fit(x, y)
    assert_close(given.query_centers, CENTERS[0], rtol=0, atol=0)
    rejects("fit needs at least 3 tokens, one for each cluster, got 2", fm.fit, x, y[:2])
    # |A|^4 is the ratio of mean squares within the clusters, whatever the centres' signs.
    x, y = points(200, 1, 0.3), points(200, 2, 0.6)
    x[:, 0], y[:, 0] = x[:, 0] + 3, y[:, 0] + 3
    options = {"num_query_clusters": 1, "num_key_clusters": 1, **DOUBLE}
    fm = feature_map("clustered_hybrid", D, 3, **options).fit(x, y)
    variances = [u.mean(0).square() + u.var(0) for u in (x, y)]
    assert_close(fm.moduli[0, 0], (variances[1] / variances[0]) ** 0.25)
    assert fm.imaginary[0, 0].tolist() == [True, False, False, False]


@pytest.mark.parametrize("side", ["fitted", "given"])
def test_states_restore_the_diagonals(side):
    """Into a map whose own A was another, of centres or of `fit`."""
    pytest.importorskip("sklearn")
    x, y = points(50, 1), points(50, 2) + 0.5
    options = {"num_query_clusters": 2, "num_key_clusters": 3, **DOUBLE}
    centers = dict(zip(("query_centers", "key_centers"), CENTERS, strict=True))
    fitted = feature_map("clustered_hybrid", D, 5, **options).fit(x, y)
    given = feature_map("clustered_hybrid", D, 5, seed=1, **centers, **DOUBLE)
    source, target = (fitted, given) if side == "fitted" else (given, fitted)
    assert not torch.equal(source.moduli, target.moduli)
    assert not torch.equal(source.imaginary, target.imaginary)
    target.load_state_dict(source.state_dict())
    assert torch.equal(source.moduli, target.moduli)
    assert torch.equal(source.imaginary, target.imaginary)
    assert torch.equal(source.queries(x), target.queries(x))


@pytest.mark.parametrize("coefficients", ["zero_one", "gaussian"])
def test_scores_where_single_features_overflow(coefficients):
    """With |A_k| of 1e-2 to 1e2 features reach exp(+-1000); scores and attention stay finite."""
    x, y, v = tokens(3, 40, 4, seed=5)
    for seed in range(8):
        fm = feature_map("clustered_hybrid", 4, 8, coefficients=coefficients, seed=seed)
        fm.fit(x, y)
        assert not fm.token_scores(x, y).isnan().any()
        assert fm.attend(x, y, v).isfinite().all()
        if coefficients == "zero_one":
            assert not fm.queries(x).isnan().any()


@pytest.mark.parametrize("far", [4.0, 12.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_far_cluster_leaves_the_near_one_alone(far, dtype):
    """The floor of denominators is measured by |phi_k|, in which other pairs' features count too:
    keys of all pairs must be about as large, or every near query would be raised to it."""
    generator = torch.Generator().manual_seed(0)
    near, wide, y = (0.1 * torch.randn(40, 16, generator=generator, **DOUBLE) for _ in range(3))
    x, y = torch.cat((1 + near, far + wide)), 1 + y
    v = torch.randn(40, 4, generator=generator, **DOUBLE)
    fm = ClusteredHybrid(16, 256, num_key_clusters=1, dtype=dtype)
    fm = fm.fit(x.to(dtype), y.to(dtype))
    assert attention.diagnose(fm, x.to(dtype), y.to(dtype)).clamped_rows == 0
    attended = fm.attend(*(t.to(dtype) for t in (x, y, v)))[:40]
    assert (attended - (torch.softmax(x[:40] @ y.T, -1) @ v)).abs().max() < 0.01


def test_scores_beside_a_far_cluster():
    # Where keys' features for queries of that cluster overflow, and no query is in it.
    x, y = 1 + 0.3 * tokens(2, 40, 16)
    centers = torch.tensor([[1.0], [9.0]]).expand(2, 16)
    fm = ClusteredHybrid(16, 64, query_centers=centers, key_centers=centers[:1])
    wide = ClusteredHybrid(16, 64, query_centers=centers, key_centers=centers[:1], **DOUBLE)
    wide.load_state_dict(fm.state_dict())
    expected = wide.token_scores(x.double(), y.double())
    assert_close(fm.token_scores(x, y).double(), expected, rtol=1e-3, atol=0)
    # Centres whose best |A_k| is 3 and 1/3, held to 2: the error of that A.
    x, y = torch.tensor([[0.2, 0.5], [1.0, 0.1]]).double(), torch.tensor([[0.3, 0.1]]).double()
    options = {"query_centers": torch.tensor([[1.0, 3.0]]).double(), "complex_a": False}
    options["key_centers"] = torch.tensor([[9.0, 1 / 3]]).double()
    error = theory.mse("clustered_hybrid", x, y, 3, a_limits=(1e-2, 1e2), **options)
    held = theory.mse("clustered_hybrid", x, y, 3, a_limits=(0.5, 2.0), **options)
    A = torch.tensor([2.0, 0.5], dtype=torch.float64)
    assert_close(held, attention.theory.mse("complex_exponential", x, y, 3, A=A))
    assert not torch.allclose(held, error)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**64 - 1])
def test_any_seed_of_pytorchs_finds_clusters(seed):
    fm = feature_map("clustered_hybrid", D, 6, seed=seed)
    fm.fit(points(9, 1).float(), points(9, 2).float())
    assert fm.query_centers.abs().sum() > 0


PAIRS = [[0, 1], [0, 2], [1, 1]]
"""Most massive in `data`: two queries of three in cluster 0, most keys in clusters 1 and 2."""
OPTIONS = {"query_centers": CENTERS[0], "key_centers": CENTERS[1], "num_pairs": 3, **DOUBLE}


def data() -> tuple[Tensor, Tensor]:
    """30 queries and 40 keys about their centres."""
    x = CENTERS[0].repeat_interleave(torch.tensor([20, 10]), 0)
    y = CENTERS[1].repeat_interleave(torch.tensor([3, 21, 16]), 0)
    return x + drawn(30, D, 1, 0.05), y + drawn(40, D, 2, 0.05)


def hybrid(**options: object) -> attention.FeatureMap:
    return feature_map("clustered_hybrid", D, 5, **OPTIONS, **options)


def kept(x: Tensor, y: Tensor) -> Tensor:
    """Whether a pair of tokens has a base: (L, S)."""
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
    options = {**OPTIONS, "num_pairs": None, "complex_a": complex_a}
    all_pairs = feature_map("clustered_hybrid", D, 5, **options)
    default = feature_map(default_base, D, 5, dtype=torch.float64)
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
    fm = feature_map("clustered_hybrid", D, 5, **{**OPTIONS, "num_pairs": 1}, **options)
    fm.fit(x, y)
    assert fm.pairs.tolist() == [[0, 1]]
    one = {"query_centers": CENTERS[0][:1], "key_centers": CENTERS[1][1:2], "num_pairs": None}
    single = feature_map("clustered_hybrid", D, 5, **{**OPTIONS, **one}, **options)
    assert fm.output_dim == single.output_dim
    assert_close(fm.queries(x), single.queries(x), rtol=1e-12, atol=1e-14)
    assert_close(fm.keys(y), single.keys(y), rtol=1e-12, atol=1e-14)
    # No default base then; masses of equal clusters leave the first pairs.
    every, six = (
        feature_map("clustered_hybrid", D, 5, **{**OPTIONS, "num_pairs": n}) for n in (None, 6)
    )
    assert six.pairs is None
    assert torch.equal(six.fit(x, y).keys(y), every.keys(y))
    equal = hybrid().fit(CENTERS[0], CENTERS[1])
    assert equal.pairs.tolist() == [[0, 0], [0, 1], [0, 2]]


def test_heads_have_pairs_of_their_own():
    """Found by `fit` and kept in the state."""
    x, y = data()
    both = {**OPTIONS, "query_centers": CENTERS[0].repeat(2, 1, 1), "heads": 2}
    both["key_centers"] = CENTERS[1].repeat(2, 1, 1)
    fm = feature_map("clustered_hybrid", D, 5, **both)
    assert fm.pairs.tolist() == [[[0, 0], [0, 1], [0, 2]]] * 2
    other = y[:24]  # three keys of cluster 0, and no more of cluster 2
    fm.fit(torch.stack((x, x)), torch.stack((y[:24], y[16:])))
    assert fm.pairs[0].tolist() == [[0, 0], [0, 1], [1, 1]]
    assert fm.pairs[1].tolist() == [[0, 1], [0, 2], [1, 2]]
    alone = hybrid().fit(x, other)
    assert_close(fm.keys(torch.stack((y, y)))[0], alone.keys(y), rtol=0, atol=0)
    again = feature_map("clustered_hybrid", D, 5, **both, seed=4)
    again.load_state_dict(fm.state_dict())
    some = torch.stack((x, y[:30]))
    assert torch.equal(again.queries(some), fm.queries(some))
    assert "pairs" not in feature_map("clustered_hybrid", D, 5).state_dict()
    fm.reset_parameters()
    assert fm.pairs.tolist() == [[[0, 0], [0, 1], [0, 2]]] * 2


@pytest.mark.parametrize("coefficients", ["zero_one", "gaussian"])
def test_closed_form_of_drawn_estimates(coefficients):
    """Mean and error at pairs kept and left out, 5,000 draws: |z| > 4 once in 1,000 tries."""
    heads, options = 5_000, {"coefficients": coefficients, "num_lambda_features": 2}
    options |= {"lambda_scale": 2.5, "lambda_features": "trig", "complex_a": False}
    drawn_at_once = {**OPTIONS, **options, "num_pairs": 1, "projection": "iid", "heads": heads}
    drawn_at_once["query_centers"] = CENTERS[0].expand(heads, 2, D)
    drawn_at_once["key_centers"] = CENTERS[1].expand(heads, 3, D)
    fm = feature_map("clustered_hybrid", D, 2, **drawn_at_once)
    x, y = CENTERS[0] + drawn(2, D, 5, 0.1), CENTERS[1][:2] + drawn(2, D, 6, 0.1)
    values = estimate(fm, x.expand(heads, 2, D), y.expand(heads, 2, D))
    exact = attention.kernels.softmax(x, y)
    settings = {"query_centers": CENTERS[0], "key_centers": CENTERS[1], "pairs": fm.pairs[0]}
    error = theory.mse("clustered_hybrid", x, y, 2, **options, **settings)
    assert z_score(values, exact).abs().max() < 4
    assert z_score((values - exact).square(), error).abs().max() < 4


def test_tokens_without_a_base_of_their_own_train():
    """Queries of cluster 1 have the default base alone, keys of cluster 0 too: finite gradients."""
    x, y = (u.float().requires_grad_() for u in data())
    options = {**OPTIONS, "num_pairs": 2, "dtype": torch.float32}
    for complex_a in (True, False):
        options |= {"complex_a": complex_a, "default_base": "hyperbolic"}
        fm = feature_map("clustered_hybrid", D, 5, **options).fit(x, y)
        assert fm.pairs.tolist() == [[0, 1], [0, 2]]
        fm.attend(x, y, y).square().sum().backward()
        assert x.grad.isfinite().all()
        assert y.grad.isfinite().all()
