"""What every feature map promises, whatever its formula."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

import attention

NAMES = attention.available()
DOUBLE = {"dtype": torch.float64}


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
        assert mantissa.abs().max() <= 1
        torch.testing.assert_close(mantissa * log_scale.exp(), plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_gaussian_is_softmax_without_norms(name: str) -> None:
    x, y = tokens(5, 4), tokens(6, 4, seed=1)
    softmax, gaussian = (
        kernel_matrix(attention.feature_map(name, 4, 6, kernel=kernel, **DOUBLE), x, y)
        for kernel in ("softmax", "gaussian")
    )
    norms = 0.5 * (x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1))
    torch.testing.assert_close(gaussian, softmax * (-norms).exp(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_attend_equals_the_quadratic_form(name: str) -> None:
    fm = attention.feature_map(name, 4, 6, **DOUBLE)
    x, y, values = tokens(2, 5, 4), tokens(2, 7, 4, seed=1), tokens(2, 7, 3, seed=2)
    weights = kernel_matrix(fm, x, y)
    expected = weights / weights.sum(-1, keepdim=True) @ values
    torch.testing.assert_close(fm.attend(x, y, values), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_attend_masked_equals_truncated(name: str) -> None:
    """The padding is larger than any real key, and not even finite in places."""
    fm = attention.feature_map(name, 4, 6, **DOUBLE)
    x, y, values = tokens(5, 4), tokens(7, 4, seed=1), tokens(7, 3, seed=2)
    mask = torch.arange(7) < 5
    expected = fm.attend(x, y[:5], values[:5])
    y[5], y[6], values[5], values[6] = 20.0, torch.nan, 1e9, torch.inf
    torch.testing.assert_close(fm.attend(x, y, values, key_mask=mask), expected)


@pytest.mark.parametrize("name", ["positive", "hyperbolic"])
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
    fm = attention.feature_map(name, 3, 4, **DOUBLE)
    x, y, values = tokens(3, 3), tokens(4, 3, seed=1), tokens(4, 2, seed=2)
    leaves = tuple(t.requires_grad_() for t in (x, y, values))
    assert torch.autograd.gradcheck(fm.attend, leaves)
    assert torch.autograd.gradcheck(fm.token_scores, leaves[:2])


@pytest.mark.parametrize("name", NAMES)
def test_state_travels(name: str) -> None:
    x, y = tokens(3, 4), tokens(3, 4, seed=1)
    source = attention.feature_map(name, 4, 6, seed=1, **DOUBLE)
    target = attention.feature_map(name, 4, 6, seed=2, **DOUBLE)
    expected = kernel_matrix(source, x, y)
    assert not torch.equal(kernel_matrix(target, x, y), expected)
    target.load_state_dict(source.state_dict())
    for same in (target, copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert torch.equal(kernel_matrix(same, x, y), expected)
    single = kernel_matrix(source.float(), x.float(), y.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_compiles_to_one_graph(name: str) -> None:
    fm = attention.feature_map(name, 4, 6, **DOUBLE)
    x, y, values = tokens(9, 4), tokens(9, 4, seed=1), tokens(9, 3, seed=2)
    compiled = torch.compile(fm.attend, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y, values), fm.attend(x, y, values))
    compiled = torch.compile(fm.token_scores, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), fm.token_scores(x, y))


@pytest.mark.parametrize("name", NAMES)
def test_redraw_only_when_asked(name: str) -> None:
    x, y = tokens(3, 4), tokens(3, 4, seed=1)
    before = torch.random.get_rng_state()
    fm = attention.feature_map(name, 4, 6, seed=1, **DOUBLE)
    first = kernel_matrix(fm, x, y)
    assert torch.equal(kernel_matrix(fm.train(), x, y), first)
    assert fm.fit(x, y) is fm
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
    explicit = attention.feature_map(name, 4, 6, projection=torch.zeros(6, 4))
    with pytest.raises(ValueError, match=r"redraw needs .* by name"):
        explicit.redraw(torch.Generator())


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ValueError, match=r"one of angular_hybrid, .*, trig, got 'performer'"):
        attention.feature_map("performer", 4, 4)
    assert attention.available() == tuple(sorted(attention.available()))
