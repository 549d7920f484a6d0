"""The largest number so far is the same in an export, to the bit, and attention is traced."""

import warnings

import pytest
import torch
from torch.testing import assert_close

from attention import RandomFeatureAttention
from attention.running import running_max


class Running(torch.nn.Module):
    def forward(self, x):
        return running_max(x, -2), running_max(x, -1)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_it_is_cummax_in_an_export(length):
    x = torch.randn(2, length, length + 3)
    program = torch.export.export(Running(), (x,))
    assert not [node for node in program.graph.nodes if "cummax" in str(node.target)]
    for found, dim in zip(program.module()(x), (-2, -1), strict=True):
        assert torch.equal(found, x.cummax(dim).values)
        assert torch.equal(running_max(x, dim), found)


@pytest.mark.parametrize("causal", [False, True])
def test_a_traced_module_attends_alike(causal):
    class Given(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = RandomFeatureAttention(8, 2, batch_first=True).eval()

        def forward(self, x, padding):
            return self.inner(x, x, x, padding, need_weights=True, is_causal=causal)

    module, padding = Given().requires_grad_(False), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sizes, which a trace keeps, and of being old
        traced = torch.jit.trace(module, (torch.randn(2, 5, 8), padding), check_trace=False)
    x = torch.randn(2, 5, 8)
    for found, wanted in zip(traced(x, padding.flip(0)), module(x, padding.flip(0)), strict=True):
        assert_close(found, wanted)
