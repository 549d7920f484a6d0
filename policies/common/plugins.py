"""Custom policies, controllers and feature maps (docs/guide/custom_policy.md)."""

import copy
import inspect
import traceback
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attention import plugins
from policies.common.geometry import Geometry
from policies.common.kinds import CONFIGS, CustomPolicyConfig
from policies.common.normaliser import RunningNormaliser
from policies.common.settings import ADMITTED, CONTROLLERS, GROUP


def admit(settings: Mapping[str, Any]) -> None:
    """Import the "module:Class" names in a policy's settings, which must come from the user.

    Raises:
        ValueError: for a missing module or class.
    """
    for key in ("name", "controller", "feature_map"):
        name = settings.get(key)
        if isinstance(name, str) and ":" in name:
            admit_name(name, "policy" if key == "name" else key.replace("_", " "))


def admit_name(name: str, kind: str = "policy") -> None:
    """Import one name "module:Class"."""
    if name not in ADMITTED:
        ADMITTED[name] = plugins.find(GROUP, kind, name, nn.Module, (), trusted=True)


def custom_map(name: str) -> Any:
    """The value that `attention.feature_map` accepts as a map's name; only imports entry points."""
    return _found("feature map", name, ()) if ":" in name else name


def _found(kind: str, name: str, known: tuple[str, ...]) -> Any:
    if name in ADMITTED:
        return copy.deepcopy(ADMITTED[name])  # of classes and functions they are themselves
    try:
        return plugins.find(GROUP, kind, name, nn.Module, known, trusted=False)
    except ValueError as error:
        if ":" not in name:
            raise
        setting = {"policy": "name"}.get(kind, kind.replace(" ", "_"))
        raise ValueError(
            f"{error}: give --set policy.{setting}={name} to resume, --custom {name} elsewhere"
        ) from None


def _made(
    kind: str, name: str, make: Any, given: tuple[Any, ...],
    options: Mapping[str, Any], offered: Mapping[str, Any],
) -> nn.Module:  # fmt: skip
    """Return make(*given, **options) with the `offered` keywords that it accepts, or an object
    unchanged."""
    if isinstance(make, nn.Module):
        if options:
            raise ValueError(
                f"{kind} given as an object takes no options, got {', '.join(options)}"
            )
        return make
    try:
        taken = inspect.signature(make)
        more = {key: value for key, value in offered.items() if key in taken.parameters}
        taken.bind(*given, **{**more, **options})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{kind} {name}: {error}") from None
    try:
        made = make(*given, **{**more, **options})
    except Exception as error:  # custom code can raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"{kind} {name} cannot be made: {said} ({place.filename}:{place.lineno})"
        ) from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"{kind} {name} must make an nn.Module, got {made!r}")
    return made


def custom_controller(
    name: str, inputs: int, outputs: int, hidden: tuple[int, ...], generator: torch.Generator
) -> nn.Module:
    """The controller `name`: Class(inputs, outputs), and `hidden` and `generator` if it takes them.

    Raises:
        ValueError: for one that is not found or does not fit.
    """
    make = _found("controller", name, CONTROLLERS)
    offered = {"hidden": hidden, "generator": generator}
    with torch.random.fork_rng(devices=[]):  # its own initial numbers, the same every time
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        made = _made("controller", name, make, (inputs, outputs), {}, offered)
    given: tuple[Tensor, ...] = (torch.zeros(2, inputs),)
    size: Any = getattr(made, "state_size", None)
    if size is not None:
        given += (torch.zeros(2, size),)
    with torch.no_grad():
        found = made(*given)
    found = found if len(given) == 2 else (found,)
    shapes = [tuple(getattr(part, "shape", ())) for part in found]
    needed = [(2, outputs), *(tuple(state.shape) for state in given[1:])]
    if shapes != needed:
        raise ValueError(
            f"controller {name} must give {' and '.join(map(str, needed))} for a batch of 2, got "
            f"{' and '.join(map(str, shapes))}"
        )
    return made


def build_custom(
    config: CustomPolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    geometry: Geometry | None = None,
) -> nn.Module:
    """The policy that the settings name: Class(observation_space, action_space, **options), and
    `geometry` if it takes that. See `policies.common.contract.Policy` for its required members.

    Raises:
        ValueError: for one that is not found, does not fit or lacks something.
    """
    make = _found("policy", config.name, tuple(CONFIGS))
    spaces, offered = (observation_space, action_space), {"geometry": geometry}
    with torch.random.fork_rng(devices=[]):  # initial numbers that follow from the settings alone
        torch.manual_seed(int(config.options.get("init_seed", 0)))
        made = _made("policy", config.name, make, spaces, config.options, offered)
    for method in ("reset", "act"):
        if not callable(getattr(made, method, None)):
            raise ValueError(
                f"policy {config.name} must have {method}, see docs/guide/custom_policy.md"
            )
    return _completed(made)


def _completed(policy: Any) -> nn.Module:
    """Adds default members to a policy: it measures nothing, fits nothing and has no memory."""
    if hasattr(policy, "normaliser") != hasattr(policy, "measured"):
        raise ValueError(
            f"policy {type(policy).__name__} must have both normaliser and measured, or neither"
        )
    if not hasattr(policy, "normaliser"):
        policy.normaliser = RunningNormaliser(0)
        policy.measured = _nothing_measured
    defaults: dict[str, Any] = {"fit_attention": _nothing_done, "set_statistics": _nothing_done}
    defaults |= {"remembers": False, "prepared": _as_they_are}
    defaults["unrolls"] = getattr(policy, "remembers", False)
    for name, value in defaults.items():
        if not hasattr(policy, name):
            setattr(policy, name, value)
    made: nn.Module = policy
    return made


def _nothing_measured(observation: Any) -> NDArray[np.float64]:
    return np.zeros(0)


def _as_they_are(observations: Any, starts: Any) -> Any:
    return observations


def _nothing_done(observations: Any) -> None:
    pass
