"""Transformations of whole models: quantisers, `torch.vmap`, casts, traces and exports."""

import copy
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.testing import assert_close

import attention
from attention import RandomFeatureAttention, feature_map
from attention.running import running_max
from tests.attention.cases import Calls, rejects, tokens
from tests.pairwise import pairwise

EMBED, HEADS = 8, 2


class Model(nn.Module):
    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.attention = RandomFeatureAttention(EMBED, HEADS, name, 16, batch_first=True, **options)
        self.last = nn.Linear(EMBED, 3)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return self.last(self.attention(x, x, x, **options)[0])


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("positive", {}), ("angular_hybrid", {"kdim": EMBED, "vdim": EMBED}), ("softmax", {})],
)
def test_quantised_models_run(name, sizes):
    """The quantiser replaces `out_proj`, whose weight is then a method."""
    model = Model(name, **sizes).eval()
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    assert not isinstance(quantised.attention.out_proj.weight, Tensor)
    x = tokens(2, 7, EMBED)
    for is_causal in (False, True):
        expected = model(x, is_causal=is_causal)
        assert (quantised(x, is_causal=is_causal) - expected).norm() < 0.03 * expected.norm()
    rejects("query must have the module's dtype", quantised, x.double())
    if name == "softmax":
        return
    ours = quantised.attention.fit(x, x)
    expected = ours(x, x, x, is_causal=True)[0]
    output, state = ours.prefill(x[:, :6], x[:, :6], x[:, :6], ours.initial_state(2))
    last, _ = ours.step(x[:, 6], x[:, 6], x[:, 6], state)
    assert (torch.cat((output, last.unsqueeze(1)), 1) - expected).norm() < 0.03 * expected.norm()


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize(
    ("need_weights", "is_causal", "name"),
    pairwise([False, True], [False, True], ["positive", "trig", "angular_hybrid", "softmax"]),
)
def test_vmap_takes_masks(name, is_causal, need_weights):
    """A mask for each entry, boolean or float, one of which hides all."""
    ours = RandomFeatureAttention(EMBED, HEADS, name, 4, batch_first=True)
    x = tokens(4, 5, EMBED)
    padding = torch.tensor([[False] * 5, [True] * 5, [True, False] * 2 + [False], [False] * 5])

    def run(x: Tensor, mask: Tensor) -> Tensor:
        found = ours(x, x, x, key_padding_mask=mask, is_causal=is_causal, need_weights=need_weights)
        return found[need_weights]

    expected = torch.stack([run(*pair) for pair in zip(x, padding, strict=True)])
    assert_close(torch.func.vmap(run)(x, padding), expected)
    additive = torch.zeros(4, 5).masked_fill(padding, -torch.inf)
    assert_close(torch.func.vmap(run)(x, additive), expected)
    (shared,) = (torch.func.vmap(run, in_dims=(0, None))(x, padding[2]),)
    assert_close(shared[2], expected[2])
    gradient = torch.func.grad(lambda x, mask: run(x, mask).square().sum())
    each = torch.stack([gradient(*pair) for pair in zip(x, padding, strict=True)])
    assert_close(torch.func.vmap(gradient)(x, padding), each)


@pytest.mark.parametrize("name", attention.available())
def test_vmap_over_maps(name):
    fm = feature_map(name, 3, 4)
    x, y, v = (tokens(4, 5, 3, seed=s).abs() for s in range(3))
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(3)) > 0.3
    for causal in (False, True):

        def run(x: Tensor, y: Tensor, v: Tensor, mask: Tensor, causal: bool = causal) -> Tensor:
            return fm.attend(x, y, v, causal=causal, key_mask=mask)

        expected = fm.attend(x, y, v, causal=causal, key_mask=mask)
        assert_close(torch.func.vmap(run)(x, y, v, mask), expected)


def test_vmap_over_an_attn_mask_needs_is_causal():
    ours = RandomFeatureAttention(EMBED, HEADS, "positive", 4, batch_first=True)
    x = tokens(4, 5, EMBED)
    later = torch.ones(4, 5, 5).triu(1).bool()

    def run(x: Tensor, mask: Tensor, is_causal: bool = True) -> Tensor:
        return ours(x, x, x, attn_mask=mask, is_causal=is_causal)[0]

    assert_close(torch.func.vmap(run)(x, later), ours(x, x, x, is_causal=True)[0])
    with pytest.raises(ValueError, match="attn_mask must come with is_causal=True where its"):
        torch.func.vmap(lambda x, mask: run(x, mask, False))(x, later)


CASTS = (nn.Module.half, nn.Module.bfloat16, lambda module: module.to(torch.bfloat16))


@pytest.mark.parametrize(("name", "cast"), list(zip(attention.available(), cycle(CASTS))))
def test_casts_leave_random_vectors_and_fitted_parameters(name, cast):
    x = tokens(20, 4).abs()
    fm = feature_map(name, 4, 8).fit(x, x)
    low = cast(copy.deepcopy(fm))
    buffers = dict(fm.named_buffers())
    for key, buffer in low.named_buffers():
        assert torch.equal(buffer, buffers[key])
        assert buffer.dtype == buffers[key].dtype
    assert set(low.state_dict()) == set(fm.state_dict())
    assert all(t.dtype != torch.float32 for t in copy.deepcopy(low).double().buffers())
    for dtype in (torch.float16, torch.bfloat16):
        built = feature_map(name, 4, 8, dtype=dtype)
        fresh = dict(feature_map(name, 4, 8).named_buffers())
        assert all(torch.equal(t, fresh[key]) for key, t in built.named_buffers())


@pytest.mark.parametrize("name", ["trig", "oprf", "gaussian_hybrid", "clustered_hybrid"])
def test_a_cast_module_is_the_one_built_in_its_dtype(name):
    """Rounded vectors put trig 6.9 % off."""
    x = tokens(2, 9, EMBED)
    single = RandomFeatureAttention(EMBED, HEADS, name, 16, batch_first=True).fit(x, x)
    cast = copy.deepcopy(single).to(torch.bfloat16)
    options = {"batch_first": True, "dtype": torch.bfloat16, "seed": 1}
    built = RandomFeatureAttention(EMBED, HEADS, name, 16, **options)
    built.load_state_dict(cast.state_dict())
    low = x.bfloat16()
    assert torch.equal(cast(low, low, low)[0], built(low, low, low)[0])
    again = copy.deepcopy(cast).float()
    for key, buffer in single.named_buffers():
        assert torch.equal(again.get_buffer(key), buffer)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["angular_hybrid", "gaussian_hybrid", "positive"])
@pytest.mark.parametrize("values", [3, 40])
def test_derivatives_forward_without_gradients(name, values):
    """Where no graph is kept, results are written into memory at hand; tangents need their own."""
    fm = feature_map(name, 3, 4, dtype=torch.float64)
    x, y = (tokens(5, 3, seed=s, dtype=torch.float64) for s in range(2))
    v = tokens(5, values, seed=2, dtype=torch.float64)
    tangent = tokens(5, 3, seed=3, dtype=torch.float64)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return fm.token_scores(x, y), fm.attend(x, y, v)

    expected = torch.autograd.functional.jvp(run, x, tangent)[1]
    with torch.no_grad():
        assert_close(torch.func.jvp(run, (x,), (tangent,))[1], expected)
        with forward_ad.dual_level():
            found = run(forward_ad.make_dual(x, tangent))
            found = tuple(forward_ad.unpack_dual(part).tangent for part in found)
        assert_close(found, expected)
        stacked = torch.stack((x, x + tangent))
        each = torch.func.vmap(run)(stacked)
        assert_close(each, tuple(map(torch.stack, zip(*map(run, stacked), strict=True))))


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_it_is_cummax_in_an_export(length):
    x = torch.randn(2, length, length + 3)
    both = Calls(nn.Identity(), lambda _, x: (running_max(x, -2), running_max(x, -1)))
    program = torch.export.export(both, (x,))
    assert not [node for node in program.graph.nodes if "cummax" in str(node.target)]
    for found, dim in zip(program.module()(x), (-2, -1), strict=True):
        assert torch.equal(found, x.cummax(dim).values)
        assert torch.equal(running_max(x, dim), found)
