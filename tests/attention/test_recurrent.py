"""One token at a time against the causal form; carried state through torch.export."""

import io
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import attention
from attention.causal import CHUNK
from attention.decoding import decode, initial_decoding_state
from attention.decoding import prefill as prefill_tokens
from attention.recurrent import LinearAttentionState, initial_state, prefill, step
from tests.attention.cases import features, rejects


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Numbers from 0.1 to 1.1, float64."""
    generator = torch.Generator().manual_seed(seed)
    return 0.1 + torch.rand(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("offset", [-300.0, 300.0])
def test_scales_beyond_the_range_cancel(offset: float) -> None:
    """exp(+-300) is no number in float32; only differences of scales count."""
    phi_q, phi_k, v = (features(6, 4, seed=s, dtype=torch.float32) for s in range(3))
    log_scale = features(6, 1, seed=3, dtype=torch.float32)
    state, moved = initial_state((), 4, 4), initial_state((), 4, 4)
    for i in range(6):
        row, scale = (phi_q[i], phi_k[i], v[i]), log_scale[i]
        expected, state = step(state, *row, key_log_scale=scale)
        computed, moved = step(moved, *row, key_log_scale=scale + offset)
        torch.testing.assert_close(computed, expected, rtol=1e-4, atol=0)


def test_step_takes_low_precision() -> None:
    phi_q, phi_k, v = (features(3, 4, seed=s).bfloat16() for s in range(3))
    output, state = step(initial_state((3,), 4, 4), phi_q, phi_k, v)
    assert output.dtype == torch.bfloat16
    assert {t.dtype for t in state} == {torch.float32}
    torch.testing.assert_close(output, v)


PARTS = (slice(0, 1), slice(1, 1), slice(1, CHUNK + 9), slice(CHUNK + 9, 2 * CHUNK + 20))


def case(dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Features, values and log-scales of 2 sequences, of as many tokens as PARTS has."""
    length = PARTS[-1].stop
    phi_q, phi_k, v = (features(2, length, 4, seed=s, dtype=dtype) for s in range(3))
    return phi_q, phi_k, v, 20 * features(2, length, 1, seed=3, dtype=dtype)


def by_steps(tokens: tuple[Tensor, ...], **options: Any) -> tuple[Tensor, LinearAttentionState]:
    """One token at a time; options of each token are (2, L, ...)."""
    phi_q, phi_k, v, log_scale = tokens
    state, outputs = initial_state((2,), 4, 4, dtype=v.dtype), []
    for i in range(v.shape[1]):
        own = {key: t[:, i] if isinstance(t, Tensor) else t for key, t in options.items()}
        row = (phi_q[:, i], phi_k[:, i], v[:, i])
        output, state = step(state, *row, key_log_scale=log_scale[:, i], **own)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def by_parts(tokens: tuple[Tensor, ...], **options: Any) -> tuple[Tensor, LinearAttentionState]:
    state, outputs = initial_state((2,), 4, 4, dtype=tokens[2].dtype), []
    for part in PARTS:
        phi_q, phi_k, v, log_scale = (t[:, part] for t in tokens)
        own = {key: t[:, part] if isinstance(t, Tensor) else t for key, t in options.items()}
        output, state = prefill(state, phi_q, phi_k, v, key_log_scale=log_scale, **own)
        outputs.append(output)
    return torch.cat(outputs, 1), state


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_prefill_equals_the_causal_form(dtype: torch.dtype, tolerance: float, signed: bool) -> None:
    tokens = case(dtype)
    phi_q, phi_k, v, log_scale = tokens
    expected = attention.linear_attention(
        phi_q, phi_k, v, causal=True, key_log_scale=log_scale, signed=signed
    )
    output, state = by_parts(tokens, signed=signed)
    torch.testing.assert_close(output, expected, rtol=tolerance, atol=tolerance)
    stepped, last = by_steps(tokens, signed=signed)
    torch.testing.assert_close(output, stepped, rtol=tolerance, atol=tolerance)
    row = (phi_q[:, 0], phi_k[:, 0], v[:, 0])
    answers = [step(s, *row, signed=signed)[0] for s in (state, last)]
    torch.testing.assert_close(*answers, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("signed", "decay"), [(False, "none"), (True, "number"), (False, "tensor"), (True, "tensor")]
)
def test_masks_and_forgetting_are_the_same_by_parts_and_by_steps(signed: bool, decay: str) -> None:
    """Outputs, gradients and the quadratic form: weights decayed from key to query."""
    tokens = tuple(t.requires_grad_() for t in case())
    length = tokens[2].shape[1]
    mask = features(2, length, seed=5) > 0.3
    mask[1, :3] = False
    factor = 0.2 + 0.8 * features(2, length, 1, seed=6).requires_grad_()
    options: dict[str, Any] = {"key_mask": mask, "signed": signed}
    if decay != "none":
        options["decay"] = 0.9 if decay == "number" else factor
    phi_q, phi_k, v, log_scale = tokens
    logs = torch.as_tensor(options.get("decay", 1.0), dtype=v.dtype).log().expand(2, length, 1)
    total = logs.masked_fill(~mask.unsqueeze(-1), 0).cumsum(1)
    visible = mask.unsqueeze(1) & torch.ones(length, length).tril().bool()
    exponent = (log_scale.mT + total - total.mT).masked_fill(~visible, -torch.inf)
    weights = (phi_q @ phi_k.mT) * (exponent - log_scale.detach().amax()).exp()
    sums = weights.sum(-1, keepdim=True)
    reference = weights / sums.masked_fill(sums == 0, 1) @ v
    found = [reference, *(run(tokens, **options)[0] for run in (by_parts, by_steps))]
    leaves = [*tokens, factor] if decay == "tensor" else list(tokens)
    upstream = features(*reference.shape, seed=7)
    gradients = [torch.autograd.grad((o * upstream).sum(), leaves) for o in found]
    for output, gradient in zip(found[1:], gradients[1:], strict=True):
        torch.testing.assert_close(output, reference, rtol=1e-9, atol=1e-9)
        for computed, expected in zip(gradient, gradients[0], strict=True):
            torch.testing.assert_close(computed, expected, rtol=1e-7, atol=1e-9)


def test_forgetting_in_float32() -> None:
    """A factor of 0.5 a token over 147: what is forgotten underflows, and outputs do not."""
    tokens = case(torch.float32)
    for decay in (0.5, 0.99, 1e-30):
        (output, _), (stepped, _) = (run(tokens, decay=decay) for run in (by_parts, by_steps))
        torch.testing.assert_close(output, stepped, rtol=2e-5, atol=2e-5)


def test_padding_leaves_the_state_alone() -> None:
    """A prompt padded on the right continues like the prompt itself; a prompt of padding has no
    effect."""
    phi_q, phi_k, v, _ = case()
    phi_k[:, 50:], v[:, 50:] = torch.nan, torch.nan
    mask = torch.arange(v.shape[1]) < 50
    state = initial_state((2,), 4, 4, dtype=v.dtype)
    _, padded = prefill(state, phi_q, phi_k, v, key_mask=mask, decay=0.9)
    part = (phi_q[:, :50], phi_k[:, :50], v[:, :50])
    _, expected = prefill(state, *part, decay=0.9)
    nothing, same = step(
        padded, phi_q[:, 50], phi_k[:, 50], v[:, 50], key_mask=torch.zeros(2).bool(), decay=0.9
    )
    for computed in (padded, same):
        for one, other in zip(computed, expected, strict=True):
            torch.testing.assert_close(one, other)
    answer, _ = step(expected, phi_q[:, 50], phi_q[:, 50] * 0, v[:, 0])
    torch.testing.assert_close(nothing, answer)
    output, _ = step(state, phi_q[:, 0], phi_k[:, 0], v[:, 0], key_mask=torch.zeros(2).bool())
    assert not output.any()


@pytest.mark.parametrize("name", attention.available())
def test_prefill_of_tokens_equals_causal_attention(name: str) -> None:
    fm = attention.feature_map(name, 3, 2, dtype=torch.float64)
    x, y, v = (1.5 * features(2, CHUNK + 13, 3, seed=s) for s in range(3))
    fm.fit(x, y)
    mask = features(2, CHUNK + 13, seed=4) > 0.2
    expected = fm.attend(x, y, v, causal=True, key_mask=mask)
    state = initial_decoding_state(fm, (2,), 3, dtype=torch.float64)
    outputs = []
    for part in (slice(0, 5), slice(5, 5), slice(5, CHUNK + 8)):
        tokens = (x[:, part], y[:, part], v[:, part])
        output, state = prefill_tokens(fm, *tokens, state, mask[:, part])
        outputs.append(output)
    for i in range(CHUNK + 8, CHUNK + 13):
        part = slice(i, i + 1)
        tokens = (x[:, part], y[:, part], v[:, part])
        output, state = decode(fm, *tokens, state, mask[:, part])
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), expected, rtol=1e-9, atol=1e-10)


def test_errors() -> None:
    phi_q, phi_k, v, _ = case()
    state = initial_state((2,), 4, 4, dtype=v.dtype)
    wrong = (-1.0, 1.5, float("nan"), "a", torch.tensor([[0.5], [2.0]]).double())
    for decay in wrong:
        with pytest.raises(ValueError, match="decay must be from 0 to 1, got"):
            step(state, phi_q[:, 0], phi_k[:, 0], v[:, 0], decay=decay)
    rejects("decay must be from 0 to 1, got 2", prefill, state, phi_q, phi_k, v, decay=2)
    with pytest.raises(ValueError, match="key_mask must be a bool tensor, got"):
        step(state, phi_q[:, 0], phi_k[:, 0], v[:, 0], key_mask=torch.ones(2))
    rejects("as many queries as keys, got 3 and", prefill, state, phi_q[:, :3], phi_k, v)


def _recursion(phi_q: Tensor, phi_k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """S_i = d_i S_{i-1} + k_i v_i^T and n_i = d_i n_{i-1} + k_i, as in the definition."""
    sums, normaliser, outputs = 0.0, 0.0, []
    for i in range(v.shape[-2]):
        sums = decay[..., i, :, None] * sums + phi_k[..., i, :, None] * v[..., i, None, :]
        normaliser = decay[..., i, :] * normaliser + phi_k[..., i, :]
        weight = (phi_q[..., i, :] * normaliser).sum(-1, keepdim=True)
        outputs.append((phi_q[..., i, None, :] @ sums).squeeze(-2) / weight)
    return torch.stack(outputs, -2)


DECAYS = {
    "1e-10": lambda d: d.index_fill(-2, torch.arange(0, 130, 3), 1e-10),
    "1e-30": lambda d: d.index_fill(-2, torch.arange(0, 130, 3), 1e-30),
    "1e-45": lambda d: d.index_fill(-2, torch.arange(0, 130, 3), 1e-45),
    "5e-324": lambda d: d.index_fill(-2, torch.arange(0, 130, 3), 5e-324),
    "begins of sequences": lambda d: d.index_fill(-2, torch.arange(0, 130, 7), 0.0),
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "drawn": lambda d: (rand(1, 130, 1, seed=8) - 0.1) ** 8,
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*zip(DECAYS, cycle([torch.float32, torch.float64])), ("1e-30", torch.float32)],
)
def test_forgetting_is_exact_from_0_to_1_with_its_gradient(kind: str, dtype: torch.dtype) -> None:
    decay = DECAYS[kind](torch.full((1, 130, 1), 0.99, dtype=torch.float64))
    phi_q, phi_k, v, weights = (rand(1, 130, n, seed=s) for s, n in enumerate((6, 6, 3, 3)))

    def run(form: Callable[..., Tensor], to: torch.dtype) -> tuple[Tensor, Tensor]:
        given = decay.to(to, copy=True).requires_grad_()
        output = form(phi_q.to(to), phi_k.to(to), v.to(to), given)
        (gradient,) = torch.autograd.grad((output * weights.to(to)).sum(), given)
        return output.detach().double(), gradient[:, 1:].double()

    def by(form: Callable[..., Any]) -> Callable[..., Tensor]:
        def whole(q: Tensor, k: Tensor, v: Tensor, d: Tensor) -> Tensor:
            start = initial_state((1,), 6, 3, dtype=v.dtype)
            return form((start, q, k, v), decay=d)[0]

        return whole

    expected, gradient = run(_recursion, torch.float64)
    scale = 1e-3 * gradient.abs().max()
    for form in (lambda t, **o: prefill(*t, **o), lambda t, **o: _steps(*t, **o)):
        output, found = run(by(form), dtype)
        exact = dtype == torch.float64
        torch.testing.assert_close(output, expected, rtol=1e-13 if exact else 1e-6, atol=0.0)
        error = (found - gradient).abs() / gradient.abs().clamp_min(scale)
        assert error.max() < (1e-12 if exact else 1e-3)


def _steps(
    state: LinearAttentionState, q: Tensor, k: Tensor, v: Tensor, decay: Tensor
) -> tuple[Tensor, LinearAttentionState]:
    outputs = []
    for i in range(v.shape[-2]):
        token = (t[..., i, :] for t in (q, k, v))
        output, state = step(state, *token, decay=decay[..., i, :])
        outputs.append(output)
    return torch.stack(outputs, -2), state


def _leaves(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [t for part in state for t in _leaves(part)]


def test_entries_of_states_share_no_memory_and_are_loaded_by_default() -> None:
    module = attention.RandomFeatureAttention(8, 2, "trig", 4, batch_first=True)
    token, tokens = rand(3, 8).float(), rand(3, 5, 8).float()
    memories = [attention.LinearMemory(3, 2, rule=rule) for rule in ("sum", "delta")]
    states: list[Any] = [initial_state((3,), 4, 2), module.initial_state(3)]
    states += [module.step(token, token, token, states[1])[1]]
    states += [module.prefill(tokens, tokens, tokens, states[1])[1]]
    states += [memory.initial_state(3) for memory in memories]
    for state in states:
        leaves = _leaves(state)
        places = [t.untyped_storage().data_ptr() for t in leaves if t.numel()]
        assert len(set(places)) == len(places)
        for leaf in leaves:
            leaf.copy_(leaf.clone())  # no entry is expanded
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        again = torch.load(file)
        assert type(again) is type(state)
        assert all(map(torch.equal, _leaves(again), leaves))


@pytest.mark.records
def test_one_compiled_graph_serves_many_lengths() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    features = attention.feature_map("positive", 4, 8)
    attend = torch.compile(
        lambda x, y, v: features.attend(x, y, v, causal=True), backend=counter, fullgraph=True
    )
    with torch.no_grad():
        for length in (40, 70, 130, 200, 300):
            tokens = [rand(2, length, 4, seed=seed).float() for seed in range(3)]
            expected = features.attend(*tokens, causal=True)
            torch.testing.assert_close(attend(*tokens), expected, rtol=1e-5, atol=1e-6)
    assert counter.frame_count <= 3
