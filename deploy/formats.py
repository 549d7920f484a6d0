"""Writing a graph as a file: ONNX or a program of `torch.export`."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention.tracing import for_onnx
from deploy.steps import Step
from deploy.weights import Weights, reduce_weights

Run = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Inputs by name -> outputs by name."""
OPSET = 20
_FOLDED = 1500
"""Nodes of a program that is simplified while it becomes ONNX; larger ones take minutes, and ONNX
Runtime simplifies them as it loads them."""


def write(
    kind: str,
    step: Step,
    example: Mapping[str, Tensor],
    path: Path,
    weights: Weights = "float32",
) -> Run:
    """Write the file and return a function that runs it.

    Args:
        kind: "onnx" or "pt2".
        step: the graph.
        example: example inputs by name, in the order of `step.inputs`.
        path: of the file.
        weights: storage type of the trained weights of an ONNX file.

    Raises:
        ValueError: one sentence, for a policy that cannot be exported in this format.
    """
    target = for_onnx() if kind == "onnx" else contextlib.nullcontext()
    with torch.no_grad(), _quiet(), target:
        try:
            program = torch.export.export(step, tuple(example.values()))
            if kind == "pt2":
                torch.export.save(program, path)
                return _run_program(torch.export.load(path).module(), step)
            run = _onnx(program, step, path)
            if weights == "float32":
                return run
            reduce_weights(path, weights, {name for name, _ in step.named_parameters()})
            return _run_onnx(path, step)
        except Exception as error:  # of any kind: exporters raise whatever their parts raise
            last = " ".join(str(error).split())[:300]
            raise ValueError(
                f"this policy cannot be written as {kind}: {type(error).__name__}: {last}"
            ) from error


def _onnx(program: Any, step: Step, path: Path) -> Run:
    """Write the simplified model, or the original one if it is large or if ONNX Script's simplifier
    breaks it, as it does for a clamp of a clamp that is used twice."""
    if len(program.graph.nodes) <= _FOLDED:
        _write_onnx(program, step, path, simplified=True)
        with contextlib.suppress(Exception):  # ONNX Runtime's own errors have no public class
            return _run_onnx(path, step)
    _write_onnx(program, step, path, simplified=False)
    return _run_onnx(path, step)


def _write_onnx(program: Any, step: Step, path: Path, *, simplified: bool) -> None:
    import onnx

    made = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        input_names=step.inputs,
        output_names=step.outputs,
        opset_version=OPSET,
        optimize=simplified,
    )
    assert made is not None
    model = made.model_proto
    # Exporters note where on this machine each operator was written.
    for place in (model, model.graph, *model.graph.node, *model.functions):
        del place.metadata_props[:]
        place.doc_string = ""
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
            node.doc_string = ""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        del value.metadata_props[:]
    onnx.save_model(model, path)


def _run_onnx(path: Path, step: Step) -> Run:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # warnings about parts that cannot be simplified
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        feeds = {name: value.numpy() for name, value in inputs.items()}
        found = map(np.asarray, session.run(step.outputs, feeds))
        return {name: torch.from_numpy(v) for name, v in zip(step.outputs, found, strict=True)}

    return run


def _run_program(program: Any, step: Step) -> Run:
    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            found = program(*inputs.values())
        return dict(zip(step.outputs, found, strict=True))

    return run


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporters' messages about their internals."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
