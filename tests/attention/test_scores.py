"""Token scores: column sums of the kernel matrix, which is never formed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import attention
from attention import feature_map
from tests.attention import cases
from tests.attention.cases import rejects
from tests.pairwise import pairwise

BASES = [("hyperbolic", "trig"), ("positive", "oprf")]


def tokens(*shape: int, seed: int = 0) -> Tensor:
    """Of unit length, as in the papers' robotics experiments."""
    drawn = cases.tokens(*shape, seed=seed, dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=-1)


@pytest.mark.parametrize(
    ("kernel", "name", "lengths"),
    pairwise(["softmax", "gaussian"], attention.available(), [(6, 6), (1, 9), (700, 20)]),
)
def test_scores_are_column_sums(name, kernel, lengths):
    x, y = tokens(2, lengths[0], 5), tokens(2, lengths[1], 5, seed=1)
    fm = feature_map(name, 5, 100, kernel=kernel, dtype=torch.float64)
    phi_q, phi_k = fm.queries(x), fm.keys(y)
    expected = (phi_q @ phi_k.mT).sum(-2)
    assert_close(fm.token_scores(x, y), expected, rtol=1e-11, atol=1e-11)
    assert_close(attention.token_scores(phi_q, phi_k), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", attention.available())
def test_leading_dimensions_broadcast(name):
    x, y = 0.5 * tokens(2, 6, 5), 0.5 * tokens(4, 5, seed=1)
    fm = feature_map(name, 5, 8, dtype=torch.float64)
    assert_close(fm.token_scores(x, y), fm.token_scores(x, y.expand(2, 4, 5)))
    assert_close(fm.token_scores(y, x), fm.token_scores(y.expand(2, 4, 5), x))


@pytest.mark.parametrize(
    ("heads", "shared", "base", "name"),
    pairwise([None, 2], [True, False], BASES, ["angular_hybrid", "gaussian_hybrid"]),
)
def test_hybrids_are_the_same_without_gradients(name, base, shared, heads):
    """To the bit: features are then written where they stay, and not joined."""
    x, y = tokens(2, 6, 5), tokens(2, 8, 5, seed=1)
    options = {"base": base, "shared_projections": shared, "heads": heads, "num_lambda_features": 3}
    fm = feature_map(name, 5, 4, dtype=torch.float64, **options).fit(x, y)
    long = tokens(2, 8, 40, seed=2)
    expected = fm.token_scores(x, y), fm.attend(x, y, long)
    with torch.no_grad():
        assert torch.equal(fm.token_scores(x, y), expected[0])
        assert torch.equal(fm.attend(x, y, long), expected[1])


@pytest.mark.parametrize("length", [7, 900])
def test_exact_scores(length):
    x, y = tokens(2, length, 5), tokens(2, length, 5, seed=1)
    expected = (x @ y.mT).exp().sum(-2)
    assert_close(attention.softmax_token_scores(x, y), expected)
    assert_close(attention.ExactSoftmax(5).token_scores(x, y), expected)


def test_precision_and_range_of_scores():
    # Sums of 4000 in bfloat16 stand still below the half of their value.
    x, y = (tokens(4000, 5, seed=seed).float() for seed in (0, 1))
    expected = attention.softmax_token_scores(x, y)
    low = attention.softmax_token_scores(x.bfloat16(), y.bfloat16())
    assert low.dtype == torch.float32
    assert_close(low, expected, rtol=0.02, atol=0)
    fm = feature_map("positive", 5, 16)
    phi_q, phi_k = fm.queries(x), fm.keys(y)
    from_features = attention.token_scores(phi_q, phi_k)
    low = attention.token_scores(phi_q.bfloat16(), phi_k.bfloat16())
    assert low.dtype == torch.float32
    assert_close(low, from_features, rtol=0.02, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention.softmax_token_scores(x, y), expected)
        assert torch.equal(attention.ExactSoftmax(5).token_scores(x, y), expected)
        assert torch.equal(attention.token_scores(phi_q, phi_k), from_features)
    # With |A| = 10 a query's features reach exp(128); their products with keys do not.
    A = torch.tensor([10j, 0.1 + 0j])
    x, y = torch.tensor([[1.6, 0.01], [1.5, -0.01]]), torch.tensor([[0.01, 1.6], [0.0, 1.5]])
    fm = feature_map("complex_exponential", 2, 16, A=A)
    wide = feature_map("complex_exponential", 2, 16, A=A, dtype=torch.float64)
    expected = wide.token_scores(x.double(), y.double())
    assert_close(fm.token_scores(x, y).double(), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", [*attention.available(), "exact"])
def test_no_square_matrix(name):
    length = 4096
    x, y = (tokens(length, 4, seed=s).float() for s in (0, 1))
    fm: Any = attention.ExactSoftmax(4) if name == "exact" else feature_map(name, 4, 8)
    if name in ("geometric", "poisson"):
        x, y = x.abs(), y.abs()
    computations: list[Callable[[], Tensor]] = [lambda: fm.token_scores(x, y)]
    if name != "exact":
        computations.append(lambda: fm.attend(x, y, x))
    for compute in computations:
        with cases.LargestTensor() as largest:
            compute()
        assert 0 < largest.entries < length**2 / 10


def test_components_are_seen_by_a_dispatch_mode():
    seen: set[tuple[str, str | None]] = set()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.add((func.overloadpacket.__name__, attention.current_component()))
            return func(*args, **(kwargs or {}))

    fm = feature_map("angular_hybrid", 4, 8)
    x = tokens(6, 4).float()
    with Recorder(), attention.component("tokens"):
        fm.token_scores(x, x)
    components = {component for _, component in seen}
    assert {("mm", "projection"), ("exp", "exponentials"), ("mm", "score")} <= seen
    assert {"projection", "exponentials", "score"} <= components
    assert None not in components
    assert attention.current_component() is None
    with pytest.raises(RuntimeError), attention.component("tokens"):
        raise RuntimeError
    assert attention.current_component() is None


def test_errors():
    x, y = torch.ones(4, 2), torch.ones(4, 3)
    rejects("same last dimension F, got 2 and 3", attention.token_scores, x, y)
    rejects("same last dimension d, got 2 and 3", attention.softmax_token_scores, x, y)
    of_two = attention.ExactSoftmax(2).token_scores
    rejects(r"y must have last dimension 2, got shape \(4, 3\)", of_two, x, y)
    rejects("dim must be at least 1, got 0", attention.ExactSoftmax, 0)
