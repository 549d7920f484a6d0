"""Causal attention by the operator of flash-linear-attention: as defined, and on a GPU itself."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import attention
from attention import decoding, flash, precision, streaming
from tests.attention.cases import relative_error
from tests.attention.cases import tokens as drawn
from tests.pairwise import pairwise

pytestmark = pytest.mark.usefixtures("no_gradients")
DIM = 16
MAPS: dict[str, dict[str, Any]] = {
    "positive": {"num_features": 32},
    "hyperbolic": {"num_features": 16},
    "oprf": {"num_features": 16},
    "trig": {"num_features": 16},
    "angular_hybrid": {"num_features": 4, "num_lambda_features": 4},
}


@pytest.fixture
def no_gradients() -> Any:
    with torch.no_grad():
        yield


def chunked(
    q: Tensor, k: Tensor, v: Tensor, *, g: Tensor, scale: float, initial_state: Tensor,
    output_final_state: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`chunk_simple_gla` as its kernels compute it: q, k (B, T, H, K), v (B, T, H, V), g (B, T, H),
    state (B, H, K, V), the last two in float32. Gates are summed within chunks of 64 tokens."""
    assert output_final_state
    assert g.dtype == initial_state.dtype == torch.float32
    state, outputs, dtype = initial_state, [], q.dtype
    q, k, v, g = (t.transpose(1, 2).float() for t in (q, k, v, g.unsqueeze(-1)))
    for rows, key, value, gate in zip(*(t.split(64, -2) for t in (q, k, v, g)), strict=True):
        gate = gate.cumsum(-2)
        weights = (rows @ key.mT) * (gate - gate.mT).exp()
        weights = weights.where(torch.ones_like(weights).tril() > 0, 0).to(dtype).float()
        seen = (rows @ state.to(dtype).float()) * gate.exp()
        outputs.append(scale * (seen + weights @ value))
        last = gate[..., -1:, :]
        state = state * last.exp() + key.mT @ (value * (last - gate).exp()).to(dtype).float()
    return torch.cat(outputs, -2).transpose(1, 2).to(dtype), state


def by_operator(fm: Any, x: Tensor, y: Tensor, v: Tensor, mask: Any, dtype: torch.dtype) -> Any:
    given = streaming.prepared(fm, x, y, v, True, mask)
    assert given is not None
    (query,), (key,) = streaming.blocks(fm, given, None)
    return flash.causal(chunked, query, key, fm.signed, None, dtype)


@pytest.mark.parametrize(
    ("name", "norm", "masked"), pairwise([*MAPS], [0.3, 2.0, 30.0], [False, True])
)
def test_it_is_causal_attention(
    name: str, norm: float, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At |x| = 30 the scales of keys differ by hundreds: one scale for all would underflow."""
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    x, y = (norm * DIM**-0.5 * drawn(2, 2, 70, DIM, seed=seed) for seed in (0, 1))
    v = drawn(2, 2, 70, 5, seed=2)
    mask = None
    if masked:
        mask = drawn(2, 1, 70, seed=3) > -0.5
        mask[..., :3] = False
    fm = attention.feature_map(name, DIM, **MAPS[name]).fit(x, y)
    expected = fm.attend(x, y, v, causal=True, key_mask=mask)
    computed, _ = by_operator(fm, x, y, v, mask, torch.float32)
    # Signed sums cancel at |x| = 30, in both orders of the sum.
    tolerance = 1e-2 if fm.signed and norm > 10 else 2e-5
    assert relative_error(computed, expected) < tolerance
    assert expected.abs().max() > 0.1


@pytest.mark.parametrize("name", ["positive", "angular_hybrid"])
def test_attend_and_prefill_call_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, v = (0.3 * drawn(3, 40, DIM, seed=seed).bfloat16() for seed in range(3))
    fm = attention.feature_map(name, DIM, **MAPS[name])
    expected = fm.attend(x, y, v, causal=True)
    calls = []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args[0].dtype)
        return chunked(*args, **options)

    monkeypatch.setattr(flash, "_installed", lambda: counted)
    assert flash.operator(x, y, v) is None  # on the CPU
    monkeypatch.setattr(precision, "LOW_DEVICES", ("cpu",))
    assert flash.operator(x.float(), y, v) is flash.operator(x, y.float(), v) is None
    whole = fm.attend(x, y, v, causal=True)
    state = decoding.initial_decoding_state(fm, (3,), DIM)
    outputs = []
    for part in (slice(0, 25), slice(25, 40)):
        output, state = decoding.prefill(fm, x[:, part], y[:, part], v[:, part], state)
        outputs.append(output)
    assert calls == [torch.bfloat16] * 3
    for computed in (whole, torch.cat(outputs, 1)):
        assert relative_error(computed, expected) < 0.01
    monkeypatch.undo()
    start = decoding.initial_decoding_state(fm, (3,), DIM)
    _, same = decoding.prefill(fm, x, y, v, start)
    for ours, entry in zip(state.sums, same.sums, strict=True):
        assert ours.shape == entry.shape
        if entry.count_nonzero():
            assert relative_error(ours, entry) < 0.01
    token = x[:, :1], y[:, :1], v[:, :1]
    one, _ = decoding.decode(fm, *token, state)
    assert relative_error(one, decoding.decode(fm, *token, same)[0]) < 0.01


def test_a_later_key_changes_no_earlier_output() -> None:
    fm = attention.feature_map("positive", DIM, 32)
    x, y, v = (drawn(1, 1, 30, DIM, seed=seed) for seed in range(3))
    before, _ = by_operator(fm, x, y, v, None, torch.float32)
    y[..., 20, :] *= 40
    after, _ = by_operator(fm, x, y, v, None, torch.float32)
    assert torch.equal(after[..., :20, :], before[..., :20, :])
    assert not torch.equal(after[..., 20:, :], before[..., 20:, :])


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("positive", (256,)), ("angular_hybrid", (8, 8))],
)
def test_bfloat16_adds_little_to_the_error_of_the_estimate(
    name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAVOR+ 256 and hybrid 8 x 8: it adds less than 4 % of the Monte-Carlo error."""
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    options: dict[str, Any] = dict(
        zip(("num_features", "num_lambda_features"), sizes, strict=False)
    )
    fm = attention.feature_map(name, 64, **options)
    x, y = (torch.nn.functional.normalize(drawn(1, 2, 256, 64, seed=s), dim=-1) for s in (0, 1))
    v = drawn(1, 2, 256, 8, seed=2)
    x, y, v = (t.bfloat16().float() for t in (x, y, v))
    exact = scaled_dot_product_attention(x, y, v, is_causal=True, scale=1.0)
    plain = fm.attend(x, y, v, causal=True)
    low, _ = by_operator(fm, x, y, v, None, torch.bfloat16)
    rounding, estimate = relative_error(low, plain), relative_error(plain, exact)
    assert rounding < 0.004
    assert rounding < 0.04 * estimate


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", [*MAPS])
def test_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fla.ops.simple_gla", reason="needs flash-linear-attention")
    fm = attention.feature_map(name, DIM, **MAPS[name]).cuda()
    x, y, v = (0.5 * drawn(2, 3, 300, DIM, seed=seed).cuda() for seed in range(3))
    assert flash.operator(x, y, v) is None
    x, y, v = (t.bfloat16() for t in (x, y, v))
    assert flash.operator(x, y, v) is not None
    computed = fm.attend(x, y, v, causal=True)
    with torch.enable_grad():
        assert flash.operator(x, y, v) is None
        expected = fm.attend(x, y, v, causal=True)
    assert relative_error(computed, expected) < 0.02
    monkeypatch.setenv("FOVEATE_FLA", "0")
    assert flash.operator(x, y, v) is None
