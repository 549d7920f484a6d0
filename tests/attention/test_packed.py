"""Rows of packed sequences, and query heads that share keys and values."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import RandomFeatureAttention
from tests.attention.cases import doubles, rejects, tokens
from tests.pairwise import pairwise

IDS = torch.tensor([[1] * 5 + [2] * 9 + [3, 1] + [0] * 2, [0] + [7] * 16 + [0], [4] * 18])
"""Sequences of several lengths, one in two parts, and padding."""


def parts(ids: Tensor) -> list[tuple[int, Tensor]]:
    """Row and places of each sequence."""
    return [
        (row, (ids[row] == one).nonzero().flatten())
        for row in range(len(ids))
        for one in ids[row].unique().tolist()
        if one
    ]


@pytest.mark.parametrize(
    ("name", "causal"), pairwise([*attention.available(), "softmax"], [False, True])
)
def test_packed_sequences_are_those_alone(name: str, causal: bool) -> None:
    x, y, v = (0.3 * doubles(3, 2, 18, 4, seed=seed).abs() for seed in range(3))
    fm = attention.ExactSoftmax(4)
    if name != "softmax":
        fm = attention.feature_map(name, 4, 6, heads=2, dtype=torch.float64)
    packed = fm.attend(x, y, v, causal=causal, segment_ids=IDS)
    for row, places in parts(IDS):
        alone = fm.attend(*(t[row][:, places] for t in (x, y, v)), causal=causal)
        assert_close(packed[row][:, places], alone)
    assert not packed.transpose(1, 2)[IDS == 0].any()
    assert_close(
        fm.attend(x, y, v, causal=causal, segment_ids=IDS[2]), fm.attend(x, y, v, causal=causal)
    )


def test_packed_sequences_do_not_see_each_other() -> None:
    """Not by a bit, and no gradient."""
    fm = attention.feature_map("trig", 4, 6)
    x = 0.3 * tokens(3, 18, 4)
    changed = torch.where((IDS == 2)[..., None], 9.0, x)
    packed, other = (fm.attend(t, t, t, causal=True, segment_ids=IDS) for t in (x, changed))
    assert torch.equal(packed[IDS != 2], other[IDS != 2])
    assert not torch.equal(packed[IDS == 2], other[IDS == 2])
    leaf = x.requires_grad_()
    fm.attend(leaf, leaf, leaf, segment_ids=IDS)[IDS == 2].sum().backward()
    assert leaf.grad[IDS == 2].any()
    assert not leaf.grad[IDS != 2].any()
    assert not fm.attend(x, x, x, segment_ids=torch.zeros(18, dtype=torch.int32)).any()
    assert fm.attend(x[0], x[0], x[0], segment_ids=IDS[0]).shape == (18, 4)


@pytest.mark.parametrize(
    ("name", "causal", "batch_first"),
    pairwise(["positive", "trig", "oprf", "softmax"], [False, True], [False, True]),
)
def test_grouped_heads_are_repeated_ones(name: str, causal: bool, batch_first: bool) -> None:
    """In `forward`, with padding or packed, its weights, `prefill` and `step`."""
    grouped = RandomFeatureAttention(
        16, 4, name, 6, num_kv_heads=2, kdim=6, vdim=5, batch_first=batch_first
    )
    full = RandomFeatureAttention(16, 4, name, 6, kdim=6, vdim=5, batch_first=batch_first)
    with torch.no_grad():
        for parameter in grouped.parameters():
            parameter.copy_(0.3 * tokens(*parameter.shape))
        own = dict(grouped.named_parameters())
        assert own["k_proj_weight"].shape == (8, 6)
        for which in "kv":
            weight = own[f"{which}_proj_weight"].unflatten(0, (2, 4)).repeat_interleave(2, 0)
            full.get_parameter(f"{which}_proj_weight").copy_(weight.flatten(0, 1))
        query, keys, values = own["in_proj_bias"].split((16, 8, 8))
        keys, values = (b.unflatten(0, (2, 4)).repeat_interleave(2, 0) for b in (keys, values))
        full.in_proj_bias.copy_(torch.cat((query, keys.flatten(), values.flatten())))
        full.q_proj_weight.copy_(grouped.q_proj_weight)
        full.out_proj.load_state_dict(grouped.out_proj.state_dict())
        for buffer, shared in zip(full.buffers(), grouped.buffers(), strict=True):
            buffer.copy_(shared.repeat_interleave(2, 0) if shared.ndim > 1 else shared)
    inputs = [tokens(3, 18, size, seed=size) for size in (16, 6, 5)]
    whole = inputs if batch_first else [t.transpose(0, 1) for t in inputs]
    hidden = torch.arange(18) < torch.tensor([[0], [7], [18]])
    for options in ({}, {"key_padding_mask": hidden, "need_weights": True}, {"segment_ids": IDS}):
        computed, expected = (m(*whole, is_causal=causal, **options) for m in (grouped, full))
        assert_close(computed, expected, rtol=1e-4, atol=1e-5)
    if name == "softmax":
        return
    expected = full(*whole, key_padding_mask=hidden, is_causal=True)[0]
    expected = expected if batch_first else expected.transpose(0, 1)
    prompt = [t[:, :15] if batch_first else t[:15] for t in whole]
    _, state = grouped.prefill(*prompt, grouped.initial_state(3), hidden[:, :15])
    for i in range(15, 18):
        output, state = grouped.step(*(t[:, i] for t in inputs), state, hidden[:, i])
        assert_close(output, expected[:, i], rtol=1e-4, atol=1e-5)
    grouped.fit(*whole[:2])


def test_errors() -> None:
    x = tokens(3, 18, 4)
    fm, exact = attention.feature_map("positive", 4, 6), attention.ExactSoftmax(4)
    for attend in (fm.attend, exact.attend):
        for ids, message in (
            (IDS[:2], r"segment_ids must have shape \(3, 18\), got \(2, 18\)"),
            (IDS.float(), "segment_ids must be an integer tensor, got torch.float32"),
        ):
            rejects(message, attend, x, x, x, segment_ids=ids)
        rejects(
            "key_mask must be None with segment_ids",
            attend,
            *(x, x, x),
            segment_ids=IDS,
            key_mask=IDS > 0,
        )
        rejects(
            r"segment_ids need y with the batch and tokens of x, \(3, 18, 4\), got shape \(3, 9",
            attend,
            *(x, x[:, :9], x[:, :9]),
            segment_ids=IDS,
        )
    rejects("num_kv_heads must divide num_heads=4", RandomFeatureAttention, 16, 4, num_kv_heads=3)
    rejects("num_kv_heads must be at least 1", RandomFeatureAttention, 16, 4, num_kv_heads=0)
    module = RandomFeatureAttention(16, 4, num_kv_heads=2, batch_first=True)
    rejects("num_kv_heads must be num_heads, 4, for nn.MultiheadAttention", module.to_multihead)
    x = tokens(3, 18, 16)
    message = "need_weights must be False with segment_ids, got True"
    rejects(message, module, x, x, x, segment_ids=IDS, need_weights=True)


@pytest.mark.parametrize(
    ("name", "causal"), pairwise([*attention.available(), "softmax"], [False, True])
)
def test_a_dimension_of_groups_is_that_of_repeated_keys(name: str, causal: bool) -> None:
    x = 0.3 * doubles(2, 3, 2, 70, 4).abs()
    y, v = (0.3 * doubles(2, 1, 2, 70, 4, seed=seed).abs() for seed in (1, 2))
    mask = torch.arange(70) >= torch.tensor([0, 5]).reshape(2, 1, 1, 1)
    fm = attention.ExactSoftmax(4)
    if name != "softmax":
        fm = attention.feature_map(name, 4, 6, heads=2, dtype=torch.float64)
    for key_mask in (None, mask):
        grouped = fm.attend(x, y, v, causal=causal, key_mask=key_mask)
        many = (t.expand(-1, 3, -1, -1, -1) for t in (y, v))
        assert_close(grouped, fm.attend(x, *many, causal=causal, key_mask=key_mask))
