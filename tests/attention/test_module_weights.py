"""Weights to and from `nn.MultiheadAttention`, averages of modules, scores without queries."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.optim.swa_utils import AveragedModel

import attention
from attention import RandomFeatureAttention
from tests.attention.cases import rejects

CHANGES: dict[str, Callable[[nn.Module, str], object]] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "weight norm by hooks": weight_norm,
    "spectral norm by hooks": spectral_norm,
    "pruned": lambda module, name: prune.l1_unstructured(module, name, 0.5),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("sizes", [{}, {"kdim": 4, "vdim": 6}], ids=["self", "cross"])
@pytest.mark.parametrize("change", CHANGES)
def test_effective_weights_are_converted(change: str, sizes: dict[str, int]) -> None:
    multihead = nn.MultiheadAttention(8, 2, batch_first=True, **sizes).eval()
    name = "k_proj_weight" if sizes else "in_proj_weight"
    CHANGES[change](multihead, name)
    CHANGES[change](multihead.out_proj, "weight")
    multihead.out_proj.bias.requires_grad_(False)
    query = torch.randn(3, 5, 8)
    key, value = torch.randn(3, 5, multihead.kdim), torch.randn(3, 5, multihead.vdim)
    expected, _ = multihead(query, key, value, need_weights=False)
    exact = RandomFeatureAttention.from_multihead(multihead, "softmax")
    torch.testing.assert_close(exact(query, key, value)[0], expected)
    assert not exact.out_proj.bias.requires_grad
    assert exact.get_parameter(name).requires_grad
    converted = RandomFeatureAttention.from_multihead(multihead, "positive", 8)
    back = converted.to_multihead()
    torch.testing.assert_close(back(query, key, value, need_weights=False)[0], expected)
    exact.load_state_dict(converted.state_dict())  # strict
    torch.testing.assert_close(exact(query, key, value)[0], expected)


def test_a_module_that_scales_queries_has_no_multihead_form() -> None:
    module = RandomFeatureAttention(8, 2, qk_length=1.0)
    rejects("qk_length must be None for nn.MultiheadAttention, got 1.0", module.to_multihead)


@pytest.mark.parametrize("name", attention.available())
def test_buffers_are_averaged_and_no_query_scores_zero(name: str) -> None:
    options = {"num_pairs": 1} if name == "clustered_hybrid" else {}
    features = attention.feature_map(name, 4, 8, **options)
    averaged = AveragedModel(features, use_buffers=True)
    for _ in range(3):
        averaged.update_parameters(features)
    x, y = torch.rand(0, 4), torch.rand(5, 4)
    torch.testing.assert_close(averaged.module.keys(y), features.keys(y))
    for leading in ((), (2,)):
        scores = features.token_scores(x.expand(*leading, 0, 4), y.expand(*leading, 5, 4))
        assert torch.equal(scores, torch.zeros(*leading, 5))
        assert (
            features.token_scores(y.expand(*leading, 5, 4), x.expand(*leading, 0, 4)).numel() == 0
        )
