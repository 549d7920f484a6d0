"""Compiled token scores are those of plain PyTorch, with gradients; plain PyTorch does the rest."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from attention import FeatureMap, compiled, feature_map
from attention.components import watched
from tests.attention.cases import relative_error, tokens
from tests.attention.custom_maps import Tempered
from tests.pairwise import pairwise

pytest.importorskip("numba", reason="extra fast")

MAPS: list[tuple[str, dict[str, Any]]] = [
    ("positive", {}),
    ("hyperbolic", {}),
    ("trig", {}),
    ("oprf", {"A": -0.1}),
    ("angular_hybrid", {"num_lambda_features": 5}),
    ("angular_hybrid", {"base": ("oprf", "trig"), "num_lambda_features": 1}),
    ("angular_hybrid", {"base": ("positive", "trig"), "shared_projections": False}),
]


def drawn(*shape: int, seed: int = 0, length: float = 1.0) -> Tensor:
    """Tokens of one length that need gradients."""
    unit = torch.nn.functional.normalize(tokens(*shape, seed=seed), dim=-1)
    return (length * unit).requires_grad_()


def is_compiled(scores: Tensor) -> bool:
    """Whether the scores' graph begins with the compiled function."""
    nodes = [scores.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            if type(node).__name__ == "_ScoresBackward":
                return True
            nodes += [other for other, _ in node.next_functions]
    return False


def results(fm: FeatureMap, x: Tensor, y: Tensor, weights: Tensor) -> list[Tensor]:
    """Scores and gradients of their weighted sum."""
    scores = fm.token_scores(x, y)
    return [scores.detach(), *torch.autograd.grad((scores * weights).sum(), (x, y))]


def agree(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        largest = float(other.abs().max()) if other.numel() else 0.0
        assert_close(one, other, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize(
    ("case", "kernel", "heads", "lengths", "dim", "m"),
    pairwise(
        MAPS,
        ["softmax", "gaussian"],
        [None, 2],
        [(6, 6), (1, 1), (0, 3), (3, 0), (130, 300)],
        [1, 4, 6, 16],
        [1, 4, 11],
    ),
)
def test_scores_and_gradients_are_those_of_pytorch(
    case, kernel, heads, lengths, dim, m, monkeypatch
):
    name, options = case
    fm = feature_map(name, dim, m, kernel=kernel, heads=heads, **options)
    leading = (3,) if heads is None else (3, heads)
    x = drawn(*leading[1:], lengths[0], dim)  # broadcast
    y = drawn(*leading, lengths[1], dim, seed=1)
    weights = tokens(*leading, lengths[1], seed=2)
    assert is_compiled(fm.token_scores(x, y))
    found = results(fm, x, y, weights)
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    assert not is_compiled(fm.token_scores(x, y))
    agree(found, results(fm, x, y, weights))


@pytest.mark.parametrize(
    ("name", "length"), [("positive", 13.0), ("hyperbolic", 9.0), ("trig", 9.0)]
)
def test_long_tokens(name, length, monkeypatch):
    """Features of exp(+-85) lose as many digits as in PyTorch."""
    fm = feature_map(name, 4, 16)
    x, y = drawn(50, 4, length=length), drawn(40, 4, seed=1, length=length)
    weights = tokens(40, seed=2)
    found = results(fm, x, y, weights)
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    plain = results(fm, x, y, weights)
    wide = [t.detach().double().requires_grad_() for t in (x, y)]
    exact = results(fm.double(), *wide, weights.double())
    assert all(value.isfinite().all() for value in exact)
    for one, other, expected in zip(found, plain, exact, strict=True):
        assert relative_error(one, expected) < 2 * relative_error(other, expected) + 1e-6


def test_exponentials_leave_the_range_as_in_pytorch(monkeypatch):
    fm = feature_map("positive", 1, 2, projection=torch.tensor([[100.0], [-120.0]]))
    x, y = torch.zeros(2, 1, requires_grad=True), torch.tensor([[1.0], [-1.0], [0.8], [0.0]])
    found = fm.token_scores(x, y)
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    assert_close(found, fm.token_scores(x, y), rtol=1e-5, atol=0)
    assert torch.equal(found.isinf(), torch.tensor([True, True, False, False]))


ATTENDED: list[tuple[str, dict[str, Any]]] = [
    ("positive", {}),
    ("hyperbolic", {}),
    ("oprf", {"A": -0.1}),
    ("angular_hybrid", {"num_lambda_features": 8}),
    ("angular_hybrid", {"num_lambda_features": 1, "base": ("oprf", "trig")}),
    ("angular_hybrid", {"base": ("positive", "trig"), "shared_projections": False}),
]


def same_attention(
    fm: FeatureMap, x: Tensor, y: Tensor, v: Tensor, monkeypatch, **options
) -> float:
    """The error of the compiled kernel; both have the error of float32 where keys cancel."""
    kernels, used = compiled._kernels(), []
    with torch.no_grad(), monkeypatch.context() as patched:
        name = "causal_signs" if options.get("causal") else "attend_signs"
        name = name if fm.signed else "attend_positive"
        run = getattr(kernels, name)
        patched.setattr(compiled, "LEAST_LENGTH", 0)
        patched.setattr(kernels, name, lambda *given: used.append(run(*given)))
        found = fm.attend(x, y, v, **options)
        patched.setenv("FOVEATE_NUMBA", "0")
        expected = fm.attend(x, y, v, **options)
    assert used
    return relative_error(found, expected) if expected.any() else float(found.abs().max())


@pytest.mark.parametrize(
    ("case", "kernel", "heads", "lengths", "dim", "values", "masked", "causal"),
    pairwise(
        ATTENDED,
        ["softmax", "gaussian"],
        [None, 2],
        [(1, 1), (3, 130), (130, 3), (700, 600)],
        [1, 6, 33],
        [1, 32, 40],
        [False, True],
        [False, True],
    ),
)
def test_attention_is_that_of_pytorch(
    case, kernel, heads, lengths, dim, values, masked, causal, monkeypatch
):
    name, options = case
    fm = feature_map(name, dim, 7, kernel=kernel, heads=heads, **options)
    lengths = (lengths[1],) * 2 if causal else lengths
    x, y = drawn(3, 2, lengths[0], dim), drawn(3, 2, lengths[1], dim, seed=1)
    v = 1 + 0.3 * tokens(3, 2, lengths[1], values, seed=2)
    mask = None
    if masked:
        mask = tokens(3, 1, lengths[1], seed=3) > 0
        mask[..., 0] = not causal  # the first causal query sees no key
        mask[0, :, 128:256] = False
    error = same_attention(fm, 0.5 * x, 0.5 * y, v, monkeypatch, key_mask=mask, causal=causal)
    assert error < 1e-5


@pytest.mark.parametrize(
    ("name", "causal"), pairwise(["positive", "angular_hybrid"], [False, True])
)
def test_attention_of_keys_that_grow(name, causal, monkeypatch):
    """Sums are then in new units."""
    fm = feature_map(name, 4, 6)
    x, y = drawn(900, 4, length=0.5), drawn(900, 4, seed=1) * torch.linspace(0.1, 5, 900)[:, None]
    v = 1 + tokens(900, 3, seed=2).abs()
    assert same_attention(fm, x, y, v, monkeypatch, causal=causal) < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("name", ["positive", "angular_hybrid"])
def test_later_keys_change_no_bit_of_causal_attention(name):
    fm = feature_map(name, 4, 6)
    x, y, v = drawn(700, 4, length=0.5), drawn(700, 4, seed=1), tokens(700, 3, seed=2)
    expected = fm.attend(x, y, v, causal=True)
    y, v = y.clone(), v.clone()
    y[333:] *= 4
    v[333:] = 1e6
    assert torch.equal(fm.attend(x, y, v, causal=True)[:333], expected[:333])
    assert torch.equal(fm.attend(x[:333], y[:333], v[:333], causal=True), expected[:333])


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "causal"), pairwise(["hyperbolic", "angular_hybrid"], [False, True])
)
def test_long_sums_keep_five_digits(name, causal):
    fm = feature_map(name, 2, 4)
    keys, values = torch.zeros(30000, 2), torch.full((30000, 1), 0.7)
    queries = keys if causal else keys[:3]
    output = fm.attend(queries, keys, values, causal=causal)
    assert relative_error(output, torch.full_like(output, 0.7)) < 1e-5


@torch.no_grad()
def test_denominators_that_underflow_give_zeros(monkeypatch):
    """Long queries and keys are large at different random vectors."""
    fm = feature_map("positive", 4, 8)
    x, y = drawn(600, 4, length=40.0), drawn(1, 4, seed=1, length=40.0).expand(600, 4)
    found = fm.attend(x, y, torch.ones(600, 2))
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    expected = fm.attend(x, y, torch.ones(600, 2))
    some = expected != 0
    assert_close(found[some], expected[some])
    assert 0 < int((found == 0).sum()) <= int((expected == 0).sum()) < found.numel()


def test_second_derivatives_and_batched_gradients(monkeypatch):
    fm = feature_map("trig", 3, 8)
    x, y = drawn(2, 5, 3), drawn(2, 4, 3, seed=1)

    def derivatives() -> list[Tensor]:
        scores = fm.token_scores(x, y)
        first = torch.autograd.grad(scores.sum(), (x, y), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, y))
        every = torch.eye(8).reshape(8, 2, 4)
        rows = torch.autograd.grad(fm.token_scores(x, y), (x, y), every, is_grads_batched=True)
        return [*second, *rows]

    found = derivatives()
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    agree(found, derivatives())


def test_queries_or_keys_alone_need_gradients():
    fm = feature_map("angular_hybrid", 3, 4)
    x, y = drawn(5, 3), drawn(4, 3, seed=1)
    of_x, of_y = torch.autograd.grad(fm.token_scores(x, y).sum(), (x, y))
    assert_close(torch.autograd.grad(fm.token_scores(x, y.detach()).sum(), x)[0], of_x)
    assert_close(torch.autograd.grad(fm.token_scores(x.detach(), y).sum(), y)[0], of_y)


def test_threads_do_not_change_a_bit(monkeypatch):
    fm = feature_map("hyperbolic", 3, 8, heads=2)
    x, y = drawn(5, 2, 20, 3), drawn(5, 2, 20, 3, seed=1)
    weights = tokens(5, 2, 20, seed=2)
    expected = results(fm, x, y, weights)
    monkeypatch.setattr(compiled, "_WORTH_THREADS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for one, other in zip(results(fm, x, y, weights), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_scores_do_not_depend_on_gradients_batch_or_trace_to_the_bit(monkeypatch):
    fm = feature_map("angular_hybrid", 4, 6)
    x, y = drawn(3, 7, 4), drawn(3, 150, 4, seed=1)
    expected = fm.token_scores(x, y)
    assert is_compiled(expected)
    with torch.no_grad():
        assert torch.equal(fm.token_scores(x, y), expected)
        assert torch.equal(fm.token_scores(x[1], y[1]), expected[1])
        with compiled.recording():
            traced = torch.jit.trace(lambda x, y: fm.token_scores(x, y), (x, y), check_trace=False)
        assert "foveate::token_scores" in str(traced.graph)
        assert torch.equal(traced(y[:, :7], y), fm.token_scores(y[:, :7], y))
        monkeypatch.setattr(compiled, "LEAST_LENGTH", 0)
        with compiled.recording():
            traced = torch.jit.trace(lambda x, y: fm.attend(x, y, y), (x, y), check_trace=False)
        assert "foveate::attend_signs" in str(traced.graph)
        assert torch.equal(traced(y[:, :7], y), fm.attend(y[:, :7], y, y))


@pytest.mark.parametrize("change", ["redraw", "fit", "load", "cast"])
def test_changes_of_a_map_count_at_once(change, monkeypatch):
    fm = feature_map("angular_hybrid", 4, 6, base=("oprf", "trig"))
    x, y = drawn(7, 4), drawn(6, 4, seed=1)
    before = fm.token_scores(x, y)
    if change == "redraw":
        fm.redraw(torch.Generator().manual_seed(1))
    elif change == "fit":
        fm.fit(y, y)
    elif change == "load":
        fm.load_state_dict(
            feature_map("angular_hybrid", 4, 6, base=("oprf", "trig"), seed=3).state_dict()
        )
    else:
        fm.double().float()
    after = fm.token_scores(x, y)
    assert torch.equal(after, before) == (change == "cast")
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    assert_close(after, fm.token_scores(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_plain_pytorch_does_what_the_kernels_cannot():
    x, y = drawn(7, 4), drawn(6, 4, seed=1)
    fm = feature_map("positive", 4, 8)
    assert is_compiled(fm.token_scores(x, y))
    assert not is_compiled(feature_map("relu", 4, 8).token_scores(x, y)), "another function"
    assert not is_compiled(Tempered(4, 8).token_scores(x, y)), "a subclass"
    assert not is_compiled(feature_map("positive", 64, 8).token_scores(drawn(7, 64), drawn(6, 64)))
    wide = feature_map("positive", 4, 8, dtype=torch.float64)
    assert not is_compiled(wide.token_scores(x.double(), y.double())), "float64"
    with watched():
        assert not is_compiled(fm.token_scores(x, y)), "FLOPs are counted"
    with FlopCounterMode(display=False):
        assert not is_compiled(fm.token_scores(x, y)), "FLOPs are counted"
    traced = torch.jit.trace(lambda x, y: fm.token_scores(x, y), (x, y), check_trace=False)
    assert "foveate" not in str(traced.graph), "a trace may run in other processes"
    assert fm.omega is not None
    fm.omega.requires_grad_()
    assert not is_compiled(fm.token_scores(x, y)), "random vectors are learned"


def test_plain_pytorch_runs_where_numba_is_missing(monkeypatch):
    fm = feature_map("positive", 4, 8)
    x, y = drawn(7, 4), drawn(6, 4, seed=1)
    compiled._kernels.cache_clear()
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "numba", None)
        assert not is_compiled(fm.token_scores(x, y))
    compiled._kernels.cache_clear()
    assert is_compiled(fm.token_scores(x, y))
