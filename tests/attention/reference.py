"""Reading an entry of the reference values."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import attention
from tests.attention import cases

Entry = dict[str, Any]
Computation = Callable[[Entry], Tensor]


def tensor(values: Any) -> Tensor:
    """float64 from numbers and lists, complex128 from {re, im} and lists of them."""
    if isinstance(values, dict):
        return torch.complex(tensor(values["re"]), tensor(values["im"]))
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        return torch.stack([tensor(value) for value in values])
    return torch.tensor(values, dtype=torch.float64)


def pair(entry: Entry) -> tuple[Tensor, Tensor]:
    """x and y of an entry, given as lists or as formulas like '0.3*sin(i+1), i=0..63'."""
    inputs = entry["inputs"]
    return vector(inputs, "x"), vector(inputs, "y")


def vector(inputs: Entry, name: str) -> Tensor:
    if name in inputs:
        return tensor(inputs[name])
    match = re.fullmatch(r"([\d.]+)\*(sin|cos)\(i\+1\), i=0\.\.(\d+)", inputs[f"{name}_formula"])
    assert match is not None
    scale, function, last = match.groups()
    return float(scale) * getattr(torch.arange(1.0, int(last) + 2, dtype=torch.float64), function)()


def estimate(fm: attention.FeatureMap, entry: Entry) -> Tensor:
    """The map's kernel estimate at the entry's pair."""
    return cases.estimate(fm, *pair(entry))
