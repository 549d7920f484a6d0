"""Left and right exchanged in recorded steps, as an environment's `mirror` says.

A task that is the same in a mirror gives every recorded step a second time (Abdolhosseini et al.
2019, On Learning Symmetric Locomotion: duplicated tuples).
"""

import dataclasses
import math
import operator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs import name_of
from envs.geometry import Reflection
from policies.common.observation import parts_of
from training.algorithms.exploration import Rollout
from training.collect.checked import declared
from training.command.errors import shown
from training.io.config import UserError


class Mirroring:
    """Reflects rollouts of an environment.

    Args:
        env: an environment that offers `mirror`, see `envs.geometry.Mirror`. Parts of its
            observation that `observation_keys` leaves out are not reflected.
        judged: which number of the action each column of the samples is.
        choices: how many values each of the first columns has, which are choices.

    Raises:
        UserError: without a mirror, or for one of another form, that is not its own inverse, or
        that does not fit the spaces.
    """

    def __init__(self, env: Any, judged: tuple[int, ...], choices: tuple[int, ...]) -> None:
        found, name = declared(env, "mirror"), name_of(env)
        if found is None:
            raise UserError(f"mirror must be false for {name}, which declares none")
        try:
            given, action = dict(found.observation), found.action
        except (AttributeError, TypeError, ValueError):
            raise UserError(
                f"mirror of {name} must be an envs.geometry.Mirror, got {shown(found)}"
            ) from None
        parts = dict(parts_of(env.observation_space))
        own = dict(parts_of(env.unwrapped.observation_space))
        left_out = own.keys() - parts if parts.keys() <= own.keys() else ()
        self._parts, self._choices = {}, choices
        for key in [key for key in given if key not in left_out]:
            if key not in parts:
                raise UserError(
                    f"mirror of {name} must name parts of the observation, which are "
                    f"{', '.join(parts)}, got {key}"
                )
            part, what = parts[key], f"{key!r} of the observation"
            self._parts[key] = _read(env, given[key], part.shape or (), what)
            signed = isinstance(part, spaces.Box) and np.dtype(part.dtype).kind != "u"
            if -1.0 in self._parts[key].sign and not signed:
                raise UserError(
                    f"mirror of {name} must have signs of 1 for {what}, which holds no negative "
                    f"numbers, got -1"
                )
        (order, sign), widths = _of_action(env, action), _widths(env.action_space)
        places = {number: column for column, number in enumerate(judged)}
        self._columns = [places.get(order[number], -1) for number in judged]
        self._sign = np.array([sign[number] for number in judged], np.float32)
        for column, partner in enumerate(self._columns):
            number = judged[column]
            exchanges = f"mirror of {name} exchanges numbers {number} and {order[number]}"
            if partner < 0:
                raise UserError(f"{exchanges} of the action, and the policy gives only the first")
            if column < len(choices) and choices[column] != dict(enumerate(choices)).get(partner):
                raise UserError(f"{exchanges} of the action, which must have the same bins")
            wide, other = widths[number], widths[order[number]]
            if not np.isclose(wide, other):
                raise UserError(
                    f"{exchanges} of the action, whose ranges must be equally wide, got {wide:g} "
                    f"and {other:g}"
                )

    def __call__(self, rollout: Rollout) -> Rollout:
        """The same episode with left and right exchanged; rewards stay those of its numbers."""
        observations = dict(rollout.observations)
        for key, reflection in self._parts.items():
            observations[key] = reflected(observations[key], reflection)
        samples = rollout.samples[:, self._columns]
        for column, count in enumerate(self._choices):
            if self._sign[column] < 0:
                samples[:, column] = count - 1 - samples[:, column]
        rest = slice(len(self._choices), None)
        samples[:, rest] *= self._sign[rest]
        rewards = rollout.rewards
        if rewards.shape[1] > 1:
            rewards = rewards[:, self._columns]
        return dataclasses.replace(
            rollout, observations=observations, samples=samples, rewards=rewards
        )


def reflected(values: NDArray[Any], reflection: Any) -> NDArray[Any]:
    """Values (steps, ...), each reflected."""
    axis = reflection.axis if reflection.axis < 0 else reflection.axis + 1
    found = values.take(reflection.order, axis)
    if reflection.sign:
        shape = [1] * values.ndim
        shape[axis] = len(reflection.sign)
        found = found * np.array(reflection.sign, values.dtype).reshape(shape)
    return found


def _read(
    env: Any, reflection: Any, shape: tuple[int, ...], what: str, in_a_row: bool = False
) -> Reflection:
    """The reflection of an array of this shape, checked; or also of all its numbers in a row."""
    name = f"mirror of {name_of(env)}"
    try:
        order = tuple(map(operator.index, reflection.order))
        sign, axis = tuple(map(float, reflection.sign)), operator.index(reflection.axis)
    except (AttributeError, TypeError, ValueError):
        raise UserError(
            f"{name} must have an envs.geometry.Reflection of whole numbers, signs and an axis for "
            f"{what}, got {shown(reflection)}"
        ) from None
    if in_a_row and len(order) == math.prod(shape):
        shape, axis = (len(order),), -1
    size = shape[axis] if -len(shape) <= axis < len(shape) else 0
    each = sign or (1.0,) * size
    inverse = sorted(order) == list(range(size)) and len(each) == size
    if not inverse or any(order[o] != i or each[o] * each[i] != 1 for i, o in enumerate(order)):
        raise UserError(
            f"{name} must give {what}, which has {size} numbers along its axis {axis}, back when "
            f"it is applied twice, got {shown(reflection)}"
        )
    if {*each} - {1.0, -1.0}:
        raise UserError(f"{name} must have signs of 1 or -1 for {what}, got {list(sign)}")
    return Reflection(order, sign, axis)


def _of_action(env: Any, reflection: Any) -> tuple[list[int], list[float]]:
    """Which number of the action each comes from, and its sign, all numbers in a row."""
    shape = env.action_space.shape or (1,)
    read, size = _read(env, reflection, shape, "the action", in_a_row=True), math.prod(shape)
    shape = (size,) if len(read.order) == size else shape
    order = reflected(np.arange(size).reshape(1, *shape), dataclasses.replace(read, sign=()))
    return order.ravel().tolist(), reflected(np.ones((1, *shape)), read).ravel().tolist()


def _widths(space: Any) -> NDArray[np.float64]:
    """Widths of the ranges of an action's numbers; those of choices are alike."""
    if not isinstance(space, spaces.Box):
        return np.ones(math.prod(space.shape))
    with np.errstate(over="ignore"):
        return (space.high.astype(np.float64) - space.low).ravel()
