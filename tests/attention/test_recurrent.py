"""One token at a time against the causal form; carried state through torch.export."""

import pytest
import torch
from torch import Tensor, nn

import attention
from attention.decoding import decode, initial_decoding_state
from attention.linear import CHUNK
from attention.recurrent import LinearAttentionState, initial_state, step


def features(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_steps_equal_the_causal_form(dtype: torch.dtype, tolerance: float, scaled: bool) -> None:
    length = CHUNK + 10
    phi_q, phi_k, v = (features(2, length, 4, seed=s, dtype=dtype) for s in range(3))
    log_scale = 90 * features(2, length, 1, seed=3, dtype=dtype) if scaled else None
    expected = attention.linear_attention(phi_q, phi_k, v, causal=True, key_log_scale=log_scale)
    state = initial_state((2,), 4, 4, dtype=dtype)
    for i in range(length):
        scale = None if log_scale is None else log_scale[:, i]
        output, state = step(state, phi_q[:, i], phi_k[:, i], v[:, i], key_log_scale=scale)
        torch.testing.assert_close(output, expected[:, i], rtol=tolerance, atol=tolerance)


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


@pytest.mark.parametrize("name", attention.available())
def test_decoding_equals_causal_attention(name: str) -> None:
    """Floors and clipping included: few features, so that signed maps need them."""
    fm = attention.feature_map(name, 3, 2, dtype=torch.float64)
    x, y, v = (1.5 * features(2, CHUNK + 3, 3, seed=s) for s in range(3))
    fm.fit(x, y)
    expected = fm.attend(x, y, v, causal=True)
    state = initial_decoding_state(fm, (2,), 3, dtype=torch.float64)
    for i in range(x.shape[-2]):
        part = slice(i, i + 1)
        output, state = decode(fm, x[:, part], y[:, part], v[:, part], state)
        torch.testing.assert_close(output, expected[:, part], rtol=1e-9, atol=1e-10)


def test_step_takes_low_precision() -> None:
    phi_q, phi_k, v = (features(3, 4, seed=s).bfloat16() for s in range(3))
    output, state = step(initial_state((3,), 4, 4), phi_q, phi_k, v)
    assert output.dtype == torch.bfloat16
    assert {t.dtype for t in state} == {torch.float32}
    torch.testing.assert_close(output, v)


class Step(nn.Module):
    def forward(
        self, state: LinearAttentionState, phi_q: Tensor, phi_k: Tensor, v: Tensor
    ) -> tuple[Tensor, LinearAttentionState]:
        return step(state, phi_q, phi_k, v)


def test_step_exports_with_carried_state() -> None:
    phi_q, phi_k, v = (features(5, 2, 4, seed=s, dtype=torch.float32) for s in range(3))
    state = initial_state((2,), 4, 4)
    exported = torch.export.export(Step(), (state, phi_q[0], phi_k[0], v[0])).module()
    expected = attention.linear_attention(
        *(t.transpose(0, 1) for t in (phi_q, phi_k, v)), causal=True
    )
    for i in range(5):
        output, state = exported(state, phi_q[i], phi_k[i], v[i])
        torch.testing.assert_close(output, expected[:, i])
