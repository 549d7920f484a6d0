"""Reading and validation of `contract.json` of an exported policy; it needs NumPy alone.

The content of a folder is treated as data: names, sizes and numbers, each within limits.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.model_file import read_file

CONTRACT = "contract.json"
FORMAT, VERSION = "foveate-contract", 1
MODELS = {"onnx": "model.onnx", "pt2": "model.pt2"}
"""File names of models by kind."""
OUTSIDE = ("pass", "clip", "refuse")
"""Treatments of observed numbers out of bounds; a contract without the entry refuses them."""
_LARGEST_JSON = 4 << 20
_LARGEST = 1 << 25  # numbers of all inputs and states together
_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip


@dataclass(frozen=True)
class Port:
    """An input or output tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: NDArray[Any] | None = None
    """Lower bounds, broadcast to the shape; None: no bound."""
    high: NDArray[Any] | None = None
    outside: str = "refuse"
    """Treatment of numbers out of bounds, one of `OUTSIDE`."""


@dataclass(frozen=True)
class State:
    """A recurrent state: an output that is an input of the next decision."""

    port: Port
    output: str
    initial: NDArray[Any]


@dataclass(frozen=True)
class Contract:
    """Inputs, outputs and states of a model."""

    model: str
    """Kind of the model, a key of `MODELS`."""
    sha256: str
    """Checksum of the model file."""
    inputs: tuple[Port, ...]
    states: tuple[State, ...]
    action: Port
    noise: str | None
    """Name of the input that holds the random numbers of a search."""
    plan: tuple[tuple[str, int], ...]
    seed: int
    max_age_s: float | None
    """Largest age of an observation, seconds; None: no limit."""
    everything: dict[str, Any]
    """The whole content of the file."""


def read_contract(folder: Path) -> Contract:
    """The contract of a folder.

    Raises:
        ValueError: one sentence, for an invalid contract.
    """
    path = folder / CONTRACT
    text = read_file(folder, CONTRACT, _LARGEST_JSON)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON, got {type(error).__name__}") from None
    try:
        return _contract(given)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} lacks a part or has a part of another type: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _contract(given: dict[str, Any]) -> Contract:
    if (given["format"], given["version"]) != (FORMAT, VERSION):
        raise ValueError(
            f"format and version must be {FORMAT} {VERSION}, got {given['format']!r} "
            f"{given['version']!r}"
        )
    model = given["model"]
    if model["kind"] not in MODELS:
        raise ValueError(f"model.kind must be one of {', '.join(MODELS)}, got {model['kind']!r}")
    inputs = tuple(_port(one) for one in given["inputs"])
    states = tuple(_state(one) for one in given["states"])
    numbers = sum(math.prod(port.shape) for port in (*inputs, *(s.port for s in states)))
    noise = given["noise"]
    plan = () if noise is None else tuple((_kind(k), _count(n)) for k, n in noise["plan"])
    numbers += sum(count for _, count in plan)
    if numbers > _LARGEST:
        raise ValueError(f"inputs must have at most {_LARGEST} numbers together, got {numbers}")
    (action,) = given["outputs"]
    age = given["max_age_s"]
    is_number = isinstance(age, int | float) and not isinstance(age, bool)
    if age is not None and not (is_number and 0 < age < math.inf):
        raise ValueError(f"max_age_s must be a number above 0 or null, got {age!r}")
    return Contract(
        model["kind"],
        str(model["sha256"]),
        inputs,
        states,
        _port(action),
        None if noise is None else str(noise["input"]),
        plan,
        0 if noise is None else _count(noise["seed"]),
        age,
        given,
    )


def _port(given: dict[str, Any]) -> Port:
    name, shape, dtype = given["name"], given["shape"], given["dtype"]
    if not isinstance(name, str) or len(name) > 200:
        raise ValueError(f"a name must be text of at most 200 letters, got {str(name)[:50]!r}")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype of {name} must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    sizes = tuple(_count(side) for side in shape)
    if len(sizes) > 8 or math.prod(sizes) > _LARGEST:
        raise ValueError(f"shape of {name} must be of at most {_LARGEST} numbers, got {shape}")
    if len(sizes) > 1 and 0 in sizes:
        raise ValueError(f"shape of {name} must have sides above 0, got {shape}")
    kind = np.dtype(dtype)
    low, high = (_numbers(given.get(s), sizes, kind, f"{s} of {name}") for s in ("low", "high"))
    outside = given.get("outside", "refuse")
    if outside not in OUTSIDE:
        raise ValueError(f"outside of {name} must be one of {', '.join(OUTSIDE)}, got {outside!r}")
    return Port(name, sizes, kind, low, high, outside)


def _numbers(
    given: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str
) -> NDArray[Any] | None:
    """One number for all elements, or one for each; null in a list of bounds means no bound.

    Bounds of real numbers are float64. ValueError for numbers that the type does not have.
    """
    if given is None:
        return None
    array = np.array(given, np.float64 if dtype.kind == "f" else object)  # of None: NaN
    if array.shape not in ((), shape):
        raise ValueError(f"{what} must be one number or of shape {shape}, got {array.shape}")
    if dtype.kind == "f":
        return array
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if what.startswith(("low", "high")):
        array[array == np.array(None)] = least if what.startswith("low") else most
    for one in array.flat:
        if not (isinstance(one, int | float) and least <= one <= most and one == int(one)):
            raise ValueError(
                f"{what} must be whole numbers from {least} to {most}, got {str(one)[:50]}"
            )
    return array.astype(dtype)


def _state(given: dict[str, Any]) -> State:
    port = _port(given)
    initial = _numbers(given["initial"], port.shape, port.dtype, f"initial of {port.name}")
    if initial is None or (port.dtype.kind == "f" and not np.isfinite(initial).all()):
        raise ValueError(f"initial of {port.name} must be finite numbers")
    whole = np.broadcast_to(initial.astype(port.dtype), port.shape).copy()
    return State(port, str(given["output"]), whole)


def _count(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= _LARGEST * 16:
        raise ValueError(f"sizes must be whole numbers from 0, got {given!r}")
    return given


def _kind(given: Any) -> str:
    kinds: Sequence[str] = ("uniform", "normal")
    if given not in kinds:
        raise ValueError(f"noise must be uniform or normal, got {given!r}")
    return str(given)
