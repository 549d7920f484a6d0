"""Left and right exchanged in recorded steps, as an environment's `mirror` says.

A task that is the same in a mirror gives every recorded step a second time (Abdolhosseini et al.
2019, On Learning Symmetric Locomotion: duplicated tuples).
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs import name_of
from policies.common.observation import parts_of
from training.algorithms.exploration import Rollout
from training.io.config import UserError


class Mirroring:
    """Reflects rollouts of an environment.

    Args:
        env: an environment that offers `mirror`, see `envs.geometry.Mirror`. Parts of its
            observation that `observation_keys` leaves out are not reflected.
        judged: which number of the action each column of the samples is.
        choices: how many values each of the first columns has, which are choices.

    Raises:
        UserError: without a mirror, or for one that is not its own inverse, or does not fit the
        spaces.
    """

    def __init__(self, env: Any, judged: tuple[int, ...], choices: tuple[int, ...]) -> None:
        found = env.get_wrapper_attr("mirror") if env.has_wrapper_attr("mirror") else None
        if found is None:
            raise UserError(f"mirror must be false for {name_of(env)}, which declares none")
        shapes = {key: part.shape or () for key, part in parts_of(env.observation_space)}
        left_out = dict(parts_of(env.unwrapped.observation_space)).keys() - shapes
        self._parts = {k: part for k, part in found.observation.items() if k not in left_out}
        self._choices = choices
        for key, reflection in self._parts.items():
            shape = shapes.get(key, ())
            axis = reflection.axis
            size = shape[axis] if -len(shape) <= axis < len(shape) else 0
            _check(env, reflection, size, f"{key!r} of the observation")
        _check(env, found.action, len(judged), "the action")
        places = {number: column for column, number in enumerate(judged)}
        order, sign = found.action.order, found.action.sign or (1.0,) * len(judged)
        self._columns = [places[order[number]] for number in judged]
        self._sign = np.array([sign[number] for number in judged], np.float32)
        for column, partner in enumerate(self._columns):
            if column < len(choices) and choices[column] != dict(enumerate(choices)).get(partner):
                raise UserError(
                    f"mirror of {name_of(env)} exchanges numbers {judged[column]} and "
                    f"{judged[partner]} of the action, which must have the same bins"
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


def _check(env: Any, reflection: Any, size: int, what: str) -> None:
    order, sign = np.array(reflection.order), np.array(reflection.sign or (1.0,) * size)
    fits = sorted(order.tolist()) == list(range(size)) and sign.shape == (size,)
    if not fits or (order[order] != range(size)).any() or not (sign * sign[order] == 1).all():
        raise UserError(
            f"mirror of {name_of(env)} must give {what}, which has {size} numbers along its axis, "
            "back when it is applied twice"
        )
