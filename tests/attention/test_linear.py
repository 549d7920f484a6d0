"""Linear attention against the quadratic form on the same features, and in blocks of a batch."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
import attention.decoding
import attention.linear
from attention import ExactSoftmax, attention_matrix, feature_map, linear_attention, streaming, sums
from attention.causal import CHUNK
from attention.matrix import kernel_estimates
from attention.onednn import matmul
from tests.attention.cases import doubles, features, rejects, tokens


def quadratic(phi_q: Tensor, phi_k: Tensor, v: Tensor, causal: bool) -> Tensor:
    weights = phi_q @ phi_k.mT
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_equals_the_quadratic_form(causal, dtype, tolerance):
    length = 2 * CHUNK + 17
    phi_q, phi_k = (features(2, 3, length, 6, seed=s, dtype=dtype) for s in (0, 1))
    v = features(2, 3, length, 5, seed=2, dtype=dtype) - 0.5
    computed = linear_attention(phi_q, phi_k, v, causal=causal)
    assert_close(computed, quadratic(phi_q, phi_k, v, causal), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_masks_and_scales_of_keys(causal):
    phi_q, phi_k, v = (features(2, 9, 4, seed=s) for s in range(3))
    mask = torch.arange(9).expand(2, 9) < 6
    expected = linear_attention(phi_q[:, :6], phi_k[:, :6], v[:, :6], causal=causal)
    phi_k[:, 6:], v[:, 6:] = torch.nan, 1e9
    computed = linear_attention(phi_q, phi_k, v, causal=causal, key_mask=mask)
    assert_close(computed[:, :6], expected)
    # Scales that vary from key to key, with masked ones among them larger than any other.
    length = 2 * CHUNK + 5
    phi_q, phi_k, v = (features(2, length, 4, seed=s) for s in range(3))
    log_scale = 6 * features(2, length, 1, seed=3) - 3
    mask = features(length, seed=4) > 0.3
    expected = linear_attention(phi_q, phi_k * log_scale.exp(), v, causal=causal, key_mask=mask)
    log_scale[:, ~mask] = 900.0
    options = {"causal": causal, "key_mask": mask}
    computed = linear_attention(phi_q, phi_k, v, key_log_scale=log_scale, **options)
    assert_close(computed, expected, rtol=1e-11, atol=1e-12)
    shifted = linear_attention(phi_q, phi_k, v, key_log_scale=log_scale + 1000, **options)
    assert_close(shifted, expected, rtol=1e-9, atol=1e-9)


def test_causal_reference_and_no_leak():
    one = torch.ones(3, 1)
    v = torch.tensor([[1.0], [0.0], [0.0]])
    computed = linear_attention(one, one, v, causal=True)
    assert_close(computed, torch.tensor([[1.0], [1 / 2], [1 / 3]]))
    phi_q, phi_k, v = (features(CHUNK + 9, 4, seed=s) for s in range(3))
    before = linear_attention(phi_q, phi_k, v, causal=True)
    phi_k[-1] *= 3
    after = linear_attention(phi_q, phi_k, v, causal=True)
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])
    assert_close(before[0], v[0])
    phi_q, phi_k, v = features(2, 3, 5, 4), features(7, 4, seed=1), features(7, 2, seed=2)
    assert_close(linear_attention(phi_q, phi_k, v), quadratic(phi_q, phi_k, v, False))


@pytest.mark.parametrize("place", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 8])
def test_a_huge_later_key_changes_no_earlier_bit(place):
    """Keys of scale e^200, far outside float32, arrive at `place`; earlier rows keep each bit."""
    length = 2 * CHUNK + 9
    phi_q, phi_k, v = (features(length, 4, seed=s, dtype=torch.float32) for s in range(3))
    log_scale = features(length, 1, seed=3, dtype=torch.float32)
    before = linear_attention(phi_q, phi_k, v, causal=True, key_log_scale=log_scale)
    for change in (math.log(3), 200.0):
        changed = log_scale.clone()
        changed[place] += change
        after = linear_attention(phi_q, phi_k, v, causal=True, key_log_scale=changed)
        assert torch.equal(before[:place], after[:place])
        assert not torch.equal(before[place], after[place])
        assert after.isfinite().all()
    assert_close(after[place:], v[place].expand_as(after[place:]))


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_and_signed_policy(causal):
    phi_q, phi_k, v = (features(5, 3, seed=s).requires_grad_() for s in range(3))
    log_scale = (4 * features(5, 1, seed=3)).requires_grad_()
    mask = torch.tensor([True, True, False, True, True])
    options = {"causal": causal, "key_mask": mask}
    assert torch.autograd.gradcheck(
        lambda q, k, v, scale: linear_attention(q, k, v, key_log_scale=scale, **options),
        (phi_q, phi_k, v, log_scale),
    )
    # A denominator that is rounding noise is raised to it; the output stays among the values.
    phi_q = torch.ones(2, 2, dtype=torch.float64)
    phi_k = torch.tensor([[1.0, -1.0], [-3.0, 3.0 + 1e-17]], dtype=torch.float64)
    v = torch.tensor([[5.0, 1.0], [2.0, -7.0]], dtype=torch.float64)
    computed = linear_attention(phi_q, phi_k, v, causal=causal, signed=True)
    assert computed.isfinite().all()
    assert computed.abs().max() <= 7
    phi_k = torch.tensor([[1.0, 0.0], [0.0, -0.9]], dtype=torch.float64)
    computed = linear_attention(phi_q, phi_k, v, signed=True)
    # Denominator 0.1, numerators 5 - 1.8 and 1 + 6.3: both ratios are past the largest value.
    assert_close(computed, torch.full_like(v, 7.0))
    plain = linear_attention(phi_q, phi_k, v)
    assert_close(plain[0], torch.tensor([32.0, 73.0], dtype=torch.float64))
    if causal:
        first = linear_attention(phi_q, phi_k, v, causal=True, signed=True)
        assert_close(first[0], v[0])
        assert_close(first[1], computed[1])


@pytest.mark.parametrize("causal", [False, True])
def test_exact_softmax_attends(causal):
    x, y, v = (features(2, 5, 4, seed=s) - 0.5 for s in range(3))
    mask = torch.tensor([False, True, True, False, True])
    logits = (x @ y.mT).masked_fill(~mask, -torch.inf)
    if causal:
        logits = logits.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    expected = logits.softmax(-1).nan_to_num() @ v
    y[:, 0], v[:, 3] = torch.nan, torch.inf
    computed = ExactSoftmax(4).attend(x, y, v, key_mask=mask.expand(2, 5), causal=causal)
    assert_close(computed, expected)
    y[:, 0], v[:, 3] = 1.0, 1.0
    unmasked = ExactSoftmax(4).attend(x, y, v, causal=causal)
    weights = (x @ y.mT).exp()
    weights = weights.tril() if causal else weights
    assert_close(unmasked, weights / weights.sum(-1, keepdim=True) @ v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["positive", "trig", "angular_hybrid"])
def test_matrix_times_values_is_attention(name, causal):
    fm = feature_map(name, 4, 64, dtype=torch.float64)
    x, y, v = (features(2, 7, 4, seed=s) for s in range(3))
    mask = torch.arange(7) != 2
    matrix = attention_matrix(fm, x, y, causal=causal, key_mask=mask)
    assert_close(matrix.sum(-1), torch.ones_like(matrix[..., 0]))
    assert torch.equal(matrix[..., 2], torch.zeros_like(matrix[..., 2]))
    expected = fm.attend(x, y, v, causal=causal, key_mask=mask)
    assert_close(matrix @ v, expected, rtol=1e-10, atol=1e-12)


def test_diagnosis_counts():
    # The trig estimate is cos(omega.(x - y)), here with omega = 1, so signs are known.
    fm = feature_map("trig", 1, 1, projection=torch.ones(1, 1, dtype=torch.float64))
    x = torch.tensor([[0.0], [3.0], [0.1], [1.5]], dtype=torch.float64)
    y = torch.zeros(2, 1, dtype=torch.float64)
    y[1] = 0.2
    found = attention.diagnose(fm, x, y)
    # Row by row: cos 0, cos .2; cos 3, cos 2.8; cos .1, cos .1; cos 1.5, cos 1.3: two negative.
    assert found == attention.Diagnosis(clamped_rows=1 / 4, negative_estimates=2 / 8, queries=4)
    assert attention.diagnose(fm, x, y, max_queries=2).queries == 2
    hidden = attention.diagnose(fm, x, y, key_mask=torch.tensor([True, False]))
    assert hidden.negative_estimates == 1 / 4
    assert attention.diagnose(feature_map("positive", 1, 1).double(), x, y)[:2] == (0, 0)
    causal = attention.diagnose(fm, x[:2], y, causal=True)
    assert causal.negative_estimates == pytest.approx(2 / 3)
    assert causal.clamped_rows == 1 / 2
    rejects("max_queries must be at least 1, got 0", attention.diagnose, fm, x, y, max_queries=0)
    # oprf at |x| = |y| = 30 in float32: all features of a row underflow together.
    x, y = (
        30 * torch.nn.functional.normalize(features(64, 64, seed=s, dtype=torch.float32) - 0.5)
        for s in range(2)
    )
    fm = feature_map("oprf", 64, 64).fit(x, y)
    zeros = (fm.attend(x, y, torch.ones(64, 1)) == 0).double().mean()
    assert zeros > 0.5
    assert zeros <= attention.diagnose(fm, x, y).clamped_rows <= zeros + 0.1
    assert attention.diagnose(fm.double(), x.double(), y.double()).clamped_rows == 0
    unseen = torch.arange(64) >= 9
    short = feature_map("positive", 64, 64)
    assert attention.diagnose(short, x / 30, y / 30, causal=True, key_mask=unseen)[:2] == (0, 0)


@pytest.mark.parametrize("causal", [False, True])
def test_empty_sequences(causal):
    for name in ("positive", "angular_hybrid"):
        fm = feature_map(name, 4, 3)
        x, y, v = torch.zeros(2, 0, 4), torch.zeros(2, 0, 4), torch.zeros(2, 0, 3)
        assert fm.attend(x, y, v, causal=causal).shape == (2, 0, 3)
        mask = torch.ones(2, 0, dtype=torch.bool)
        assert fm.attend(x, y, v, causal=causal, key_mask=mask).shape == (2, 0, 3)
        assert attention_matrix(fm, x, y, causal=causal).shape == (2, 0, 0)
        assert fm.attend(x, torch.zeros(5, 4), torch.zeros(5, 3)).shape == (2, 0, 3)
        with pytest.raises(ValueError, match="y must have at least one token for the 5 of x"):
            fm.attend(torch.zeros(2, 5, 4), y, v)
        rejects(r"x must have at least one query, got shape \(2, 0", attention.diagnose, fm, x, y)
    inputs = [t.requires_grad_() for t in (x, torch.ones(2, 0, 4), torch.ones(2, 0, 3))]
    output = linear_attention(*inputs, causal=causal)
    assert output.shape == (2, 0, 3)
    assert all(g is not None for g in torch.autograd.grad(output.sum(), inputs))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_second_gradients_at_a_zero_token(kernel, causal):
    fm = feature_map("trig", 4, 3, kernel=kernel, dtype=torch.float64)
    x, y, v = (features(5, 4, seed=s) for s in range(3))
    x[1], y[2] = 0, 0
    x, y = x.requires_grad_(), y.requires_grad_()
    output = fm.attend(x, y, v, causal=causal)
    first = torch.autograd.grad(output.square().sum(), (x, y), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, y))
    assert all(g.isfinite().all() for g in (*first, *second))


def test_the_floor():
    # cos 2 < 0 from one key: the denominator becomes 0.1 exp(-|x||y|), the output is clipped.
    x = torch.tensor([[1.0]], dtype=torch.float64)
    y = torch.tensor([[-1.0]], dtype=torch.float64)
    for kernel, exponent in (("softmax", 1.0), ("gaussian", 2.0)):
        fm = feature_map("trig", 1, 1, kernel=kernel, projection=torch.ones_like(x))
        floor = 0.1 * math.exp(-exponent)
        for keys, count in ((y, 1), (torch.cat((y, y / 2)), 2)):
            log_scales = fm.scaled_queries(x).log_scale, fm.scaled_keys(keys).log_scale.amax()
            found = kernel_estimates(fm, x, keys, None, False, None)
            unit = sum(log_scales).exp()
            assert_close(found.floored * unit, torch.full_like(x, count * floor))
            assert found.denominator < 0
        v = torch.tensor([[2.0]], dtype=torch.float64)
        assert_close(fm.attend(x, y, v), -v)
        assert torch.equal(attention_matrix(fm, x, y), -torch.ones_like(x))
    # Negative denominators, raised to a floor in range of what numbers can check.
    phi_q, phi_k, v = (features(5, 3, seed=s).requires_grad_() for s in range(3))
    floor = torch.full((5, 1), 2.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, k, v, floor: linear_attention(q, -k, v, causal=True, log_floor=floor),
        (phi_q, phi_k, v, floor),
    )
    output = linear_attention(phi_q, -phi_k, v, causal=True, log_floor=floor)
    assert_close(output, -(phi_q @ phi_k.mT).tril() @ v / math.exp(2))


def test_errors():
    phi, v = torch.ones(3, 2), torch.ones(3, 1)
    seen = torch.ones(3, dtype=torch.bool)
    for arguments, options, message in (
        ((phi, phi[:, :1], v), {}, "same last dimension F, got 2 and 1"),
        ((phi, phi, v[:2]), {}, "v must have as many tokens as phi_k, 3, got 2"),
        ((phi[:2], phi, v), {"causal": True}, "as many queries as keys, got 2 and 3"),
        ((phi, phi, v), {"key_mask": v[:, 0]}, "must be a bool tensor .* got torch.float32"),
        ((phi, phi, v.double()), {}, "v must have the dtype of phi_q, torch.float32, got"),
        ((phi, phi.to("meta"), v), {}, "phi_k must be on the device of phi_q, cpu, got meta"),
        ((phi, phi, v), {"key_mask": seen.to("meta")}, "key_mask must be on the device of .* meta"),
        ((phi, phi, v[:, 0]), {}, r"v must have at least 2 dimensions, .* got shape \(3,\)"),
        ((phi.expand(2, 3, 2), phi.expand(3, 3, 2), v), {}, r"got \(2,\), \(3,\), \(\)"),
    ):
        rejects(message, linear_attention, *arguments, **options)
    heads, mask = phi.expand(2, 2, 3, 2), seen.expand(2, 3)
    linear_attention(heads, heads, v, key_mask=mask.unsqueeze(1))
    linear_attention(heads, heads, v, key_mask=mask[0])
    for wrong in (mask, seen.expand(3, 1, 3)):
        message = r"with heads \(B, 1, S\), not \(B, S\)\), got shape"
        rejects(message, linear_attention, heads, heads, v, key_mask=wrong)
    fm = feature_map("positive", 2, 3)
    rejects(r"x must have at least 2 dimensions, .* got shape \(2,\)", fm.attend, phi[0], phi, v)
    rejects("v must have as many tokens as y, 3, got 2", fm.attend, phi, phi, v[:2])
    rejects(r"y must have the dtype of x, torch.float32, got", fm.attend, phi, phi.double(), v)


BATCH, HEADS, LENGTH, DIM = 3, 2, 70, 4
MASKS = {
    "none": None,
    "of each sequence": (BATCH, 1, LENGTH),
    "of the same for all": (1, 1, LENGTH),
    "of keys": (LENGTH,),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["positive", "oprf", "trig", "elu"])
def test_parts_of_a_batch_are_attended_alike(name, mask, monkeypatch):
    """Outputs and gradients, in parts of the given block size."""
    fm = feature_map(name, DIM, 8, heads=HEADS, dtype=torch.float64)
    x, y, v = doubles(3, BATCH, HEADS, LENGTH, DIM, seed=1).requires_grad_()
    hidden = None if mask == "none" else features(*MASKS[mask], seed=2) > 0.3
    attend, counted, results = streaming.bidirectional_blocks, [], []
    monkeypatch.setattr(
        streaming, "bidirectional_blocks", lambda *given: counted.append(1) or attend(*given)
    )
    for block, parts in ((2**40, 1), (1, BATCH)):
        counted.clear()
        monkeypatch.setattr(streaming, "CPU_BLOCK", block)
        output = fm.attend(x, y, v, key_mask=hidden)
        assert len(counted) == parts
        results.append((output, *torch.autograd.grad(output.square().sum(), (x, y, v))))
    assert_close(*results)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["positive", "trig", "angular_hybrid"])
def test_traces_hold_for_other_tokens(name, causal, monkeypatch):
    """Where keys are largest decides what sums are rescaled by, and differs from input to input."""
    monkeypatch.setattr(streaming, "CPU_BLOCK", 2**9)
    fm = feature_map(name, DIM, 8)
    x = tokens(130, DIM)
    growing = x * torch.linspace(0.1, 3, 130).unsqueeze(-1)
    v = tokens(130, 40, seed=1)

    def run(y: torch.Tensor) -> torch.Tensor:
        return fm.attend(x, y, v, causal=causal)

    with torch.no_grad():
        traced = torch.jit.trace(run, growing.flip(0))
        for other in (growing, growing.flip(0)):
            assert_close(traced(other), run(other))


def _strided(rows: int, columns: int) -> dict[str, Tensor]:
    """Matrices of float32 in several layouts."""
    draw = features(rows, 2, columns, seed=rows + columns, dtype=torch.float32) - 0.5
    plain = draw[:, 0].contiguous()
    return {"rows": plain, "columns": plain.mT.contiguous().mT, "every other": draw[:, 0]}


@pytest.mark.parametrize("sizes", [(130, 300, 64), (64, 40, 900), (64, 600, 64)])
@pytest.mark.parametrize("left", ["rows", "columns", "every other"])
@pytest.mark.parametrize("right", ["rows", "columns", "every other"])
def test_large_products_of_any_layout(sizes, left, right):
    """Also of several matrices, and where the number of columns is that of rows."""
    m, k, n = sizes
    a, b = _strided(m, k)[left], _strided(k, n)[right]
    with torch.no_grad():
        assert_close(matmul(a, b), (a.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)
        several = matmul(torch.stack((a, 2 * a)).unsqueeze(1), b.expand(2, 3, k, n))
    assert several.shape == (2, 3, m, n)
    assert_close(several[1, 2], 2 * (a @ b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["positive", "trig", "angular_hybrid", "elu"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("block", [1, 2**11])
def test_long_sequences_are_attended_alike(name, masked, block, monkeypatch):
    """Some sequences at a time, without gradients, against all at once; and in two parts."""
    fm = feature_map(name, DIM, 8, dtype=torch.float64)
    x, y, v = doubles(3, BATCH, HEADS, 201, DIM, seed=1)
    mask = features(BATCH, 1, 201, seed=2) > 0.3 if masked else None
    expected = [fm.attend(x, y, v, causal=causal, key_mask=mask) for causal in (False, True)]
    monkeypatch.setattr(streaming, "LONG", 1)
    monkeypatch.setattr(streaming, "CPU_BLOCK", block)
    monkeypatch.setattr(sums, "BLOCKS", 2)
    called = []
    absorb = sums.LongSum.absorb_chunks
    monkeypatch.setattr(
        sums.LongSum, "absorb_chunks", lambda *given: called.append(1) or absorb(*given)
    )
    with torch.no_grad():
        for causal in (False, True):
            output = fm.attend(x, y, v, causal=causal, key_mask=mask)
            assert_close(output, expected[causal], rtol=1e-9, atol=1e-9)
        state = attention.decoding.initial_decoding_state(
            fm, (BATCH, HEADS), DIM, dtype=torch.float64
        )
        parts = []
        for part in (slice(0, 75), slice(75, 201)):
            given = (t[..., part, :] for t in (x, y, v))
            hidden = None if mask is None else mask[..., part]
            output, state = attention.decoding.prefill(fm, *given, state, hidden)
            parts.append(output)
    assert called
    assert_close(torch.cat(parts, -2), expected[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("place", [1, 31, 32, 150])
def test_a_huge_later_key_changes_no_earlier_bit_of_a_long_sequence(place, monkeypatch):
    monkeypatch.setattr(streaming, "LONG", 1)
    fm = feature_map("positive", 2, 8)
    x, y, v = features(3, 1, 170, 2, seed=1, dtype=torch.float32)
    with torch.no_grad():
        before = fm.attend(x, y, v, causal=True)
        y[:, place] = 40.0
        after = fm.attend(x, y, v, causal=True)
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.equal(before[:, place:], after[:, place:])
    assert after.isfinite().all()
