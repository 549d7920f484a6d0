"""Parameters found by `fit` from averages are those of all pairs, and travel with the map."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map, theory
from tests.attention.cases import DOUBLE, doubles, rejects

DISCRETE = ("poisson", "geometric", "poisson_plus", "geometric_plus")
FITTED = ("complex_exponential", "gerf", "oprf", *DISCRETE)


def data(*shape: int, seed: int = 0) -> Tensor:
    """Skewed, off the origin, with entries of either sign."""
    u = doubles(*shape, seed=seed)
    return 0.3 * u + 0.4 * torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64) + 0.1 * u.square()


def parameters(fm: attention.FeatureMap) -> dict[str, Tensor]:
    drawn = ("omega", "uniforms", "phase", "place")
    return {name: value for name, value in fm.named_buffers() if name not in drawn}


@pytest.mark.parametrize(("name", "s"), [("oprf", 1), ("gerf", 1), ("gerf", -1)])
def test_exponential_parameter_from_all_pairs(name, s):
    x, y = data(5, 3), -data(4, 3, seed=1)
    options = {"s": s} if name == "gerf" else {}
    fm = feature_map(name, 3, 4, **DOUBLE, **options).fit(x, y)
    A = fm.A if name == "oprf" else fm.A_real
    square = (x.unsqueeze(1) + s * y).square().sum(-1).mean()
    optimum = theory.oprf_parameter if s == 1 else theory.gerf_parameter
    assert_close(A, optimum(square, 3), rtol=1e-12, atol=0)
    assert A < 0 if s == 1 else A > 0


@pytest.mark.parametrize("plus", [False, True])
def test_discrete_parameters_from_all_pairs(plus):
    x, y = data(5, 3), -data(4, 3, seed=1)
    suffix = "_plus" if plus else ""
    poisson = feature_map(f"poisson{suffix}", 3, 4, **DOUBLE).fit(x, y)
    geometric = feature_map(f"geometric{suffix}", 3, 4, **DOUBLE).fit(x, y)
    if plus:
        assert torch.equal(poisson.shift, geometric.shift)
        x, y = x - poisson.shift, y - poisson.shift
    squares = (x.unsqueeze(1) * y).square().mean((0, 1, 2))
    assert_close(poisson.parameter, squares.sqrt(), rtol=1e-12, atol=0)
    expected = theory.geometric_parameter((x.unsqueeze(1) * y).abs().mean((0, 1)))
    assert_close(geometric.parameter, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("name", ["poisson_plus", "geometric_plus"])
def test_shift_lies_just_below_both_data_sets(name, kernel):
    x, y = data(2, 5, 3), -data(2, 4, 3, seed=1)
    fm = feature_map(name, 3, 50, kernel=kernel, margin=0.1, **DOUBLE).fit(x, y)
    both = torch.cat((x.flatten(0, 1), y.flatten(0, 1)))
    least, largest = both.amin(0), both.amax(0)
    assert_close(fm.shift, least - 0.1 * (largest - least), rtol=1e-12, atol=0)
    assert (fm.queries(x) > 0).all()
    assert (fm.keys(y) > 0).all()
    below = fm.queries(least - (largest - least))
    assert below.isfinite().all()
    assert (below < 0).any()


@pytest.mark.parametrize("complex_a", [True, False])
def test_diagonals(complex_a):
    # Clusters of one vector, with equal and opposite signs: the paper's optimum.
    x, y = data(1, 1, 3), data(1, 1, 3, seed=1) * torch.tensor([1.0, 1.0, -1.0])
    options = {"complex_a": complex_a, **DOUBLE}
    fm = feature_map("complex_exponential", 3, 4, **options).fit(x, y)
    centers = x[0, 0], y[0, 0]
    A = fm.A_real if fm.A_imag is None else torch.complex(fm.A_real, fm.A_imag)
    loss = theory.center_loss(*centers, A)
    expected = torch.zeros(()) if complex_a else theory.least_real_loss(*centers)
    assert_close(loss, expected.double(), rtol=1e-12, atol=1e-25)
    assert fm.signed == complex_a
    assert fm.output_dim == (8 if complex_a else 4)
    exact = attention.kernels.softmax(*centers)
    estimate = (fm.queries(centers[0]) * fm.keys(centers[1])).sum(-1)
    if complex_a:
        assert_close(estimate, exact, rtol=1e-12, atol=0)
    # Of all moduli, the mean loss over all pairs is least at those of `fit`.
    x, y = data(2, 5, 3), 2 * data(2, 4, 3, seed=1) * torch.tensor([1.0, 1.0, -1.0])
    fm = feature_map("complex_exponential", 3, 4, **options).fit(x, y)
    A = fm.A_real if fm.A_imag is None else torch.complex(fm.A_real, fm.A_imag)
    pairs = x.reshape(-1, 1, 3), y.reshape(1, -1, 3)
    least = theory.center_loss(*pairs, A).mean()
    for factors in 1 + 0.01 * torch.cat((torch.eye(3), -torch.eye(3))):
        assert theory.center_loss(*pairs, factors * A).mean() > least


def test_entries_of_diagonals():
    # Means of 0.8 and 0.65 of the root mean squares, product 0.52; then 0.48; then -0.52.
    shares = torch.tensor([[0.8, 0.8, 0.8], [0.65, 0.6, -0.65]], dtype=torch.float64)
    side = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    x, y = (share + (1 - share.square()).sqrt() * side for share in shares)
    fm = feature_map("complex_exponential", 3, 4, **DOUBLE).fit(x, 4 * y)
    expected = torch.tensor([2j, 2, 2], dtype=torch.complex128)
    assert_close(torch.complex(fm.A_real, fm.A_imag), expected)
    x = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    fm = feature_map("complex_exponential", 3, 4, **DOUBLE).fit(x, y)
    moduli = torch.hypot(fm.A_real, fm.A_imag)
    assert_close(moduli, torch.tensor([10.0, 1.0, 0.1], dtype=torch.float64))


def attention_error(fm: attention.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    """Relative, median over nine draws."""
    values = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=y.dtype)
    exact = (x @ y.mT).softmax(-1) @ values
    generator = torch.Generator().manual_seed(6)
    errors = []
    for _ in range(9):
        fm.redraw(generator)
        errors.append((fm.attend(x, y, values) - exact).norm() / exact.norm())
    return torch.stack(errors).median()


@pytest.mark.parametrize("name", ["complex_exponential", "clustered_hybrid"])
def test_fit_does_no_harm_to_centred_data_and_helps_tight_clusters(name):
    """Means of centred data are noise; a diagonal from their ratios had 20 times the error."""
    if name == "clustered_hybrid":
        pytest.importorskip("sklearn")
    generator = torch.Generator().manual_seed(0)
    centers = 0.5 * torch.randn(2, 1, 16, generator=generator, dtype=torch.float64).sign()
    tight = centers + 0.1 * torch.randn(2, 64, 16, generator=generator, dtype=torch.float64)
    for (x, y), largest in ((0.4 * doubles(2, 1, 64, 16), 1.2), (tight, 0.5)):
        fm = feature_map(name, 16, 64, **DOUBLE)
        before = attention_error(fm, x, y)
        assert attention_error(fm.fit(x, y), x, y) < largest * before


@pytest.mark.parametrize("name", FITTED)
def test_fit_moves_the_map_and_its_state(name):
    """Data without statistics is refused."""
    x, y = data(2, 5, 3), data(2, 4, 3, seed=1)
    fm = feature_map(name, 3, 40, seed=1, **DOUBLE)
    before = fm.queries(x) @ fm.keys(y).mT
    assert fm.fit(x, y) is fm
    if name in DISCRETE:  # built with the same parameter and seed: the same integers
        option = "lam" if name.startswith("poisson") else "p"
        same = feature_map(name, 3, 40, seed=1, **{option: fm.parameter}, **DOUBLE)
        assert torch.equal(fm.omega, same.omega)
    expected = fm.queries(x) @ fm.keys(y).mT
    assert not torch.allclose(expected, before)
    fresh = feature_map(name, 3, 40, seed=2, **DOUBLE)
    fresh.load_state_dict(fm.state_dict())
    assert torch.equal(fresh.queries(x) @ fresh.keys(y).mT, expected)
    for twin in (fm, fresh):
        twin.redraw(torch.Generator().manual_seed(7))
    assert torch.equal(fresh.queries(x) @ fresh.keys(y).mT, fm.queries(x) @ fm.keys(y).mT)
    same = (torch.equal(parameters(fresh)[key], value) for key, value in parameters(fm).items())
    assert all(same)
    fm = feature_map(name, 3, 4, **DOUBLE)
    good = data(5, 3)
    rejects(r"fit needs at least one token in x .* got shape \(0, 3\)", fm.fit, good[:0], good)
    rejects(r"token in y and finite entries, got shape \(5, 3\)", fm.fit, good, good / 0)
    rejects(r"y must have last dimension 3, got shape \(5, 2\)", fm.fit, good, good[:, :2])
    assert fm.fit(good[0], good[1]) is fm


GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("oprf", {"A": -0.3}),
    ("gerf", {"A": -0.3}),
    ("gerf", {"A": 0.01 + 0.02j, "s": -1}),
    ("poisson", {"lam": 0.7}),
    ("geometric", {"p": 0.7}),
    ("poisson_plus", {"lam": 0.7, "shift": torch.tensor([-1.0, -2.0, -3.0])}),
    ("geometric_plus", {"p": 0.7, "shift": torch.tensor([-1.0, -2.0, -3.0])}),
    ("complex_exponential", {"A": torch.tensor([1.0, 2.0, 0.5])}),
    ("poisson", {"projection": torch.tensor([[1, 0, 2]] * 4)}),
]


@pytest.mark.parametrize(("name", "options"), GIVEN)
def test_given_parameters_stay(name, options):
    x, y = data(5, 3), data(4, 3, seed=1)
    fm = feature_map(name, 3, 4, **options, **DOUBLE)
    before = copy.deepcopy(parameters(fm))
    fm.fit(x, y)
    assert all(torch.equal(before[key], value) for key, value in parameters(fm).items())


HEADS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in attention.available()),
    ("gerf", {"s": -1}),
    ("gerf", {"A": 0.02 + 0.05j, "s": -1}),
    ("complex_exponential", {"complex_a": False}),
    ("complex_exponential", {"A": torch.eye(3) + 0.1j}),
    ("angular_hybrid", {"base": ("oprf", "trig")}),
    ("gaussian_hybrid", {"base": ("oprf", "trig"), "shared_projections": False}),
    ("clustered_hybrid", {"coefficients": "gaussian", "num_lambda_features": 3}),
]


@pytest.mark.parametrize(("name", "options"), HEADS)
def test_heads_are_separate_maps(name, options):
    """Each head is the map of its part of the state, and is fitted to its tokens alone."""
    if name == "clustered_hybrid":
        pytest.importorskip("sklearn")
    scale = torch.tensor([0.5, 1.5], dtype=torch.float64).reshape(2, 1, 1)
    x, y = scale * data(4, 2, 5, 3), scale * data(4, 2, 6, 3, seed=1)
    fm = feature_map(name, 3, 7, heads=2, **options, **DOUBLE).fit(x, y)
    for head in range(2):
        u, w = x[:, head], y[:, head]
        alone = feature_map(name, 3, 7, **options, **DOUBLE).fit(u, w)
        state = {
            key: value if value.numel() == own.numel() else value[head].reshape(own.shape)
            for (key, own), value in zip(
                alone.state_dict().items(), fm.state_dict().values(), strict=True
            )
        }
        for key in parameters(alone).keys() & state.keys() - {"weight", "lambda_map.omega"}:
            assert_close(state[key], alone.state_dict()[key], rtol=1e-12, atol=0)
        alone.load_state_dict(state)
        for found, expected in (
            (fm.queries(x), alone.queries(u)),
            (fm.keys(y), alone.keys(w)),
            (fm.scaled_queries(x).log_scale, alone.scaled_queries(u).log_scale),
            (fm.scaled_keys(y).log_scale, alone.scaled_keys(w).log_scale),
            (fm.token_scores(x, y).unsqueeze(-1), alone.token_scores(u, w).unsqueeze(-1)),
        ):
            assert_close(found[:, head], expected, rtol=1e-12, atol=1e-12)
    before = fm.queries(x)
    if fm.state_dict():
        fm.redraw(torch.Generator().manual_seed(1))
        assert not torch.equal(fm.queries(x), before)
