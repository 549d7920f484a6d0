"""Memory by linear attention: against direct sums, token by token, and through files and ONNX."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attention
from attention.memory import DeltaState
from attention.memory.delta import TOKENS
from tests.attention.cases import rejects

DOUBLE = {"dtype": torch.float64}
B, T, L, Q, DV = 2, 7, 5, 3, 2


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def memory(name: str = "trig", dim: int = 2, m: int = 6, **options: Any) -> attention.LinearMemory:
    return attention.LinearMemory(dim, DV, name, m, **DOUBLE, **options)


def case(*leading: int, dim: int = 2, length: int = L) -> dict[str, Tensor]:
    """Tokens and queries of frames with those leading dimensions; a third of the gates are 0."""
    gates = rand(*leading, length, seed=4)
    return {
        "queries": 0.5 * rand(*leading, Q, dim, seed=1),
        "keys": 0.5 * rand(*leading, length, dim, seed=2),
        "values": rand(*leading, length, DV, seed=3) - 0.5,
        "gates": (gates * 1.5 - 0.5).clamp(min=0),
    }


def step_by_step(
    made: attention.LinearMemory, state: Any, tokens: dict[str, Tensor], **given: Any
) -> tuple[Tensor, Any]:
    """`write` and `read`, a frame at a time; frames are the second dimension."""
    outputs = []
    for t in range(tokens["keys"].shape[1]):
        own = {k: v[:, t] if isinstance(v, Tensor) else v for k, v in {**tokens, **given}.items()}
        queries = own.pop("queries")
        state = made.write(state, **own)
        outputs.append(made.read(state, queries))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("name", sorted({*attention.available()} - {"geometric", "poisson"}))
def test_the_sum_is_kernel_regression_over_all_that_was_written(name: str) -> None:
    made = memory(name, decay=0.8, floor=1e-12)
    tokens = case(B, T)
    outputs, _ = step_by_step(made, made.initial_state(B), tokens)
    fm = made.feature_map
    for t in range(T):
        keys, values = (tokens[name][:, : t + 1].flatten(1, 2) for name in ("keys", "values"))
        ages = torch.arange(t, -1, -1.0, dtype=torch.float64)
        kept = (0.8 ** ages.unsqueeze(-1) * tokens["gates"][:, : t + 1]).flatten(1)
        weights = fm.queries(tokens["queries"][:, t]) @ fm.keys(keys).mT * kept.unsqueeze(1)
        total = weights.sum(-1, keepdim=True)
        bound = values.abs().amax()
        expected = (weights @ values / total).clamp(-bound, bound)
        sound = total.squeeze(-1) > 1e-3
        torch.testing.assert_close(outputs[:, t][sound], expected[sound], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["harmonic", "oprf"])
@pytest.mark.parametrize("length", [3, TOKENS + 7])
def test_the_delta_rule_is_a_rank_one_update_a_token(name: str, length: int) -> None:
    made = memory(name, rule="delta", rate=0.9)
    tokens = case(B, 3, length=length)
    outputs, state = step_by_step(made, made.initial_state(B), tokens, decay=0.7)
    fm = made.feature_map
    expected = torch.zeros_like(state.values)
    for t in range(3):
        expected = 0.7 * expected
        for i in range(length):
            phi = fm.keys(tokens["keys"][:, t, i])
            k = (phi / phi.norm(dim=-1, keepdim=True)).unsqueeze(-1)
            rate = 0.9 * tokens["gates"][:, t, i, None, None]
            wrong = tokens["values"][:, t, i].unsqueeze(-2) - k.mT @ expected
            expected = expected + rate * k @ wrong
        q = fm.queries(tokens["queries"][:, t])
        read = q / q.norm(dim=-1, keepdim=True) @ expected
        torch.testing.assert_close(outputs[:, t], read, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state.values, expected, rtol=1e-9, atol=1e-9)


CHUNKED: list[tuple[str, str, int, int]] = [
    ("sum", "harmonic", 7, L),
    ("sum", "positive", 7, L),
    ("sum", "angular_hybrid", 7, L),
    ("sum", "trig", 67, 1),  # more frames than a chunk
    ("delta", "harmonic", 7, L),
    ("delta", "trig", 67, 1),
    ("delta", "positive", 23, L),  # more tokens than one system
    ("delta", "elu", 2, TOKENS + 7),
    ("delta", "quadratic", 7, L),
]


@pytest.mark.parametrize(
    ("rule", "name", "frames", "length", "decay"),
    [
        *((*case, "steps") for case in CHUNKED),
        *((*case, decay) for case in (CHUNKED[0], CHUNKED[4]) for decay in ("one", "number")),
    ],
)
def test_unroll_equals_step_by_step_gradients_too(
    rule: str, name: str, frames: int, length: int, decay: str
) -> None:
    """From a state that is not empty, and with the returned state."""
    made = memory(name, rule=rule, decay=0.9 if decay == "number" else 1.0)
    leaves = {k: t.requires_grad_() for k, t in case(B, frames, length=length).items()}
    if decay == "steps":
        leaves["decay"] = (0.2 + 0.8 * rand(B, frames, seed=5)).requires_grad_()
    mask = rand(B, frames, length, seed=6) > 0.2
    mask[:, 1] = False
    before = case(B, 2)  # so much that no answer is a single value, the kink of clipping
    start = step_by_step(made, made.initial_state(B), before)[1]
    start = type(start)(*(t.requires_grad_(t.is_floating_point()) for t in start))
    results = []
    for run in (made.unroll, lambda state, **given: step_by_step(made, state, given)):
        output, state = run(start, **leaves, key_mask=mask)
        again = made.read(state, before["queries"][:, 0])
        upstream = (rand(*output.shape, seed=7), rand(*again.shape, seed=8))
        loss = (output * upstream[0]).sum() + (again * upstream[1]).sum()
        inputs = [*leaves.values(), start.values]
        results.append((output, again, *torch.autograd.grad(loss, inputs)))
    for computed, expected in zip(*results, strict=True):
        assert expected.isfinite().all()
        torch.testing.assert_close(computed, expected, rtol=1e-6, atol=1e-6)
    assert all(gradient.any() for gradient in results[0][2:])


@pytest.mark.parametrize("rule", ["sum", "delta"])
@pytest.mark.parametrize("dim", [1, 2])
def test_queries_seen_from_origins_are_those_at_their_sums(rule: str, dim: int) -> None:
    """Answers, the last state and gradients."""
    made = memory("harmonic", dim, m=7, rule=rule, decay=0.9, kappa=2.0, period=1.5)
    tokens = case(B, T, dim=dim)
    queries, origins = rand(4, dim, seed=11), rand(B, T, 3, dim, seed=12)
    tokens["queries"] = (origins.unsqueeze(-2) + queries).flatten(-3, -2)
    results = []
    for more in ({}, {"queries": queries, "origins": origins}):
        leaves = [tokens[name].clone().requires_grad_() for name in ("keys", "values", "gates")]
        given = {**tokens, **dict(zip(("keys", "values", "gates"), leaves, strict=True)), **more}
        output, state = made.unroll(made.initial_state(B), **given)
        upstream = rand(*output.shape, seed=13)
        results.append((output, *state, *torch.autograd.grad(output, leaves, upstream)))
    for computed, expected in zip(*results, strict=True):
        torch.testing.assert_close(computed, expected)


@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_heads_forget_and_draw_on_their_own(rule: str) -> None:
    """Frames come before heads; each head is the memory of its own vectors and factor."""
    factors = torch.tensor([0.5, 0.9, 1.0])
    made = memory("positive", rule=rule, heads=3, decay=factors)
    tokens = case(B, T, 3)
    output, state = made.unroll(made.initial_state(B, 3), **tokens)
    assert output.shape == (B, T, 3, Q, DV)
    stepped, last = step_by_step(made, made.initial_state(B, 3), tokens)
    torch.testing.assert_close(output, stepped)
    for computed, expected in zip(state, last, strict=True):
        torch.testing.assert_close(computed, expected)
    for head in range(3):
        alone = memory(
            "positive", projection=made.feature_map.omega[head], rule=rule, decay=factors[head]
        )
        own = {k: t[:, :, head] for k, t in tokens.items()}
        answers, _ = alone.unroll(alone.initial_state(B), **own)
        torch.testing.assert_close(answers, output[:, :, head])


@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_hidden_tokens_and_empty_frames_only_forget(rule: str) -> None:
    made = memory("trig", rule=rule, decay=0.5)
    tokens = {k: t[:, 0] for k, t in case(B, 1).items()}
    queries = tokens.pop("queries")
    first = made.write(made.initial_state(B), **tokens)
    none = made.write(first, **{k: t[:, :0] for k, t in tokens.items()})
    hidden = made.write(
        first, tokens["keys"] * torch.nan, tokens["values"] / 0, key_mask=torch.zeros(B, L).bool()
    )
    shut = made.write(first, tokens["keys"], tokens["values"], gates=torch.zeros(B, L).double())
    faded = (0.5 if rule == "delta" else 1.0) * made.read(first, queries)
    for state in (none, hidden, shut):
        torch.testing.assert_close(made.read(state, queries), faded)
    assert not made.read(made.initial_state(B), queries).any()


def test_reset_empties_the_sequences_that_begin() -> None:
    made = memory("trig")
    tokens = case(B, T)
    _, state = made.unroll(made.initial_state(B), **tokens)
    again = made.reset(state, torch.tensor([False, True]))
    for new, old, fresh in zip(again, state, made.initial_state(B), strict=True):
        assert torch.equal(new[0], old[0])
        assert torch.equal(new[1], fresh[1])


@pytest.mark.parametrize("name", ["positive", "trig"])
def test_large_keys_do_not_overflow(name: str) -> None:
    """|y| = 30: the features are exp(+-450)."""
    made = attention.LinearMemory(2, DV, name, 6, decay=0.9)
    tokens = {k: t.float() for k, t in case(B, T).items()}
    away = torch.tensor([30.0, 0.0])
    tokens["keys"], tokens["queries"] = tokens["keys"] + away, tokens["queries"] + away
    exact = copy.deepcopy(made).double()
    output, state = made.unroll(made.initial_state(B), **tokens)
    expected, _ = exact.unroll(exact.initial_state(B), **{k: t.double() for k, t in tokens.items()})
    assert all(t.isfinite().all() for t in state)
    torch.testing.assert_close(output.double(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rule", ["sum", "delta"])
@torch.no_grad()
def test_ten_thousand_steps_in_float32(rule: str) -> None:
    """The state keeps its size and precision: earlier tokens fade, and nothing drifts."""
    options: dict[str, Any] = {"kappa": 112.0, "period": 2.0, "rule": rule, "decay": 0.95}
    made = attention.LinearMemory(1, 1, "harmonic", 26, **options)
    exact = copy.deepcopy(made).double()
    ways = 0.025 * torch.arange(10_000.0).reshape(-1, 1, 1)
    places = (ways + torch.linspace(0.2, 0.8, 8).unsqueeze(-1)) % 2.0
    values, asked = (20 * places).sin(), places[:, ::3] - 0.5
    answers, state = made.unroll(
        made.initial_state(), asked[:9_900], places[:9_900], values[:9_900]
    )
    sizes = [t.shape for t in made.initial_state()]
    for t in range(9_900, 10_000):
        state = made.write(state, places[t], values[t])
        assert [entry.shape for entry in state] == sizes
    answers = torch.cat((answers, made.read(state, asked[-1]).unsqueeze(0)))
    doubles = (t.double() for t in (asked, places, values))
    expected, _ = exact.unroll(exact.initial_state(), *doubles)
    expected = torch.cat((expected[:9_900], expected[-1:]))
    torch.testing.assert_close(answers.double(), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_the_state_goes_through_a_file(rule: str) -> None:
    made = memory("trig", rule=rule)
    tokens = case(B, T)
    _, state = made.unroll(made.initial_state(B), **tokens)
    file = io.BytesIO()
    torch.save(state._asdict(), file)
    file.seek(0)
    loaded = type(state)(**torch.load(file, weights_only=True))
    queries = tokens["queries"][:, 0]
    assert torch.equal(made.read(loaded, queries), made.read(state, queries))


class Step(nn.Module):
    """A write and a read, as a robot's decision makes them."""

    def __init__(self, memory: attention.LinearMemory) -> None:
        super().__init__()
        self.memory = memory

    def forward(
        self, state: Any, queries: Tensor, keys: Tensor, values: Tensor, gates: Tensor
    ) -> tuple[Tensor, Any]:
        after = self.memory.write(state, keys, values, gates=gates)
        return self.memory.read(after, queries), after


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_a_step_runs_in_onnx(rule: str) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    made = attention.LinearMemory(
        1, DV, "harmonic", 8, kappa=10.0, period=2.0, rule=rule, decay=0.9
    )
    tokens = {k: t.float() for k, t in case(B, T, dim=1).items()}
    names = ("queries", "keys", "values", "gates")
    state: Any = made.initial_state(B)
    first = tuple(tokens[name][:, 0] for name in names)
    file = io.BytesIO()
    program = torch.onnx.export(Step(made).eval(), (state, *first), dynamo=True)
    assert program is not None
    program.save(file)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    expected, _ = made.unroll(state, **tokens)
    carried = [t.numpy() for t in state]
    inputs = [i.name for i in session.get_inputs()]
    for t in range(T):
        given = [*carried, *(tokens[name][:, t].numpy() for name in names)]
        output, *carried = session.run(None, dict(zip(inputs, given, strict=True)))
        torch.testing.assert_close(torch.tensor(output), expected[:, t], rtol=1e-4, atol=1e-5)


def read_far_away(order: Tensor, **options: Any) -> Tensor:
    """Of 600 places written in an order, what is read beside them, where little was written."""
    made = attention.LinearMemory(1, 1, "harmonic", 26, kappa=110.0, period=2.0, **options)
    places, holes = 0.4 + 0.3 * rand(600, 1, seed=6).float(), rand(600, 1, seed=7).round().float()
    state = made.write(made.initial_state(), places[order], holes[order])
    return made.read(state, torch.linspace(0.8, 1.9, 40).unsqueeze(-1))


def test_sums_in_float64_do_not_depend_on_their_order() -> None:
    forward, back = torch.arange(600), torch.arange(599, -1, -1)
    found = read_far_away(forward, state_dtype=torch.float64)
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found, read_far_away(back, state_dtype=torch.float64), rtol=0, atol=1e-7
    )
    assert (read_far_away(forward) - read_far_away(back)).abs().max() > 1e-5


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"state_dtype": torch.bfloat16}, "state_dtype must be float32 or float64, got torch.bfloat16"),
    ({"rule": "hebb"}, "rule must be one of sum, delta, got 'hebb'"),
    ({"decay": -0.5}, "decay must be from 0 to 1, got -0.5"),
    ({"decay": torch.tensor([0.5, 1.5]), "heads": 2}, "decay must be from 0 .*, got a torch.fl"),
    ({"decay": torch.ones(3)}, r"decay must be a number or one .* heads=None, got shape \(3,\)"),
    ({"rate": 0.5}, "rate needs rule='delta', got rule='sum'"),
    ({"floor": 2.0}, "floor must be above 0 and at most 1, got 2.0"),
    ({"rule": "delta", "floor": 0.1}, "floor needs rule='sum', got rule='delta'"),
    (
        {"rule": "delta", "name": "angular_hybrid"},
        "rule='delta' needs a map whose .* AngularHybrid",
    ),
    ({"name": "harmonics"}, "feature map must be one of .*harmonic"),
    ({"kappa": 1.0}, "trig takes the options .*, got 'kappa'"),
    ({"dim": 0}, "dim must be at least 1, got 0"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_settings_are_refused_in_a_sentence(options: dict[str, Any], message: str) -> None:
    rejects(message, memory, **options)


def test_tokens_are_refused_in_a_sentence() -> None:
    made = memory("trig")
    state = made.initial_state(B)
    good = {k: t[:, 0] for k, t in case(B, 1).items()}
    queries = good.pop("queries")
    bad: list[tuple[dict[str, Any], str]] = [
        ({"keys": good["keys"][0]}, r"keys must have shape \(2, L, 2\), got \(5, 2\)"),
        ({"values": good["values"][..., :1]}, r"values must have shape \(2, L, 2\), got .* 1\)"),
        ({"values": good["values"][:, :3]}, "values must have as many tokens as keys, 5, got 3"),
        ({"values": good["values"].float()}, "values must have the dtype of keys, torch.float64"),
        ({"gates": good["gates"] + 1}, "gates must be numbers from 0 to 1, got other values"),
        ({"gates": good["gates"][:, :1]}, r"gates must have shape \(2, 5\), .* got \(2, 1\)"),
        ({"key_mask": torch.ones(B, L)}, "key_mask must be a bool tensor, got torch.float32"),
        ({"decay": 2}, "decay must be from 0 to 1, got 2"),
        ({"decay": torch.ones(3)}, r"decay must .* broadcast with \(2,\), got shape \(3,\)"),
    ]
    for change, message in bad:
        rejects(message, made.write, state, **{**good, **change})
    rejects(r"queries must have shape \(2, L, 2\), got .* 1\)", made.read, state, queries[..., :1])
    with pytest.raises(ValueError, match=r"where must be a bool tensor of the first .* \(3,\)"):
        made.reset(state, torch.ones(3).bool())
    with pytest.raises(ValueError, match=r"state must be a LinearAttentionState .* got Delta"):
        made.read(DeltaState(state.values), queries)
    with pytest.raises(ValueError, match="keys must have 4 dimensions, those of the state, frames"):
        made.unroll(state, queries, **good)
    with pytest.raises(ValueError, match="keys must have at least one frame, and one token a"):
        made.unroll(state, **{k: t[:, :, :0] for k, t in case(B, T).items()})
    with pytest.raises(ValueError, match=r"origins must be None except for a harmonic .* Trig"):
        made.unroll(made.initial_state(B), origins=torch.zeros(B, T, 1, 2), **case(B, T))
    with pytest.raises(ValueError, match=r"last leading dimension must be heads=3, got \(2,\)"):
        memory("trig", heads=3).initial_state(2)


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        *zip(("sum", "delta", "sum", "delta"), (1e-10, 1e-45, 5e-324, 0.0), strict=True),
        *(("sum", "drawn"), ("delta", "drawn")),
    ],
)
def test_unrolled_forgetting_is_exact_from_0_to_1_with_its_gradient(
    rule: str, kind: float | str
) -> None:
    decay = torch.full((1, 70), 0.99, dtype=torch.float64)
    if isinstance(kind, str):
        decay = rand(1, 70) ** 8
    else:
        decay[:, ::3] = kind
    keys, queries = (2 * rand(1, 70, 2, 3, seed=s) - 1 for s in (1, 2))
    values, weights = (2 * rand(1, 70, 2, DV, seed=s) - 1 for s in (3, 4))

    def run(dtype: torch.dtype, at_once: bool) -> tuple[Tensor, Tensor]:
        made = attention.LinearMemory(3, DV, "positive", 16, rule=rule, dtype=dtype)
        made.feature_map.omega.copy_(rand(16, 3, seed=5))
        d = decay.to(dtype, copy=True).requires_grad_()
        q, k, v, w = (t.to(dtype) for t in (queries, keys, values, weights))
        state = made.initial_state(1)
        if at_once:
            outputs, _ = made.unroll(state, q, k, v, decay=d)
        else:
            rows = []
            for t in range(70):
                state = made.write(state, k[:, t], v[:, t], decay=d[:, t])
                rows.append(made.read(state, q[:, t]))
            outputs = torch.stack(rows, 1)
        (gradient,) = torch.autograd.grad((outputs * w).sum(), d)
        return outputs.detach().double(), gradient[:, 1:].double()

    expected, gradient = run(torch.float64, at_once=False)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 4e-4)):
        for at_once in (False, True):
            outputs, found = run(dtype, at_once)
            assert (
                outputs - expected
            ).abs().max() < 0.02 * tolerance * expected.abs().max() + 1e-12
            error = (found - gradient).abs() / gradient.abs().clamp_min(1e-3 * gradient.abs().max())
            assert error.max() < tolerance


def test_the_state_has_the_dtype_and_device_of_a_given_map() -> None:
    given = attention.feature_map("positive", 2, 4, dtype=torch.float64)
    made = attention.LinearMemory(2, 3, given)
    assert {t.dtype for t in made.initial_state(1)} == {torch.float64}
    assert made.float().initial_state(1).values.dtype == torch.float32
    elsewhere = attention.LinearMemory(2, 3, attention.feature_map("trig", 2, 4, device="meta"))
    assert elsewhere.initial_state(1).values.is_meta
    fixed = attention.LinearMemory(2, 3, state_dtype=torch.float64, decay=0.3)
    for cast in (fixed.half(), fixed.bfloat16(), fixed.float()):
        assert cast.initial_state(1).values.dtype == torch.float64
        assert cast.decay.item() == 0.3
