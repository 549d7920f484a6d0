"""Runs an exported policy on a robot's computer, with ONNX Runtime and NumPy alone.

    policy = Policy("walker")
    policy.reset()
    action = policy.act({"depth": depth, "proprio": proprio}, age_s=0.004)

A folder may be untrusted: only its graph of standard operators is run, within a memory limit, and
no file outside the folder is read.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from deploy.contract_file import MODELS, Contract, Port, read_contract
from deploy.model_file import LARGEST_BYTES, check_model, read_file
from deploy.search_noise import SearchNoise

__all__ = ["Late", "Policy", "StaleError", "UnfitError", "fitted"]

Late = Literal["hold", "zero", "error"]
"""Response to an observation that is too old: repeat the last action, an action of zeros, or raise
`StaleError`."""
_WHOLE = "observation"
_MOST_SHOWN = 3
_MEMORY_BYTES = 2 << 30


class StaleError(ValueError):
    """An observation is older than the contract allows."""


class UnfitError(ValueError):
    """An observation has numbers that the contract refuses: none, infinite or out of bounds."""


class Policy:
    """An exported policy.

    Args:
        folder: what `deploy.export` wrote.
        late: response to an observation that is too old.
        max_age_s: limit of an observation's age, in place of the contract's.
        memory_bytes: memory limit of all models; the first policy of a process sets it.

    Attributes:
        contract: inputs, outputs and states of the model.
        late: response to an observation that is too old.
        late_count: number of observations of the episode that were too old.

    Raises:
        ValueError: one sentence, for a folder that holds no valid model.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        late: Late = "error",
        max_age_s: float | None = None,
        memory_bytes: int = _MEMORY_BYTES,
    ) -> None:
        if late not in get_args(Late):
            raise ValueError(f"late must be one of {', '.join(get_args(Late))}, got {late!r}")
        if max_age_s is not None and not max_age_s > 0:
            raise ValueError(f"max_age_s must be above 0, got {max_age_s!r}")
        folder = Path(folder)
        self.contract = read_contract(folder)
        if self.contract.model != "onnx":
            raise ValueError(
                f"{folder} must hold an ONNX model, got {self.contract.model}, which PyTorch loads"
            )
        self.late: Late = late
        self._max_age_s = self.contract.max_age_s if max_age_s is None else max_age_s
        self._path = folder / MODELS["onnx"]
        self._session = _session(folder, self.contract, memory_bytes)
        plan = self.contract.plan
        self._noise = SearchNoise(plan, self.contract.seed) if self.contract.noise else None
        self._outputs = [self.contract.action.name, *(s.output for s in self.contract.states)]
        self.reset()

    def reset(self) -> None:
        """Begin an episode: reset the recurrent state."""
        self._states = {state.port.name: state.initial for state in self.contract.states}
        self._last: NDArray[Any] | None = None
        self.late_count = 0
        if self._noise is not None:
            self._noise.reset()

    def act(
        self,
        observation: Mapping[str, Any] | tuple[Any, ...] | ArrayLike,
        age_s: float | None = None,
    ) -> NDArray[Any]:
        """The action for one observation.

        Args:
            observation: each part by its name, as the contract has them; nested parts by "a.b" or
                nested; an observation of one part may be given without a name.
            age_s: age of the observation, seconds; None: unknown, treated as new.

        Returns:
            The action as in the contract. For an observation that is too old, the action that
            `late` selects; the recurrent state then stays unchanged.

        Raises:
            ValueError: one sentence, for an observation that does not match the contract, and for a
                model that fails, for example because it needs more memory than the limit.
            UnfitError: a ValueError, if only its numbers do not: NaN, infinite or out of bounds.
            StaleError: if it is too old and `late` is "error".
            FloatingPointError: if the model returns numbers that are not finite.
        """
        given = fitted(self.contract.inputs, observation)
        if self._is_late(age_s):
            return self._instead(age_s)
        feeds = {**given, **self._states}
        if self._noise is not None and self.contract.noise is not None:
            feeds[self.contract.noise] = self._noise.next()
        try:
            outputs = self._session.run(self._outputs, feeds)
        except Exception as error:  # ONNX Runtime's own errors have no public class
            raise ValueError(f"{self._path} cannot be run: {_reason(error)}") from None
        found = dict(zip(self._outputs, outputs, strict=True))
        for name, value in found.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise FloatingPointError(
                    f"the model gave {name} with numbers that are not finite; the episode must "
                    "be restarted by reset()"
                )
        self._states = {s.port.name: found[s.output] for s in self.contract.states}
        action: NDArray[Any] = found[self.contract.action.name]
        self._last = action
        return action.copy()

    def _is_late(self, age_s: float | None) -> bool:
        if age_s is None:
            return False
        if not age_s >= 0:
            raise ValueError(f"age_s must be a number of at least 0, got {age_s!r}")
        return self._max_age_s is not None and age_s > self._max_age_s

    def instead(self) -> NDArray[Any]:
        """The action in place of one for a missing observation: the last one, or zeros."""
        if self.late == "hold" and self._last is not None:
            return self._last.copy()
        return self.stop_action()

    def stop_action(self, given: ArrayLike | None = None) -> NDArray[Any]:
        """An action of zeros, clipped to the bounds; or a given one in the contract's format.
        Raises ValueError for another shape or numbers out of bounds."""
        port = self.contract.action
        if given is not None:
            array = np.asarray(given)
            if array.dtype.kind not in "biuf":
                raise ValueError(f"stop must be an action of {port.dtype}, got {given!r}")
            return _fitting(replace(port, name="stop", outside="refuse"), array.astype(port.dtype))
        nothing = np.zeros(port.shape)
        for bound, nearer in ((port.low, np.fmax), (port.high, np.fmin)):
            nothing = nothing if bound is None else nearer(nothing, bound)
        return nothing.astype(port.dtype)

    def _instead(self, age_s: float | None) -> NDArray[Any]:
        self.late_count += 1
        if self.late == "error":
            raise StaleError(
                f"the observation must be at most {self._max_age_s} s old, got one of {age_s} s"
            )
        return self.instead()


def fitted(ports: Sequence[Port], observation: Any) -> dict[str, NDArray[Any]]:
    """An observation in the model's format.

    Raises:
        ValueError: one sentence, for one that does not match the inputs of a contract.
        UnfitError: if only its numbers do not.
    """
    parts = _flat(observation)
    wanted = [port.name for port in ports]
    absent = [name for name in wanted if name not in parts]
    more = [name for name in parts if name not in wanted]
    if absent or more:
        got = ", ".join(parts) or "nothing"
        raise ValueError(f"the observation must hold {', '.join(wanted)}, got {got}")
    return {port.name: _fitting(port, parts[port.name]) for port in ports}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Parts of an observation by their names, without text, which no model reads."""
    if isinstance(value, Mapping | tuple):
        named = value.items() if isinstance(value, Mapping) else enumerate(value)
        found: dict[str, Any] = {}
        for key, part in named:
            if not isinstance(part, str):
                found |= _flat(part, f"{name}.{key}" if name else str(key))
        return found
    return {name or _WHOLE: value}


def _fitting(port: Port, value: Any) -> NDArray[Any]:
    """A part of the observation in the model's format. ValueError for another."""
    array = _typed(port, np.asarray(value))
    name = port.name
    if array.shape != port.shape:
        raise ValueError(f"{name} must have shape {port.shape}, got {array.shape}")
    if array.dtype.kind == "f":
        _refuse(name, ~np.isfinite(array), array, "finite")
    if port.outside == "clip":
        for bound, nearer in ((port.low, np.fmax), (port.high, np.fmin)):
            array = array if bound is None else nearer(array, bound).astype(port.dtype)
    if port.outside == "refuse" and port.low is not None:
        _refuse(name, array < port.low, array, f"at least {_shown(port.low)}")
    if port.outside == "refuse" and port.high is not None:
        _refuse(name, array > port.high, array, f"at most {_shown(port.high)}")
    return np.asarray(array, order="C")


def _typed(port: Port, array: NDArray[Any]) -> NDArray[Any]:
    """Convert to the type of an input: floats of any width and signed integers to floats, and whole
    numbers to any type that holds them. Unsigned integers are not converted to floats: they are
    images or millimetres."""
    if array.dtype == port.dtype:
        return array
    if array.dtype.kind not in ("fi" if port.dtype.kind == "f" else "biu"):
        raise ValueError(f"{port.name} must be {port.dtype}, got {array.dtype}")
    if port.dtype.kind in "iu":
        held = np.iinfo(port.dtype)
        wrong = (array < held.min) | (array > held.max)
        _refuse(port.name, wrong, array, f"from {held.min} to {held.max}")
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        return array.astype(port.dtype)


def _refuse(name: str, wrong: NDArray[np.bool_], array: NDArray[Any], allowed: str) -> None:
    count = int(np.count_nonzero(wrong))
    if count:
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = f" at {list(first)}" if first else ""
        raise UnfitError(
            f"{name} must be {allowed}, got {array[first]}{at}, "
            f"{count} of {array.size} such numbers"
        )


def _shown(bound: NDArray[Any]) -> str:
    values = np.unique(bound[np.isfinite(bound)]) if bound.dtype.kind == "f" else np.unique(bound)
    if len(values) > _MOST_SHOWN:
        return f"the contract's bounds, {values[0]} to {values[-1]}"
    return " or ".join(str(value) for value in values)


def _session(folder: Path, contract: Contract, memory_bytes: int) -> onnxruntime.InferenceSession:
    """The model, checked against the contract."""
    name = MODELS["onnx"]
    data = read_file(folder, name, LARGEST_BYTES)
    if hashlib.sha256(data).hexdigest() != contract.sha256:
        raise ValueError(f"{folder / name} must be the file that its contract was written for")
    check_model(data, str(folder / name))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.use_env_allocators", "1")
    _limit_memory(memory_bytes)
    try:
        session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own errors have no public class
        raise ValueError(f"{folder / name} cannot be loaded: {_reason(error)}") from None
    _check_ports(session, contract, folder / name)
    return session


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]


_limited: list[int] = []


def _limit_memory(memory_bytes: int) -> None:
    """Limit the memory of all models of this process: ONNX Runtime has one memory pool."""
    if not _limited:
        where = onnxruntime.OrtMemoryInfo(
            "Cpu",
            onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
            0,
            onnxruntime.OrtMemType.DEFAULT,
        )
        onnxruntime.create_and_register_allocator(
            where, onnxruntime.OrtArenaCfg(memory_bytes, 1, -1, -1)
        )
        _limited.append(memory_bytes)


def _check_ports(session: onnxruntime.InferenceSession, contract: Contract, path: Path) -> None:
    """Names, shapes and types as in the contract."""
    ports = [*contract.inputs, *(state.port for state in contract.states)]
    wanted = {port.name: (list(port.shape), port.dtype) for port in ports}
    if contract.noise is not None:
        count = sum(n for _, n in contract.plan)
        wanted[contract.noise] = ([count], np.dtype(np.float32))
    _compare(path, "take", wanted, session.get_inputs())
    wanted = {s.output: (list(s.port.shape), s.port.dtype) for s in contract.states}
    wanted[contract.action.name] = (list(contract.action.shape), contract.action.dtype)
    _compare(path, "give", wanted, session.get_outputs())


def _compare(path: Path, verb: str, wanted: Mapping[str, Any], nodes: Sequence[Any]) -> None:
    there = {one.name: (one.shape, _dtype(one.type)) for one in nodes}
    if there != wanted:
        raise ValueError(
            f"{path} must {verb} what its contract says, {_list(wanted)}, got {_list(there)}"
        )


_NAMES = {"tensor(float)": "float32", "tensor(double)": "float64"}


def _dtype(name: str) -> np.dtype[Any]:
    """ONNX Runtime's name of a type; object for anything but a tensor of numbers."""
    known = _NAMES.get(name, name.removeprefix("tensor(").removesuffix(")"))
    try:
        return np.dtype(known)
    except TypeError:
        return np.dtype(object)


def _list(ports: Mapping[str, tuple[Any, Any]]) -> str:
    shown = ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in ports.items())
    return shown or "nothing"
