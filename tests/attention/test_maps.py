"""What every feature map promises, whatever its formula."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

import attention

NAMES = attention.available()
COMPARISONS = ("elu", "relu")
"""Kernels of their own."""
ESTIMATORS = tuple(name for name in NAMES if name not in COMPARISONS)
RANDOM = tuple(name for name in NAMES if name != "elu")
FIXED = ("angular_hybrid", "hyperbolic", "positive", "trig", "trig_phase", *COMPARISONS)
"""Maps without parameters to fit."""
DOUBLE = {"dtype": torch.float64}


def attention_case(name: str, *counts: int) -> tuple[attention.FeatureMap, Tensor, Tensor, Tensor]:
    """A map, and queries, keys and values for it.

    Signed maps get tokens so short, and so many features, that no denominator needs the policy of
    `attention.denominators`; signed powers get no negative entries, which they refuse.
    """
    probe = attention.feature_map(name, 3, 1, **DOUBLE)
    fm = attention.feature_map(name, 3, 40, **DOUBLE) if probe.signed else None
    fm = fm or attention.feature_map(name, 3, 6, **DOUBLE)
    x, y = tokens(*counts[:-1], 3), tokens(*counts[:-2], counts[-1], 3, seed=1)
    if probe.signed:
        x, y = 0.4 * x, 0.4 * y
    if name in ("geometric", "poisson"):
        x, y = x.abs(), y.abs()
    return fm, x, y, tokens(*counts[:-2], counts[-1], 2, seed=2)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.7 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def kernel_matrix(fm: attention.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    return fm.queries(x) @ fm.keys(y).mT


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_scaled_features(name: str, kernel: str) -> None:
    fm = attention.feature_map(name, 4, 6, kernel=kernel, **DOUBLE)
    x = tokens(2, 5, 4)
    for features, scaled in ((fm.queries, fm.scaled_queries), (fm.keys, fm.scaled_keys)):
        plain = features(x)
        assert plain.shape == (2, 5, fm.output_dim)
        assert features(x[0, 0]).shape == (fm.output_dim,)
        mantissa, log_scale = scaled(x)
        assert mantissa.shape == plain.shape
        assert log_scale.shape == (2, 5, 1)
        assert mantissa.abs().max() <= (2 if name.endswith("hybrid") else 1)
        torch.testing.assert_close(mantissa * log_scale.exp(), plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_has_the_defaults_of_the_name(name: str) -> None:
    named = attention.feature_map(name, 4, 6)
    made = type(named)(4, 6)
    x = tokens(3, 4).float()
    assert torch.equal(made.queries(x), named.queries(x))
    assert torch.equal(made.keys(x), named.keys(x))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_gaussian_is_softmax_without_norms(name: str) -> None:
    x, y = tokens(5, 4), tokens(6, 4, seed=1)
    softmax, gaussian = (
        kernel_matrix(attention.feature_map(name, 4, 6, kernel=kernel, **DOUBLE), x, y)
        for kernel in ("softmax", "gaussian")
    )
    norms = 0.5 * (x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1))
    torch.testing.assert_close(gaussian, softmax * (-norms).exp(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_have_one_kernel(name: str) -> None:
    x = tokens(5, 4)
    softmax, gaussian = (
        attention.feature_map(name, 4, 6, kernel=kernel, **DOUBLE).queries(x)
        for kernel in ("softmax", "gaussian")
    )
    assert torch.equal(softmax, gaussian)


@pytest.mark.parametrize("name", NAMES)
def test_attend_equals_the_quadratic_form(name: str) -> None:
    fm, x, y, values = attention_case(name, 2, 5, 7)
    weights = kernel_matrix(fm, x, y)
    expected = weights / weights.sum(-1, keepdim=True) @ values
    torch.testing.assert_close(fm.attend(x, y, values), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_attend_masked_equals_truncated(name: str) -> None:
    """The padding is larger than any real key, and not even finite in places."""
    fm, x, y, values = attention_case(name, 5, 7)
    mask = torch.arange(7) < 5
    expected = fm.attend(x, y[:5], values[:5])
    y[5], y[6], values[5], values[6] = 20.0, torch.nan, 1e9, torch.inf
    torch.testing.assert_close(fm.attend(x, y, values, key_mask=mask), expected)


@pytest.mark.parametrize("name", ["positive", "hyperbolic", "oprf", "gerf", "relu", "elu"])
def test_large_inputs_keep_their_attention(name: str) -> None:
    """|q| = |k| = 12 in float32: plain features overflow, and an epsilon would give the mean."""
    x, y, values = (tokens(n, 8, seed=n) for n in (5, 6, 7))
    x, y, values = (
        12 * x / x.norm(dim=-1, keepdim=True),
        12 * y / y.norm(dim=-1, keepdim=True),
        values[:6],
    )
    fm = attention.feature_map(name, 8, 16)
    result = fm.attend(x.float(), y.float(), values.float()).double()
    weights = kernel_matrix(copy.deepcopy(fm).double(), x, y)
    expected = weights / weights.sum(-1, keepdim=True) @ values
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)
    assert (result - values.mean(0)).abs().min() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    fm, *leaves = attention_case(name, 3, 4)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(fm.attend, leaves)
    assert torch.autograd.gradcheck(fm.token_scores, leaves[:2])


@pytest.mark.parametrize("name", NAMES)
def test_state_travels(name: str) -> None:
    x, y = tokens(3, 4), tokens(3, 4, seed=1)
    source = attention.feature_map(name, 4, 6, seed=1, **DOUBLE)
    target = attention.feature_map(name, 4, 6, seed=2, **DOUBLE)
    expected = kernel_matrix(source, x, y)
    assert torch.equal(kernel_matrix(target, x, y), expected) == (name == "elu")
    target.load_state_dict(source.state_dict())
    for same in (target, copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert torch.equal(kernel_matrix(same, x, y), expected)
    single = kernel_matrix(source.float(), x.float(), y.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_compiles_to_one_graph(name: str) -> None:
    # Each map is one more recompilation of the same code, and eight are the limit.
    torch._dynamo.reset()
    fm, x, y, values = attention_case(name, 9, 9)
    compiled = torch.compile(fm.attend, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y, values), fm.attend(x, y, values))
    compiled = torch.compile(fm.token_scores, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), fm.token_scores(x, y))


@pytest.mark.parametrize("name", RANDOM)
def test_redraw_only_when_asked(name: str) -> None:
    x, y = tokens(3, 4), tokens(3, 4, seed=1)
    before = torch.random.get_rng_state()
    fm = attention.feature_map(name, 4, 6, seed=1, **DOUBLE)
    first = kernel_matrix(fm, x, y)
    assert torch.equal(kernel_matrix(fm.train(), x, y), first)
    assert fm.fit(x, y) is fm
    if name in FIXED:
        assert torch.equal(kernel_matrix(fm, x, y), first)
    fm.redraw(torch.Generator().manual_seed(9))
    second = kernel_matrix(fm, x, y)
    assert not torch.equal(second, first)
    fm.redraw(torch.Generator().manual_seed(9))
    assert torch.equal(kernel_matrix(fm, x, y), second)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_errors_name_the_argument(name: str) -> None:
    fm = attention.feature_map(name, 4, 6)
    with pytest.raises(ValueError, match=r"last dimension 4, got shape \(2, 3\)"):
        fm.queries(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"dtype torch.float32, got torch.float64"):
        fm.token_scores(tokens(2, 4), tokens(2, 4))
    with pytest.raises(ValueError, match="num_features must be at least 1, got 0"):
        attention.feature_map(name, 4, 0)
    with pytest.raises(ValueError, match="dim must be at least 1, got 0"):
        attention.feature_map(name, 0, 4)
    with pytest.raises(ValueError, match="kernel must be one of softmax, gaussian, got 'laplace'"):
        attention.feature_map(name, 4, 4, kernel="laplace")
    with pytest.raises(ValueError, match=f"{name} takes the options .*dtype.*, got 'sigmoid'"):
        attention.feature_map(name, 4, 4, sigmoid=1)


@pytest.mark.parametrize("name", RANDOM)
def test_explicit_projections_are_not_redrawn(name: str) -> None:
    explicit = attention.feature_map(name, 4, 6, projection=torch.zeros(6, 4))
    with pytest.raises(ValueError, match=r"redraw needs .* by name"):
        explicit.redraw(torch.Generator())


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ValueError, match=r"one of angular_hybrid, .*, trig_phase, got 'performer'"):
        attention.feature_map("performer", 4, 4)
    assert attention.available() == tuple(sorted(attention.available()))
