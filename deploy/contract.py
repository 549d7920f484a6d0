"""The contract of an exported model: its inputs, outputs, states, bounds and rate."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from deploy.cameras import described
from deploy.contract_file import FORMAT, VERSION
from deploy.steps import NOISE, Step
from envs.signals import ACTION, Signal
from policies.common.action_parts import ActionParts
from policies.common.geometry import geometry_of

_MANY = 4096
"""Largest part for which bounds are listed element by element."""


def contract(
    step: Step, env: gymnasium.Env[Any, Any], rate_hz: float | None, outside: str = "refuse"
) -> dict[str, Any]:
    """The contract of a graph, as JSON data; the model's entry is added when the model is written.

    Args:
        step: the graph.
        env: environment of the policy; its geometry and signals, if it has them, are included.
        rate_hz: decisions a second; None: not known.
        outside: treatment of observed numbers out of bounds, one of `OUTSIDE`. Invalid values of
        discrete inputs (Discrete, MultiDiscrete, MultiBinary) are always refused.
    """
    signals = [asdict(one) for one in signals_of(env)]
    noise = None
    if step.plan:
        noise = {
            "input": NOISE,
            "shape": [sum(count for _, count in step.plan)],
            "dtype": "float32",
            "plan": [[kind, count] for kind, count in step.plan],
            "seed": step.seed,
            "generator": "MT19937, as deploy/search_noise.py draws; starts again with each episode",
        }
    return {
        "format": FORMAT,
        "version": VERSION,
        "rate_hz": rate_hz,
        "max_age_s": None if rate_hz is None else round(1 / rate_hz, 9),
        "inputs": [_input(key, space, signals, outside) for key, space in step.parts.items()],
        "states": [
            {
                "name": name,
                "output": f"next_{name}",
                "shape": list(value.shape),
                "dtype": str(value.dtype).removeprefix("torch."),
                "initial": _initial(value.numpy()),
            }
            for name, value in step.initial.items()
        ],
        "noise": noise,
        "outputs": [_output(step.action_space, signals)],
        "cameras": described(geometry_of(env)),
        "depth_repair": {
            "inside_the_model": False,
            "what": "none: the policy was trained without, or exported with --repair none",
        },
        "action_search": _search(step),
    }


def signals_of(env: gymnasium.Env[Any, Any]) -> Sequence[Signal]:
    """The `signals` that an environment offers; none where it means something else by that name."""
    found = getattr(env.unwrapped, "signals", ())
    known = isinstance(found, list | tuple) and all(isinstance(one, Signal) for one in found)
    return found if known else ()


def _search(step: Step) -> dict[str, Any] | None:
    """The search that is inside the model; None for a policy without a search."""
    if not step.plan:
        return None
    config: Any = step.policy.config
    return {
        "inside_the_model": True,
        "head": config.head,
        "samples": config.samples,
        "rounds": config.rounds,
        "temperature": config.temperature,
    }


def _input(key: str, space: Any, signals: list[dict[str, Any]], outside: str) -> dict[str, Any]:
    choice = not isinstance(space, spaces.Box)
    outside = "refuse" if choice and outside == "pass" else outside
    return {"name": key, **_port(space), "outside": outside, "signals": _of(key, signals)}


def _output(space: Any, signals: list[dict[str, Any]]) -> dict[str, Any]:
    found = _of(ACTION, signals)
    if not found and isinstance(space, ActionParts):
        found = _of(ACTION, [asdict(one) for one in _signals(space)])
    return {"name": ACTION, **_port(space), "signals": found}


def _signals(space: ActionParts) -> list[Signal]:
    """Which numbers of an action are which part."""
    found = []
    for name, place in space.slices.items():
        choices = [n for n in space.bins[place] if n]
        what = f"{name}, one of {' x '.join(map(str, choices))} choices" if choices else name
        found.append(Signal(ACTION, what, place.start, place.stop - place.start))
    return found


def _port(space: Any) -> dict[str, Any]:
    low, high = _bounds(space)
    found = {"shape": list(space.shape or ()), "dtype": np.dtype(space.dtype).name}
    return {**found, "low": low, "high": high}


def _bounds(space: Any) -> tuple[Any, Any]:
    """Least and greatest numbers: one for all, or a list; null where there is no bound."""
    if isinstance(space, spaces.Box):
        return _bound(space.low), _bound(space.high)
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.broadcast_to(space.start, space.nvec.shape)
        return _bound(start), _bound(start + space.nvec - 1)
    return 0, 1  # MultiBinary


def _bound(values: Any) -> Any:
    array = np.asarray(values)
    if array.size and (array == array.flat[0]).all():
        one = array.flat[0].item()
        return one if np.isfinite(one) else None
    if array.size > _MANY:
        return None
    return _nested(array)


def _nested(array: Any) -> Any:
    if array.ndim:
        return [_nested(part) for part in array]
    return array.item() if np.isfinite(array) else None


def _initial(array: Any) -> Any:
    same = array.size and (array == array.flat[0]).all()
    return array.flat[0].item() if same else array.tolist()


def _of(part: str, signals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    own = [one for one in signals if one["part"] == part]
    return [{k: v for k, v in one.items() if k != "part" and v not in ("", None)} for one in own]
