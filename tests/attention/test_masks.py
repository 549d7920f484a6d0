"""Masks as nn.MultiheadAttention has them: what is refused, and rows that see no key."""

from functools import partial
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import attention
from attention import ExactSoftmax, RandomFeatureAttention, linear_attention
from tests.attention.cases import rejects, tokens

EMBED, HEADS, LENGTH = 8, 2, 6
MAPS = ("positive", "relu", "angular_hybrid", "trig", "softmax")


def modules(name: str, **options: Any) -> tuple[nn.MultiheadAttention, RandomFeatureAttention]:
    """PyTorch's and ours, with the same parameters; biases are not zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exact = nn.MultiheadAttention(EMBED, HEADS, batch_first=True, **options)
        for parameter in exact.parameters():
            nn.init.normal_(parameter, std=0.25)
    return exact, RandomFeatureAttention.from_multihead(exact, name, 8)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_a_sequence_of_padding_gives_the_bias_alone(name, is_causal):
    """As nn.MultiheadAttention with need_weights=False; masked tokens have no gradient."""
    exact, ours = modules(name)
    x = tokens(3, LENGTH, EMBED).requires_grad_()
    padding = torch.zeros(3, LENGTH, dtype=torch.bool)
    padding[0], padding[1, :2] = True, True

    def run(x: Tensor) -> Tensor:
        return ours(x, x, x, key_padding_mask=padding, is_causal=is_causal)[0]

    output = run(x)
    mask = torch.ones(LENGTH, LENGTH).triu(1).bool() if is_causal else None
    theirs = exact(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=False)[0]
    bias = exact.out_proj.bias.expand(LENGTH, EMBED)
    for result in (output, theirs):
        assert_close(result[0], bias)
        if is_causal:
            assert_close(result[1, :2], bias[:2])
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    assert gradient.isfinite().all()
    assert not gradient[0].any()
    assert gradient[2].any()
    assert_close(run(x.detach()[2:].expand(3, -1, -1))[2], output[2])


@pytest.mark.parametrize(
    ("name", "is_causal"),
    list(zip([*attention.available(), *MAPS], cycle([False, True]))),
)
def test_rows_that_see_no_key_are_zeros_everywhere(name, is_causal):
    x, y, v = (tokens(2, 5, 3, seed=s).abs().requires_grad_() for s in range(3))
    mask = torch.tensor([[False] * 5, [False, True, True, True, True]])
    fm = ExactSoftmax(3) if name == "softmax" else attention.feature_map(name, 3, 4)
    results = [fm.attend(x, y, v, causal=is_causal, key_mask=mask)]
    if name != "softmax":
        results.append(attention.attention_matrix(fm, x, y, causal=is_causal, key_mask=mask))
        phi_x, phi_y = fm.queries(x), fm.keys(y)
        signed = {"causal": is_causal, "key_mask": mask, "signed": fm.signed}
        results.append(linear_attention(phi_x, phi_y, v, **signed))
    for result in results:
        blind = result[0] if not is_causal else torch.cat((result[0], result[1, :1]))
        assert not blind.any()
        for gradient in torch.autograd.grad(result.square().sum(), (x, y, v), allow_unused=True):
            assert gradient is None or gradient.isfinite().all()
            assert gradient is None or not gradient[0].any()


@pytest.mark.parametrize("batched", [False, True])
def test_attn_mask_shapes_are_those_of_pytorch(batched):
    """Each shape is refused by both modules or by neither, and by ours where compiled too."""
    exact, ours = modules("positive")
    x = tokens(2, LENGTH, EMBED) if batched else tokens(LENGTH, EMBED)
    length = (LENGTH, LENGTH)
    first = ((), (1,), (2,), (3,), (4,), (1, 1), (2, 2), (2, 1), (1, 4))
    others = ((LENGTH,), (1, LENGTH), (LENGTH, 1), (LENGTH, LENGTH + 1))
    for shape in (*((*n, *length) for n in first), *others):
        mask = torch.zeros(shape, dtype=torch.bool)
        taken = [accepts(module, x, mask) for module in (exact, ours)]
        assert taken[0] == taken[1] == (shape in [length, (4 if batched else 2, *length)]), shape


def accepts(module: nn.Module, x: Tensor, mask: Tensor) -> bool:
    try:
        module(x, x, x, attn_mask=mask, need_weights=False)
    except (RuntimeError, AssertionError, ValueError):
        return False
    return True


def test_masks_one_a_head():
    """A compiled graph checks their shape."""
    _, ours = modules("positive")
    x = tokens(2, LENGTH, EMBED)
    later = torch.ones(LENGTH, LENGTH).triu(1).bool()
    each = later.expand(2 * HEADS, LENGTH, LENGTH)
    assert torch.equal(ours(x, x, x, attn_mask=each)[0], ours(x, x, x, is_causal=True)[0])
    assert torch.equal(ours(x, x, x, attn_mask=torch.zeros(4, 6, 6))[0], ours(x, x, x)[0])
    mixed = each.clone()
    mixed[1] = False
    rejects("None or the causal mask, got another mask of shape", ours, x, x, x, attn_mask=mixed)
    torch.compiler.reset()
    compiled = torch.compile(partial(ours, is_causal=True), backend="eager")
    assert_close(compiled(x, x, x, attn_mask=later)[0], ours(x, x, x, is_causal=True)[0])
    for shape in ((3, LENGTH, LENGTH), (2, 2, LENGTH, LENGTH)):
        message, mask = r"causal mask of shape \(6, 6\), got shape", later.expand(shape)
        rejects(message, compiled, x, x, x, attn_mask=mask)
