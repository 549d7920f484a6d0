"""Gradients of finite outputs: what cancels in the output cancels in its gradient."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import attention
from attention import RandomFeatureAttention, linear_attention
from attention.recurrent import initial_state, prefill, step
from tests.attention.cases import relative_error

LENGTH, FEATURES, VALUES = 70, 5, 3
UPSTREAM = 65536.0
"""What torch.amp.GradScaler begins with."""
EXPONENTIAL: list[tuple[str, dict[str, Any]]] = [
    ("positive", {}),
    ("hyperbolic", {}),
    ("oprf", {"A": -0.1}),
    ("gerf", {"A": -0.1}),
    ("elu", {}),
    ("complex_exponential", {"complex_a": False}),
    ("clustered_hybrid", {"complex_a": False}),
]


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def full(q: Tensor, k: Tensor, v: Tensor, signed: bool) -> Tensor:
    return linear_attention(q, k, v, signed=signed)


def causal(q: Tensor, k: Tensor, v: Tensor, signed: bool) -> Tensor:
    return linear_attention(q, k, v, causal=True, signed=signed)


def steps(q: Tensor, k: Tensor, v: Tensor, signed: bool) -> Tensor:
    state = initial_state((), k.shape[-1], v.shape[-1], dtype=q.dtype)
    outputs = []
    for query, key, value in zip(q, k, v, strict=True):
        output, state = step(state, query, key, value, signed=signed)
        outputs.append(output)
    return torch.stack(outputs)


def prefills(q: Tensor, k: Tensor, v: Tensor, signed: bool) -> Tensor:
    state = initial_state((), k.shape[-1], v.shape[-1], dtype=q.dtype)
    outputs = []
    for part in (slice(0, 2), slice(2, None)):
        if q[part].shape[0]:
            output, state = prefill(state, q[part], k[part], v[part], signed=signed)
            outputs.append(output)
    return torch.cat(outputs)


FORMS = [full, causal, steps, prefills]
Form = Callable[[Tensor, Tensor, Tensor, bool], Tensor]


def gradients(output: Tensor, upstream: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    product = (output * upstream.to(output)).sum()
    return list(torch.autograd.grad(product, leaves, retain_graph=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [1.0, 2.7, 1e3])
def test_one_tiny_query_and_key(form: Form, value: float) -> None:
    """The output is the value itself for any features: gradients 0, 0 and 1."""
    for size in (1e-20, 3e-25, 1e20):
        leaves = [torch.tensor([[u]], requires_grad=True) for u in (size, size, value)]
        output = form(*leaves, False)
        assert output.item() == torch.tensor(value).item()
        assert [g.item() for g in torch.autograd.grad(output, leaves)] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_scale_inversely_with_features(form: Form, signed: bool) -> None:
    """Values of 1e3 and an upstream gradient of 65536; float64 at scale 1 is the reference."""
    draw = [randn(LENGTH, n, seed=s) for s, n in enumerate((FEATURES, FEATURES, VALUES))]
    q, k = (u + 1 if signed else u.abs() for u in draw[:2])
    v, upstream = 1e3 * draw[2], UPSTREAM * randn(LENGTH, VALUES, seed=3)
    exact = [u.double().requires_grad_() for u in (q, k, v)]
    output = form(*exact, signed)
    expected = gradients(output, upstream, exact)
    scales = (1e-24, 1e-18, 1.0, 1e18, 1e30)
    pairs = [(1e-18, 1e-18), (1e-24, 1e30)] if form is steps else itertools.product(scales, scales)
    for of_q, of_k in pairs:
        leaves = [u.clone().requires_grad_() for u in (of_q * q, of_k * k, v)]
        computed = form(*leaves, signed)
        assert relative_error(computed, output) < 1e-4
        found = gradients(computed, upstream, leaves)
        for gradient, reference, scale in zip(found, expected, (of_q, of_k, 1), strict=True):
            assert relative_error(gradient.double() * scale, reference) < 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_a_zero_denominator_gives_zeros_and_gradients_of_zero(form: Form) -> None:
    leaves = [
        torch.tensor(rows, requires_grad=True)
        for rows in ([[1.0, 0.0]], [[0.0, 1e-30]], [[3.0, 4.0]])
    ]
    output = form(*leaves, False)
    assert torch.equal(output, torch.zeros(1, 2))
    assert not any(g.any() for g in gradients(output, torch.ones(1, 2), leaves))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_by_a_row_of_zeros(form: Form) -> None:
    """A key without features takes no part, and would if it had some."""
    q, k, v = (randn(4, n, seed=s).abs() for s, n in enumerate((3, 3, 2)))
    k[1] = 0
    exact = [u.double().requires_grad_() for u in (q, k, v)]
    weights = exact[0] @ exact[1].mT
    weights = weights if form is full else weights.tril()
    reference = weights / weights.sum(-1, keepdim=True) @ exact[2]
    upstream = randn(4, 2, seed=5)
    leaves = [u.requires_grad_() for u in (q, k, v)]
    found = gradients(form(*leaves, False), upstream, leaves)
    for gradient, expected in zip(found, gradients(reference, upstream, exact), strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-5)


def module_pair(name: str, options: dict[str, Any], x: Tensor) -> list[RandomFeatureAttention]:
    """The same module in float32 and in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = [
            RandomFeatureAttention(64, 1, name, 64, batch_first=True, dtype=dtype, **options)
            for dtype in (torch.float32, torch.float64)
        ]
    made[0].fit(x, x)
    made[1].load_state_dict({key: t.double() for key, t in made[0].state_dict().items()})
    return made


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("name", "options"), EXPONENTIAL)
def test_denominators_below_what_float32_divides_by(
    name: str, options: dict[str, Any], is_causal: bool
) -> None:
    """Tokens of length 100, whose queries and keys agree in no feature: sums down to 1e-45."""
    x = 13 * randn(1, 70, 64)
    if name in ("complex_exponential", "clustered_hybrid"):
        x = 0.7 * x
    found = []
    for module in module_pair(name, options, x):
        tokens = x.to(module.out_proj.weight).requires_grad_()
        output = module(tokens, tokens, tokens, is_causal=is_causal)[0]
        upstream = UPSTREAM * randn(*output.shape, seed=1)
        leaves = [tokens, *module.parameters()]
        found.append((output, gradients(output, upstream, leaves)))
    (output, computed), (reference, expected) = found
    assert relative_error(output, reference) < 1e-3
    assert all(relative_error(*pair) < 1e-2 for pair in zip(computed, expected, strict=True))


@pytest.mark.parametrize("name", ["clustered_hybrid", "elu", "oprf", "poisson_plus", "trig"])
def test_every_map_steps_and_prefills_with_finite_gradients(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = RandomFeatureAttention(16, 2, name, 16, batch_first=True)
    x = (40 * randn(2, 12, 16)).requires_grad_()
    prompt = x[:, :8]
    output, state = module.prefill(prompt, prompt, prompt, module.initial_state(2))
    outputs = [output]
    for i in range(8, 12):
        output, state = module.step(x[:, i], x[:, i], x[:, i], state)
        outputs.append(output.unsqueeze(1))
    output = torch.cat(outputs, 1)
    expected = module(x, x, x, is_causal=True)[0]
    torch.testing.assert_close(output, expected, rtol=1e-3, atol=1e-3)
    upstream = UPSTREAM * randn(*output.shape, seed=1)
    (computed,), (reference,) = (gradients(o, upstream, [x]) for o in (output, expected))
    assert computed.isfinite().all()
    assert relative_error(computed, reference.double()) < 1e-2


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("name", "options"), [EXPONENTIAL[0], EXPONENTIAL[-1]])
def test_second_and_forward_derivatives(
    name: str, options: dict[str, Any], is_causal: bool
) -> None:
    fm = attention.feature_map(name, 3, 2, dtype=torch.float64, **options)
    x, y, v = (randn(3, 3, seed=s, dtype=torch.float64).requires_grad_() for s in range(3))
    fm.fit(x, y)

    def attend(*tokens: Tensor) -> Tensor:
        return fm.attend(*tokens, causal=is_causal)

    assert torch.autograd.gradcheck(attend, (x, y, v))
    assert torch.autograd.gradgradcheck(attend, (x, y, v))
    x, y, v = (t.detach() for t in (x, y, v))
    hessian = torch.func.hessian(lambda t: attend(t, y, v).square().sum())(x)
    twice = torch.func.jacrev(torch.func.jacrev(lambda t: attend(t, y, v).square().sum()))(x)
    torch.testing.assert_close(hessian, twice)


@pytest.mark.parametrize(("is_causal", "masked"), [(False, True), (True, False)])
def test_exact_attention_has_all_derivatives(is_causal: bool, masked: bool) -> None:
    exact = attention.ExactSoftmax(3)
    mask = torch.tensor([[[True, False, True, True]]]).expand(2, 1, 4) if masked else None
    tokens = [randn(2, 1, 4, 3, seed=s, dtype=torch.float64).requires_grad_() for s in range(3)]

    def attend(*tokens: Tensor) -> Tensor:
        return exact.attend(*tokens, causal=is_causal, key_mask=mask)

    assert torch.autograd.gradcheck(attend, tokens, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(attend, tokens)
    (expected,) = torch.autograd.grad(attend(*tokens).sum(), tokens[:1])
    scores = tokens[0] @ tokens[1].mT
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    if mask is not None:
        hidden = hidden | ~mask.unsqueeze(-2)
    if is_causal:
        hidden = hidden | torch.ones_like(hidden).triu(1)
    plain = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ tokens[2]
    (gradient,) = torch.autograd.grad(plain.sum(), tokens[:1])
    torch.testing.assert_close(expected, gradient)
