"""An environment in the wrappers of its settings, see `training.collect.env_settings`."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import spaces

from policies.common.action_parts import ActionParts
from policies.common.observation import leaves
from training.collect import env_settings
from training.collect.checked import check_expert
from training.collect.env_settings import KEYS, REGISTER, WRAPPERS, ForeignId
from training.collect.tuples import with_tuples
from training.command.errors import UserError, did_you_mean, shown

_GYMNASIUM = "gymnasium.wrappers"
_DRAWS = "gymnasium.wrappers.rendering"
_REMEMBER = ("NormalizeObservation", "NormalizeReward")
_MOST_OF_STRANGERS, _MOST_STACKED, _MOST_NUMBERS = 1024, 64, 2**24
_SET = "which only --set, --custom or your configuration may request"


def register(settings: Mapping[str, Any]) -> None:
    """Import or call what registers the environment. Raises UserError if that is not possible."""
    for name in env_settings.registrations(settings):
        module, _, function = name.partition(":")
        if isinstance(name, ForeignId) and (function or module not in sys.modules):
            raise UserError(f"{REGISTER} = {str(name)!r} of a file would run code, {_SET}")
        found = _imported(REGISTER, name, module, function)
        if function:
            if not callable(found):
                raise UserError(f"{REGISTER} = {name!r} must name a function, got {shown(found)}")
            found()


def wrapped(
    env: gymnasium.Env[Any, Any], settings: Mapping[str, Any], env_id: str
) -> gymnasium.Env[Any, Any]:
    """The environment in its wrappers, with the parts that are kept, and with actions as one vector
    where they have parts.

    Raises UserError for a wrapper that cannot be found or made or is not the user's, or parts that
    are not there.
    """
    for name, words in env_settings.wrappers(settings):
        make = _wrapper(name, env_id)
        if isinstance(name, ForeignId):
            _check_size(name, words)
        try:
            env = make(env, **with_tuples(make, words))
        except Exception as error:  # a wrapper can raise anything
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{WRAPPERS}: {name} cannot be made: {said}") from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{WRAPPERS}: {name} must make an environment, got {shown(env)}")
        if isinstance(name, ForeignId):
            _check_space(name, env)
    if KEYS in settings:
        env = KeptParts(env, *env_settings.kept(settings))
    if isinstance(env.action_space, spaces.Dict | spaces.Tuple):
        env = JoinedActions(env)
    return env


class KeptParts(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An observation of several parts, without some of them: a Dict of the parts by their names.

    Args:
        env: environment with a Dict or Tuple of observations, which may be nested.
        keep: names, "a.b" of nested parts; a name also stands for all parts below it.
        drop: names in the same way, if none are to be kept.

    Raises:
        UserError: for names that are not there, or if nothing is kept.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], keep: Sequence[str], drop: Sequence[str] = ()
    ) -> None:
        super().__init__(env)
        parts = dict(leaves(env.observation_space))
        given = [*keep, *drop]
        absent = [one for one in given if not any(_is_of(name, one) for name in parts)]
        if absent:
            raise UserError(
                f"{KEYS} names {', '.join(absent)}, but the parts of the observation are "
                f"{', '.join(parts)}{did_you_mean(absent[0], parts)}"
            )
        self._names = [
            name for name in parts if any(_is_of(name, one) for one in given) == bool(keep)
        ]
        if not self._names:
            raise UserError(f"{KEYS} must keep a part of the observation, got {{drop: {drop}}}")
        self.observation_space = spaces.Dict({name: parts[name] for name in self._names})

    def observation(self, observation: Any) -> dict[str, Any]:
        """The parts that are kept, by name."""
        parts = dict(leaves(observation))
        return {name: parts[name] for name in self._names if name in parts}


class JoinedActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment with a Dict or Tuple of actions, which takes them as one vector, see
    `policies.common.action_parts.ActionParts`; those of the environment itself are taken too."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        try:
            self._parts = ActionParts(env.action_space)
        except ValueError as error:
            raise UserError(str(error)) from None
        self.action_space = self._parts

    def action(self, action: Any) -> Any:
        """The action in the environment's format."""
        return action if isinstance(action, tuple | Mapping) else self._parts.nested(action)

    def expert_action(self) -> Any:
        """The expert's action as one vector."""
        expert = self.env.get_wrapper_attr("expert_action")
        check_expert(expert, self.env)
        return self._parts.joined(expert())

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether it has an attribute; an expert only if the environment has one."""
        inner = self.env.has_wrapper_attr(name)
        return inner if name == "expert_action" else super().has_wrapper_attr(name)


def _is_of(name: str, given: str) -> bool:
    return name == given or name.startswith(f"{given}.")


def _wrapper(name: str, env_id: str) -> Callable[..., Any]:
    """The class of a wrapper."""
    module, _, attribute = name.rpartition(":") if ":" in name else name.rpartition(".")
    if module in ("", "gymnasium", _GYMNASIUM):
        module, known = _GYMNASIUM, gymnasium.wrappers.__all__
        if attribute not in known:
            raise UserError(
                f"{WRAPPERS}: gymnasium.wrappers has no {attribute}"
                f"{did_you_mean(attribute, known)}; another package's is module:Class"
            )
        if attribute in _REMEMBER:
            raise UserError(
                f"{WRAPPERS}: {attribute} keeps statistics from one episode to the next, so that "
                "episodes would depend on each other; policies normalise what they observe"
            )
    elif isinstance(name, ForeignId):
        own = "" if isinstance(env_id, ForeignId) else env_id.partition(":")[0]
        asked = ":" in env_id and module.partition(".")[0] == own.partition(".")[0]
        if not asked or module not in sys.modules:
            raise UserError(f"{WRAPPERS}: {str(name)!r} of a file would import {module}, {_SET}")
    found = _imported(WRAPPERS, name, module, attribute)
    if not isinstance(found, type) or not issubclass(found, gymnasium.Wrapper):
        if isinstance(name, ForeignId) or not callable(found):
            raise UserError(f"{WRAPPERS}: {name} must be a gymnasium.Wrapper, got {shown(found)}")
    elif isinstance(name, ForeignId) and found.__module__ == _DRAWS:
        raise UserError(f"{WRAPPERS}: {name} of a file may write files, {_SET}")
    made: Callable[..., Any] = found
    return made


def _imported(key: str, name: str, module: str, attribute: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
    except Exception as error:  # importing a module can raise anything
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{key} = {str(name)!r} cannot be imported: {said}") from None
    return found


def _check_size(name: str, words: Mapping[str, Any]) -> None:
    """UserError for keywords of an untrusted file with which a wrapper would need much memory."""
    for key, value in words.items():
        most = _MOST_STACKED if "stack" in key else _MOST_OF_STRANGERS
        numbers = [one for one in env_settings.listed(value) if isinstance(one, int)]
        if key != "max_episode_steps" and any(abs(one) > most for one in numbers):
            raise UserError(
                f"{WRAPPERS}: {key} of {name} of a file may be at most {most}, got {shown(value)}; "
                f"--set {WRAPPERS}=[...] allows more"
            )


def _check_space(name: str, env: gymnasium.Env[Any, Any]) -> None:
    for _, part in leaves(env.observation_space):
        size = 1
        for side in part.shape or ():
            size *= side
        if size > _MOST_NUMBERS:
            raise UserError(
                f"{WRAPPERS}: {name} of a file makes observations of {size} numbers, where there "
                f"can be at most {_MOST_NUMBERS}"
            )
