"""The best constant action of an environment: a floor for policies that observe.

Candidates run on scenes that no evaluation uses: all on the first, the best on the others."""

import itertools
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from policies.common.action_parts import ActionParts
from policies.common.scripted import Constant
from training.collect.episode import run_episode
from training.collect.seeds import VALIDATION_SEEDS_FROM

_MOST = 32
"""Largest number of candidates."""
_GRID_DIMENSIONS = 3
_FIRST_SCENES, _SCENES, _KEPT = 1, 4, 4


def best_constant(env: gymnasium.Env[Any, Any], most: int | None = None) -> Any:
    """The candidate with the largest mean reward, as plain numbers for `action_of`; the first of
    equals. None for actions that have no candidates.

    Args:
        env: environment, open; its episodes are run.
        most: candidates that are tried, the first; None: all.

    Raises:
        FloatingPointError, EnvironmentFault: as `run_episode`.
    """
    rewards: dict[int, list[float]] = {}
    plain = candidates(env.action_space)[:most]
    actions = [action_of(env.action_space, one) for one in plain]
    for first, last in ((0, _FIRST_SCENES), (_FIRST_SCENES, _SCENES)):
        best = sorted(rewards or range(len(actions)), key=lambda i: -np.mean(rewards.get(i, 0)))
        played = best[:_KEPT] if rewards else best
        rewards = {
            i: [
                *rewards.get(i, []),
                *(
                    run_episode(env, Constant(actions[i]), VALIDATION_SEEDS_FROM + scene).reward
                    for scene in range(first, last)
                ),
            ]
            for i in sorted(played)
        }
    if not rewards:
        return None
    return plain[max(rewards, key=lambda i: np.mean(rewards[i]))]


def candidates(space: gymnasium.Space[Any]) -> list[Any]:
    """Constant actions to try, as plain numbers: all choices where they are few, else some; of a
    Box the action nearest to 0, and extremes. Empty for other spaces."""
    if isinstance(space, ActionParts):
        whole = space.whole
        return [space.joined(action_of(whole, one)).tolist() for one in candidates(whole)]
    found = list(itertools.islice(_of(space), _MOST + 1))
    if len(found) <= _MOST:
        return found
    drawn = [_plain(one) for one in _draws(space)]
    return list({str(one): one for one in [found[0], *drawn]}.values())[:_MOST]


def action_of(space: gymnasium.Space[Any], plain: Any) -> Any:
    """The action of plain numbers."""
    if isinstance(space, spaces.Tuple):
        return tuple(map(action_of, space.spaces, plain))
    if isinstance(space, spaces.Dict):
        return {key: action_of(one, plain[key]) for key, one in space.spaces.items()}
    return np.array(plain, space.dtype)[()]


def _draws(space: gymnasium.Space[Any]) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    for _ in range(2 * _MOST):
        if isinstance(space, spaces.Box):  # corners
            low, high = _limits(space)
            yield np.where(rng.random(space.shape) < 0.5, low, high)
        else:
            space.seed(int(rng.integers(2**31)))
            yield space.sample()


def _of(space: gymnasium.Space[Any]) -> Iterator[Any]:
    """Candidates of a space, plain; lazily, as there may be very many."""
    if isinstance(space, spaces.Discrete):
        yield from range(int(space.start), int(space.start + space.n))
    elif isinstance(space, spaces.MultiDiscrete):
        choices = (range(int(n)) for n in space.nvec.flatten())
        for one in itertools.product(*choices):
            yield (np.reshape(one, space.shape) + space.start).tolist()
    elif isinstance(space, spaces.MultiBinary):
        for one in itertools.product((0, 1), repeat=int(np.prod(space.shape))):
            yield np.reshape(one, space.shape).tolist()
    elif isinstance(space, spaces.Dict):
        for one in _of(spaces.Tuple(tuple(space.spaces.values()))):
            yield dict(zip(space.spaces, one, strict=True))
    elif isinstance(space, spaces.Tuple):
        if all(next(_of(one), None) is not None for one in space.spaces):
            yield from itertools.product(*(list(itertools.islice(_of(s), 8)) for s in space.spaces))
    elif isinstance(space, spaces.Box):
        yield from _of_box(space)


def _of_box(space: spaces.Box) -> Iterator[Any]:
    low, high = _limits(space)
    rest = np.clip(np.zeros(space.shape), low, high)
    yield rest.tolist()
    size = rest.size
    if size <= _GRID_DIMENSIONS:
        middle = (low + high) / 2
        for one in itertools.product((0, 1, 2), repeat=size):
            index = np.reshape(one, space.shape)
            action = np.choose(index, [low, middle, high])
            if not np.array_equal(action, rest):
                yield action.tolist()
        return
    yield low.tolist()
    yield high.tolist()
    for i, bound in itertools.product(range(size), (low, high)):
        action = rest.copy()
        action.flat[i] = bound.flat[i]
        yield action.tolist()


def _limits(space: spaces.Box) -> tuple[Any, Any]:
    """Bounds; one unit from 0, or from the other bound, where there is none."""
    low, high = space.low.astype(float), space.high.astype(float)
    low_there, high_there = np.isfinite(low), np.isfinite(high)
    below = np.where(high_there, np.minimum(-1.0, high - 1), -1.0)
    low = np.where(low_there, low, below)
    return low, np.where(high_there, high, np.maximum(1.0, low + 1))


def _plain(action: Any) -> Any:
    if isinstance(action, tuple):
        return tuple(map(_plain, action))
    if isinstance(action, dict):
        return {key: _plain(one) for key, one in action.items()}
    return np.asarray(action).tolist()
