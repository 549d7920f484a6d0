"""Models whose attention is nn.MultiheadAttention, with linear attention."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import attention
from attention import RandomFeatureAttention, integrations
from tests.attention.cases import rejects, tokens


def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        return nn.Sequential(nn.Linear(4, 8), encoder).eval()


def outputs(made: nn.Module) -> Tensor:
    with torch.no_grad():
        return made(tokens(2, 5, 4))


@pytest.mark.parametrize("name", [*attention.available(general=True), "softmax"])
def test_replace_and_restore(name: str) -> None:
    """With the same keys of the state dict, whatever is in it."""
    softmax = model()
    linear = integrations.replace(copy.deepcopy(softmax), name, num_features=8, seed=3)
    maps = integrations.feature_maps(linear)
    assert list(maps) == ["1.layers.0.self_attn", "1.layers.1.self_attn"]
    assert list(linear.state_dict()) == list(softmax.state_dict())
    changed = outputs(linear)
    assert torch.allclose(changed, outputs(softmax), atol=1e-5) == (name == "softmax")
    linear.load_state_dict(softmax.state_dict())
    softmax.load_state_dict(linear.state_dict())
    assert torch.equal(outputs(linear), changed)
    alone = RandomFeatureAttention.from_multihead(
        softmax[1].layers[1].self_attn, name, num_features=8, seed=4
    )
    for mine, other in zip(
        maps["1.layers.1.self_attn"].buffers(), alone.feature_map.buffers(), strict=True
    ):
        assert torch.equal(mine, other)
    for made in (copy.deepcopy(linear), linear):
        assert integrations.restore(made) is made
        assert type(made[1].layers[0].self_attn) is nn.MultiheadAttention
        assert_close(outputs(made), outputs(softmax))


def test_fit_is_that_of_the_layers_in_order() -> None:
    made = integrations.replace(model(), "oprf", num_features=8)
    other = copy.deepcopy(made)
    assert integrations.fit(made, tokens(2, 5, 4)) is made
    hidden = other[0](tokens(2, 5, 4))
    for layer in other[1].layers:
        layer.self_attn.fit(hidden, hidden)
        hidden = layer(hidden)
    assert torch.equal(outputs(made), outputs(other))
    stored = {name: fm.state_dict() for name, fm in integrations.feature_maps(made).items()}
    again = integrations.replace(model(), "oprf", num_features=8)
    for name, fm in integrations.feature_maps(again).items():
        assert fm.load_state_dict(stored[name])
    assert torch.equal(outputs(again), outputs(made))


def test_errors() -> None:
    rejects("must have attention of .*, got Linear", integrations.replace, nn.Linear(2, 2))
    made = model()
    rejects("must be one of .*, got 'sofmax'", integrations.replace, made, "sofmax")
    assert integrations.feature_maps(made) == {}
    given = attention.feature_map("positive", 4, 8)
    rejects("must be a name or a class, since every layer", integrations.replace, made, given)
    rejects("must be softmax: call restore", integrations.replace, integrations.replace(made))
    rejects("must be a module that holds", integrations.replace, nn.MultiheadAttention(8, 2))
    made = nn.ModuleDict({"rel_pos": nn.Linear(2, 2), "attn": nn.MultiheadAttention(8, 2)})
    rejects("must add no bias to its scores, .* got rel_pos", integrations.replace, made)
