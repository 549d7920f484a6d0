"""The encoder: patches hold their pixels, attention its kernel, images their places."""

import numpy as np
import pytest
import torch

from attention import RandomFeatureAttention
from policies.vision_performer.encoder import PatchEmbedding, sinusoidal_positions
from tests.policies.vision_cases import HEIGHT, WIDTH, batch, generator, make, observation
from training.analysis.step_cost import count


def embedding(scale: int = 1, patch: tuple[int, int] = (6, 4), dim: int = 8) -> PatchEmbedding:
    return PatchEmbedding(HEIGHT, WIDTH, scale, patch, dim, generator())


@pytest.mark.parametrize(("scale", "patch"), [(1, (6, 4)), (2, (3, 9)), (4, (6, 3)), (3, (1, 1))])
def test_patches_are_what_a_plain_loop_cuts(scale, patch):
    patches = embedding(scale, patch)
    rgb = batch(2)[0]
    tokens = patches(rgb)
    centred = (rgb.double().numpy() - 128) / 128
    averaged = centred.reshape(2, HEIGHT // scale, scale, WIDTH // scale, scale, 3).mean((2, 4))
    weight, bias = (p.detach().double().numpy() for p in (patches.weight, patches.bias))
    (rows, columns), place = patch, 0
    for top in range(0, HEIGHT // scale, rows):
        for left in range(0, WIDTH // scale, columns):
            cut = averaged[:, top : top + rows, left : left + columns].reshape(2, -1)
            expected = cut @ weight.T + bias + patches.positions[place].detach().double().numpy()
            np.testing.assert_allclose(tokens[:, place].detach(), expected, atol=2e-6)
            place += 1
    assert place == patches.count == tokens.shape[1]


def test_patches_are_exact_in_bfloat16_products():
    """Bytes are cast before any rounding: autocast errs by the weights' and products' alone."""
    patches = embedding()
    rgb = batch(4)[0]
    with torch.autocast("cpu", torch.bfloat16):
        assert patches.patches(rgb)[0].dtype == torch.bfloat16
        low = patches(rgb)
    error = (low.float() - patches(rgb)).abs().max()
    assert 0 < error < 0.02


def test_places_are_distinguished():
    codes = sinusoidal_positions((20, 20), 64)
    assert codes.shape == (400, 64)
    distance = torch.cdist(codes, codes) + 99 * torch.eye(400)
    assert distance.min() > 0.3


def test_exact_and_random_attention_have_the_same_parameters():
    exact = make(feature_map="softmax", qk_length=0.5)
    random = make(feature_map="hyperbolic", num_features=2048, qk_length=0.5)
    own = [name for name in random.state_dict() if ".feature_map." in name]
    assert set(random.state_dict()) - set(exact.state_dict()) == set(own)
    for name, parameter in exact.named_parameters():
        assert torch.equal(parameter, random.get_parameter(name)), name
    rgb, pose, _ = batch(2)
    expected, estimated = exact.encode(rgb, pose), random.encode(rgb, pose)
    assert 0 < (expected - estimated).abs().max() < 0.01 * expected.std()


def test_queries_and_keys_have_the_length_asked_for():
    policy = make(qk_length=2.0)
    attention = policy.encoder.blocks[0].attention
    assert isinstance(attention, RandomFeatureAttention)
    rgb, pose, _ = batch(2)
    tokens = policy.encoder.tokens(rgb, pose)
    query, key, _ = attention.project(tokens, tokens, tokens)
    for projected in (query, key):
        torch.testing.assert_close(projected.norm(dim=-1), torch.full(projected.shape[:-1], 2.0))


class Backwards(torch.nn.Module):
    """The patches' tokens in the opposite order; the pose's stays the last."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.cat((tokens[:, :-1].flip(1), tokens[:, -1:]), 1)


@pytest.mark.parametrize(("readout", "alike"), [(0, True), (1, False), (8, False)])
def test_a_readout_tells_places_apart_where_a_mean_cannot(readout, alike):
    policy = make(patch_readout=readout)
    rgb, pose, actions = batch(2)
    policy.loss(rgb, pose, actions, generator()).backward()
    assert all(p.grad is not None for p in policy.parameters())
    context = policy.encode(rgb, pose)
    policy.encoder.norm = torch.nn.Sequential(policy.encoder.norm, Backwards())
    assert torch.allclose(policy.encode(rgb, pose), context, atol=1e-5) == alike


def test_without_attention_patches_only_meet_in_the_pool():
    policy = make(attend=False)
    assert not [m for m in policy.modules() if isinstance(m, RandomFeatureAttention)]
    rgb, pose, actions = batch(2)
    policy.loss(rgb, pose, actions, generator()).backward()
    assert all(p.grad is not None for p in policy.parameters())
    assert policy.diagnose(rgb, pose)["attention"] == []
    tokens = policy.encoder.tokens(rgb, pose)
    changed = tokens.clone()
    changed[:, 0] += 1.0
    for block in policy.encoder.blocks:
        tokens, changed = block(tokens), block(changed)
    assert torch.equal(tokens[:, 1:], changed[:, 1:])
    assert not torch.equal(tokens[:, 0], changed[:, 0])
    view = observation()
    flops = count(lambda: policy.act(view)).by_component
    assert not {"projection", "exponentials", "score"} & {k for k, v in flops.items() if v}
    looked = policy.attention_map(view)
    assert np.allclose(looked, looked.mean())
