"""The check of everything that comes from an environment; `make_env` puts it around each one.

What passes has the types and shapes of the observation space, finite numbers, a reward that is a
number, flags that are true or false, and `info["success"]`, if present, as a bool."""

import math
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

import envs
import foveate_extras
from envs.task import SUCCESS
from training.command.errors import UserError, shown

_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_OBSERVATION = "the observation"
_SUCCESS = (SUCCESS, "is_success")
"""Keys of `info` that may say whether an episode succeeded; the first has precedence."""


class EnvironmentFault(UserError):
    """Raised when an environment breaks the interface of Gymnasium, or fails."""


def reason(error: BaseException) -> str:
    """The message of an exception in foreign code, on one line, with its location unless it is a
    validation error.
    """
    missing = foveate_extras.explained("it", error)
    try:
        said = " ".join(str(missing or error).split())
    except Exception:  # of an exception whose text cannot be made
        said = ""
    if said and isinstance(error, gymnasium.error.Error | ImportError | TypeError | ValueError):
        return said
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}{': ' if said else ''}{said} ({place.filename}:{place.lineno})"


class Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose values are all checked.

    Numbers of another type are converted to the space's where they fit: floats to floats, whole
    numbers to any type that holds them. Values may leave the bounds of a Box.

    Raises:
        EnvironmentFault: at the first value that breaks the interface, naming the environment,
            the value, the step and the seed; also for an exception of the environment.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._name, self._when, self._step = envs.name_of(env), "when it was made", 0
        self._episode = "an episode that was not begun"
        for name in ("observation_space", "action_space"):
            space = getattr(env, name, None)
            if not isinstance(space, gymnasium.Space):
                self._refuse(f"its {name} is {shown(space)}, where a Gymnasium space is needed")
        if not isinstance(env.metadata, dict):
            self.metadata = {}
        # Spaces are those of the beginning, also for an environment that changes them later.
        self.action_space = env.action_space
        self.observation_space = self._space = env.observation_space
        self._size: tuple[int, ...] | None = None

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Reset, with everything checked."""
        seed = arguments.get("seed")
        self._episode = "an episode without seed" if seed is None else f"seed {seed}"
        self._step, self._when = 0, f"at the reset with {self._episode}"
        found = self._call(self.env.reset, **arguments)
        if not (isinstance(found, tuple) and len(found) == 2):
            self._refuse(f"reset returned {_kind(found)}, where (observation, info) is needed")
        observation, info = found
        return self._read(observation, self._space, _OBSERVATION), self._info(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, with everything checked. The environment may change the action, of which it
        gets a copy."""
        self._step += 1
        self._when = ""
        given = action.copy() if isinstance(action, np.ndarray) else action
        found = self._call(self.env.step, given)
        if not (isinstance(found, tuple) and len(found) == 5):
            self._refuse(
                f"step returned {_kind(found)}, where (observation, reward, terminated, truncated, "
                "info) is needed"
            )
        observation, reward, terminated, truncated, info = found
        return (
            self._read(observation, self._space, _OBSERVATION),
            self._reward(reward),
            self._flag(terminated, "terminated"),
            self._flag(truncated, "truncated"),
            self._info(info),
        )

    def render(self) -> Any:
        """A frame; of render mode rgb_array (height, width, 1, 3 or 4) uint8, all of one size.
        Raises UserError if it cannot be drawn."""
        try:
            frame = self.env.render()
        except (UserError, NotImplementedError, DependencyNotInstalled):
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # drawing needs drivers and windows that may be missing
            why = reason(error)
            hint = "; MUJOCO_GL=egl draws without a display" if "mujoco" in why else ""
            raise UserError(f"{self._name} cannot be drawn here: {why}{hint}") from error
        if self.render_mode != "rgb_array" or frame is None:
            return frame
        return self._frame(frame)

    def _frame(self, frame: Any) -> NDArray[np.uint8]:
        pixels = self._converted(frame, np.dtype(np.uint8), "the frame")
        if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
            self._refuse(
                f"the frame has the shape {pixels.shape}, where (height, width, colours) with 1, 3 "
                "or 4 colours is needed"
            )
        if self._size not in (None, pixels.shape):
            self._refuse(f"the frame has the shape {pixels.shape}, and those before {self._size}")
        self._size = pixels.shape
        return pixels

    def close(self) -> None:
        """Close it; a failure is a warning, as the work is done."""
        try:
            self.env.close()
        except (Exception, SystemExit) as error:
            if sys.stderr is not None:
                text = f"warning: {self._name} could not be closed: {reason(error)}"
                print(text, file=sys.stderr)

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute of the environment; `expert_action` is checked like all values."""
        found = super().get_wrapper_attr(name)
        if name == "expert_action":
            check_expert(found, self.env)
        return partial(self._expert_action, found) if name == "expert_action" else found

    def _expert_action(self, function: Callable[[], Any]) -> Any:
        action = self._call(function)
        self._read(action, self.action_space, "the expert's action")
        return action

    def _call(self, function: Callable[..., Any], *values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except (UserError, DependencyNotInstalled):
            raise
        except (Exception, SystemExit) as error:  # a simulator can raise anything
            raise EnvironmentFault(
                f"{self._name} failed {self._moment()}: {reason(error)}"
            ) from error

    def _moment(self) -> str:
        return self._when or f"at step {self._step} of the episode with {self._episode}"

    def _refuse(self, what: str) -> NoReturn:
        raise EnvironmentFault(f"{self._name}, {self._moment()}: {what}")

    def _read(self, value: Any, space: gymnasium.Space[Any], what: str) -> Any:
        """An observation, or a part of it, with the types of its space."""
        parts: Any
        if isinstance(space, spaces.Dict):
            if not isinstance(value, Mapping):
                self._refuse(f"{what} is {_kind(value)}, where a dict is needed")
            if value.keys() != space.spaces.keys():
                self._refuse(
                    f"{what} holds the keys {_names(value)}, where its space has "
                    f"{_names(space.spaces)}"
                )
            parts = {
                name: self._read(value[name], one, _inner(what, name))
                for name, one in space.spaces.items()
            }
            same = all(parts[name] is value[name] for name in parts)
            return value if same else parts
        if isinstance(space, spaces.Tuple):
            if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
                self._refuse(
                    f"{what} is {_kind(value)}, where a tuple of {len(space.spaces)} parts "
                    "is needed"
                )
            return tuple(
                self._read(one, of, _inner(what, i))
                for i, (one, of) in enumerate(zip(value, space.spaces, strict=True))
            )
        return self._leaf(value, space, what) if isinstance(space, _LEAVES) else value

    def _leaf(self, value: Any, space: Any, what: str) -> Any:
        """The numbers of one part."""
        fits = type(value) is np.ndarray and value.dtype == space.dtype and value.flags.aligned
        array = value if fits else self._converted(value, space.dtype, what)
        if array.shape != space.shape:
            self._refuse(f"{what} has the shape {array.shape}, where its space has {space.shape}")
        if array.dtype.kind == "f":
            if not np.isfinite(array).all():
                odd = array[~np.isfinite(array)]
                self._refuse(
                    f"{what} has {odd.size} of {array.size} numbers that are not finite, the "
                    f"first {odd.flat[0]}"
                )
        elif not isinstance(space, spaces.Box):
            low: Any = 0
            high: Any = 1
            if not isinstance(space, spaces.MultiBinary):
                count = space.n if isinstance(space, spaces.Discrete) else space.nvec
                low, high = space.start, space.start + count - 1
            out = (array < low) | (array > high)
            if out.any():
                wrong = array[out].flat[0]
                self._refuse(f"{what} holds {wrong}, where its space is {space}")
        return value if fits or (array.dtype.kind in "iu" and np.isscalar(value)) else array[()]

    def _converted(self, value: Any, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
        """Numbers in the space's type. Refuses those that do not fit it."""
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):
            array = np.empty((), object)
        if array.dtype.kind not in "biuf":
            self._refuse(f"{what} is {_kind(value)}, where numbers of type {dtype} are needed")
        if array.dtype.kind == "f" and dtype.kind != "f":
            self._refuse(
                f"{what} holds numbers of type {array.dtype}, such as {_example(array)}, "
                f"which do not fit the type {dtype}"
            )
        with np.errstate(all="ignore"):
            cast = array.astype(dtype)
        lost = np.isinf(cast) & np.isfinite(array) if dtype.kind == "f" else cast != array
        if lost.any():
            self._refuse(f"{what} holds {array[lost].flat[0]}, which does not fit the type {dtype}")
        return cast

    def _reward(self, reward: Any) -> float:
        if type(reward) is not float:
            if (found := number(reward)) is None:
                self._refuse(f"the reward is {_kind(reward)}, where one number is needed")
            reward = found
        if not -math.inf < reward < math.inf:
            self._refuse(f"the reward is {reward}, where a finite number is needed")
        return reward

    def _flag(self, value: Any, name: str) -> bool:
        if type(value) is bool:
            return value
        if (found := truth(value)) is None:
            self._refuse(f"{name} is {_kind(value)}, where true or false is needed")
        return found

    def _info(self, info: Any) -> dict[str, Any]:
        if not isinstance(info, dict):
            self._refuse(f"info is {_kind(info)}, where a dict is needed")
        for key in _SUCCESS:
            if key in info:
                value = info[key]
                if type(value) is not bool or key != SUCCESS:
                    if (found := truth(value)) is None:
                        self._refuse(
                            f"info[{key!r}] is {_kind(value)}, where true or false, 0 or 1, or an "
                            "array of one of them is needed"
                        )
                    info = {**info, SUCCESS: found}
                break
        return info


def checked(make: Callable[[], gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    """A checked environment that `make_env` did not create."""
    return Checked(make())


def check_expert(expert: Any, env: gymnasium.Env[Any, Any]) -> None:
    """Raise UserError if the expert is the environment's own, and wrappers change its actions."""
    own = env.unwrapped.action_space
    if getattr(expert, "__self__", None) is env.unwrapped and env.action_space != own:
        raise UserError(
            f"{envs.name_of(env)} has an expert for the actions {own}, and its wrappers take "
            f"{env.action_space}: leave out those that change actions"
        )


def declared(env: gymnasium.Env[Any, Any], name: str) -> Any:
    """An attribute by which an environment or a wrapper declares something; None without it.

    Raises:
        EnvironmentFault: for one that fails when it is read.
    """
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return None
    except UserError:
        raise
    except Exception as error:  # a property can raise anything
        raise EnvironmentFault(
            f"{name} of {envs.name_of(env)} cannot be read: {reason(error)}"
        ) from error


def number(value: Any) -> float | None:
    """One number of any type as a float; None for anything else."""
    try:
        array = np.asarray(None if isinstance(value, list | tuple) else value)
    except (TypeError, ValueError):
        return None
    return float(array) if array.dtype.kind in "biuf" and not array.ndim else None


def truth(value: Any) -> bool | None:
    """A bool, 0 or 1, or an array of one of these, as a bool; None for anything else."""
    if isinstance(value, str | bytes | Mapping) or value is None:
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    if array.dtype.kind not in "biuf" or array.size != 1 or array.item() not in (0, 1):
        return None
    return bool(array.item())


def _inner(what: str, name: Any) -> str:
    """Return the name of a part of a nested observation."""
    return f"observation {name}" if what == _OBSERVATION else f"{what}.{name}"


def _names(keys: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, keys)) or "none"


def _example(array: NDArray[Any]) -> str:
    fractions = array[array != np.floor(array)] if array.size else array
    return str((fractions if fractions.size else array).flat[0]) if array.size else "none"


def _kind(value: Any) -> str:
    """Describe a received value in an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    said = " ".join(shown(value).split())
    return said if value is None else f"{said} ({type(value).__name__})"
