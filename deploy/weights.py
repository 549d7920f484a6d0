"""Trained weights of an ONNX model in fewer bits: bfloat16 or int8. The runtime does not change.

bfloat16 halves the size of weights. They are stored in this type and cast when the model is loaded:
ONNX Runtime computes in float32, as it has no bfloat16 products on a CPU. int8 is dynamic
quantisation of `onnxruntime.quantization`: matrices are stored in 8 bits with a scale per column,
their factors are rounded to 8 bits at each decision, between its least and greatest number, and
products are of integers. Untrained numbers do not change: random vectors, the geometry, sums of a
memory."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, Literal

Weights = Literal["float32", "bfloat16", "int8"]
"""Storage type of trained weights."""
WEIGHTS: tuple[Weights, ...] = ("float32", "bfloat16", "int8")
_PRODUCTS = ("MatMul", "Gemm")


def reduce_weights(path: Path, weights: Weights, trained: Set[str]) -> None:
    """Rewrite the model of a file with its weights in another type.

    Args:
        path: of an ONNX file.
        weights: storage type; float32 leaves the file unchanged. trained: names of the weights.

    Raises:
        ValueError: one sentence, for a model without such weights.
    """
    import onnx

    if weights == "float32":
        return
    model = onnx.load(path)
    if weights == "bfloat16":
        count = _bfloat16(model.graph, trained)
        onnx.save_model(model, path)
    else:
        _transpose(model.graph, trained)
        count = _int8(model, trained, path)
    if not count:
        raise ValueError(f"a policy must have trained weights to be written in {weights}, got none")


def _bfloat16(graph: Any, trained: Set[str]) -> int:
    """Round float32 weights to the nearest bfloat16, and cast them where the graph begins."""
    from onnx import TensorProto, helper, numpy_helper

    casts = []
    for tensor in _weights(graph, trained):
        name, stored = tensor.name, f"{tensor.name}.bfloat16"
        bits = numpy_helper.to_array(tensor).view("<u4").astype("<u8")
        upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to the nearest, ties to even
        tensor.CopyFrom(
            TensorProto(
                name=stored, data_type=TensorProto.BFLOAT16, dims=tensor.dims,
                raw_data=upper.astype("<u2").tobytes(),
            )
        )  # fmt: skip
        casts.append(helper.make_node("Cast", [stored], [name], f"{name}.cast", to=1))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return len(casts)


def _int8(model: Any, trained: Set[str], path: Path) -> int:
    """Write the model with its products of weights in integers."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    names = {tensor.name for tensor in _weights(model.graph, trained)}
    products = [node for node in model.graph.node if node.op_type in _PRODUCTS]
    others = [node.name for node in products if node.input[1] not in names]
    if len(others) < len(products):
        quantize_dynamic(
            model, path, op_types_to_quantize=list(_PRODUCTS), nodes_to_exclude=others,
            per_channel=True, weight_type=QuantType.QInt8,
        )  # fmt: skip
    return len(products) - len(others)


def _transpose(graph: Any, trained: Set[str]) -> None:
    """Store weights that are only used transposed as they are used, so that they are found."""
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in _weights(graph, trained)}
    del graph.value_info[:]  # shapes, which are no longer valid
    for node in list(graph.node):
        if node.op_type != "Transpose" or node.input[0] not in weights:
            continue
        tensor = weights[node.input[0]]
        users = sum(list(other.input).count(tensor.name) for other in graph.node)
        if users > 1 or len(tensor.dims) != 2:
            continue
        turned = numpy_helper.to_array(tensor).T.copy()
        tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))
        for other in graph.node:
            for place, name in enumerate(other.input):
                if name == node.output[0]:
                    other.input[place] = tensor.name
        graph.node.remove(node)


def _weights(graph: Any, trained: Set[str]) -> Iterator[Any]:
    """Trained float32 tensors."""
    from onnx import TensorProto

    for tensor in graph.initializer:
        if tensor.name in trained and tensor.data_type == TensorProto.FLOAT:
            yield tensor
