"""Vision Transformers of timm and torchvision with linear attention; weights are random."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attention import integrations
from tests.attention.cases import rejects, tokens

SMALL = {"pretrained": False, "img_size": 32, "num_classes": 5}
TIMM: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {**SMALL, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4},
    "vit_small_patch16_dinov3": {**SMALL, "depth": 2},
    "eva02_tiny_patch14_224": {**SMALL, "img_size": 28, "depth": 2},
}


def model(name: str) -> nn.Module:
    """With random weights and biases, so that each part counts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name == "torchvision":
            vision = pytest.importorskip("torchvision")
            made = vision.models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=5)
        else:
            made = pytest.importorskip("timm").create_model(name, **TIMM[name])
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return made.eval()


def images(name: str) -> torch.Tensor:
    side = 28 if "224" in name and "14" in name else 32
    return tokens(2, 3, side, side)


@pytest.mark.parametrize("name", [*TIMM, "torchvision"])
def test_replace_and_restore(name: str) -> None:
    softmax, image = model(name), images(name)
    with torch.no_grad():
        expected = softmax(image)
        exact = integrations.replace(copy.deepcopy(softmax), "softmax")
        assert_close(exact(image), expected, rtol=1e-4, atol=1e-5)
        linear = integrations.replace(copy.deepcopy(softmax), "positive", num_features=64)
        assert len(integrations.feature_maps(linear)) == 2
        assert list(linear.state_dict()) == list(softmax.state_dict())
        assert (linear(image) - expected).abs().max() > 1e-4
        many = integrations.replace(copy.deepcopy(softmax), "positive", num_features=4096)
        assert_close(many(image), expected, rtol=0.1, atol=0.1)
        integrations.fit(linear, image)
        changed = linear(image)
        softmax.load_state_dict(linear.state_dict())
        linear.load_state_dict(softmax.state_dict())
        assert torch.equal(copy.deepcopy(linear)(image), changed)
    linear.train()(image).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in linear.parameters())
    for made in (copy.deepcopy(linear), linear):
        assert_close(integrations.restore(made).eval()(image), expected, rtol=1e-4, atol=1e-5)
        assert integrations.feature_maps(made) == {}


def test_it_compiles_to_one_graph() -> None:
    name = "vit_tiny_patch16_224"
    made, image = integrations.replace(model(name), "positive", num_features=8), images(name)
    torch.compiler.reset()
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert_close(compiled(image), made(image))


def test_refusals() -> None:
    timm = pytest.importorskip("timm")
    beit = timm.create_model("beit_base_patch16_224", **SMALL, depth=1)
    rejects("must add no bias .*relative_position_bias_table", integrations.replace, beit)
    resnet = timm.create_model("resnet18")
    rejects("must have attention of .*, got ResNet", integrations.replace, resnet)
    made = integrations.replace(model("vit_tiny_patch16_224"), "positive", num_features=8)
    block, x = made.blocks[0].attn, tokens(2, 5, 32)
    rejects("attn_mask must be None or", block, x, attn_mask=tokens(5, 5))
    assert torch.equal(
        block(x, is_causal=True), block(x, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril())
    )
    block.fused_attn = False
    rejects("Attention must call scaled_dot_product_attention .* did not", block, x)
