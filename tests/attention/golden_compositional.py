"""Reference values of conjugate activations, computation skeletons and Hoeffding's count."""

import re

from torch import Tensor

from attention.compositional import (
    Activation,
    Circle,
    Exponential,
    Internal,
    ReLU,
    Skeleton,
    sufficient_features,
    variance,
)
from tests.attention.reference import Computation, Entry, tensor


def skeleton(description: str) -> Skeleton:
    """From text such as 'inputs 1..2 on T; v3=relu_dual{1,2}; out v4=exp(2(rho-1)){3}'."""
    last = re.match(r"inputs 1\.\.(\d+) on T", description)
    assert last is not None
    inputs = {str(i + 1): Circle((i,)) for i in range(int(last[1]))}
    nodes = {}
    for name, activation, sources in re.findall(r"v(\d+)=(\S+?)\{([\d,]+)\}", description):
        nodes[name] = Internal(tuple(sources.split(",")), dual(activation))
    return Skeleton(inputs, nodes)


def dual(text: str) -> Activation:
    if text == "relu_dual":
        return ReLU()
    scale, divisor = {"exp(rho-1)": (1, 1), "exp(2(rho-1))": (2, 1), "exp((rho-1)/4)": (1, 4)}[text]
    return Exponential(scale / divisor)


def of_skeleton(entry: Entry) -> Skeleton:
    return skeleton(entry["inputs"]["skeleton"])


def complexity(entry: Entry) -> Tensor:
    return tensor(of_skeleton(entry).complexity)


def calls(entry: Entry) -> Tensor:
    return tensor(of_skeleton(entry).expected_calls)


def feature_variance(entry: Entry) -> Tensor:
    inputs, q = entry["inputs"], entry["params"]["q"]
    return tensor(variance(of_skeleton(entry), inputs["angles_x"], inputs["angles_y"], q))


def relu_coefficients(entry: Entry) -> Tensor:
    return tensor(ReLU().coefficients(7)[entry["params"]["i"]])


CLOSED_FORMS: dict[str, Computation] = {
    "dual.relu.prime.0.3": lambda entry: tensor(ReLU().derivative(entry["inputs"]["rho"])),
    "dual.relu.coefs": relu_coefficients,
    "dual.exp.0.3": lambda entry: tensor(
        Exponential(entry["params"]["c"]).value(entry["inputs"]["rho"])
    ),
    **dict.fromkeys(("skel.C.S1", "skel.C.S2", "skel.C.S3"), complexity),
    **dict.fromkeys(("skel.calls.S1", "skel.calls.S2"), calls),
    "skel.var.S2": feature_variance,
    "rfs.q.hoeffding": lambda entry: tensor(
        sufficient_features(entry["params"]["eps"], entry["params"]["delta"], entry["params"]["C"])
    ),
}
FIXED_PROJECTIONS: dict[str, Computation] = {}
