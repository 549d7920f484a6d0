"""Attention alone as a graph for any length, in every mode."""

import io
import logging
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from attention import RandomFeatureAttention

BATCH, SHORT, LONG, WIDTH = 2, 6, 150, 8  # LONG is more than two chunks of the causal form
MODES = [(causal, weights, mask) for causal in (0, 1) for weights in (0, 1) for mask in (0, 1)]


class Given(nn.Module):
    def __init__(self, name, causal, weights, mask):
        super().__init__()
        self.inner = RandomFeatureAttention(WIDTH, 2, name, batch_first=True)
        self.causal, self.weights, self.mask = bool(causal), bool(weights), bool(mask)
        self.eval()

    def forward(self, x, padding):
        hidden = padding if self.mask else None
        found = self.inner(x, x, x, hidden, need_weights=self.weights, is_causal=self.causal)
        return found if self.weights else found[0]


def tokens(length, seed=0):
    x = torch.randn(BATCH, length, WIDTH, generator=torch.Generator().manual_seed(seed))
    padding = torch.zeros(BATCH, length, dtype=torch.bool)
    padding[1, length // 2 :] = True
    return x, padding


def exported(module):
    length = torch.export.Dim("length", min=2, max=1 << 14)
    return torch.export.export(module, tokens(SHORT), dynamic_shapes=({1: length}, {1: length}))


def traced(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of being old, and of checks that read numbers
        return torch.jit.trace(module, tokens(SHORT), check_trace=False)


def in_onnx(module):
    runtime = pytest.importorskip("onnxruntime")
    length, file = torch.export.Dim("length", min=2, max=1 << 14), io.BytesIO()
    logging.disable(logging.WARNING)
    try:
        made = torch.onnx.export(
            module, tokens(SHORT), dynamo=True, opset_version=20, verbose=False,
            dynamic_shapes=({1: length}, {1: length}),
        )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    made.save(file)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(x, padding):
        found = session.run(None, dict(zip(names, (x.numpy(), padding.numpy()), strict=False)))
        return tuple(map(torch.from_numpy, map(np.asarray, found)))

    return run


def check(run, module):
    given = tokens(LONG, seed=1)
    found, wanted = run(*given), module(*given)
    found, wanted = (one if isinstance(one, tuple) else (one,) for one in (found, wanted))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=3e-5)


def test_graphs_of_pytorch_attend_at_any_length():
    module = Given("positive", 1, 1, 1).requires_grad_(False)
    program = exported(module)
    assert not [node for node in program.graph.nodes if "cummax" in str(node.target)]
    check(program.module(), module)
    check(traced(module), module)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # PyTorch's own
@pytest.mark.filterwarnings("ignore:# The axis name")  # two inputs are as long as each other
@pytest.mark.parametrize(
    ("name", "causal", "weights", "mask"),
    [*(("angular_hybrid", *mode) for mode in MODES), ("quadratic", 1, 0, 1)],
)
def test_every_mode_is_an_onnx_graph_for_any_length(name, causal, weights, mask):
    module = Given(name, causal, weights, mask).requires_grad_(False)
    check(in_onnx(module), module)


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "weights", "mask"), MODES)
def test_every_mode_is_a_graph_of_pytorch_for_any_length(causal, weights, mask):
    module = Given("angular_hybrid", causal, weights, mask).requires_grad_(False)
    check(exported(module).module(), module)
    check(traced(module), module)
