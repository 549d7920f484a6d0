"""Replacements of a policy's images, to test whether it needs them.

Interventions, each on one image of the observation or on all of them; vectors are not changed:

* `swap`: the image of another episode of the same policy at the same step; a shorter episode
repeats.
* `freeze`: the episode's own first image, at every step.
* `blank`: every pixel has one value, the mean over that other episode, a channel (and a camera, and
  a frame of a stack) each.
* `shuffle`: the present image, its pixels permuted: one random permutation an episode, the same for
  all channels, cameras, frames and steps.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from policies.common.observation import flat, is_table, layout_of, parts_of
from training.collect.episode import Policy

Images = dict[str, NDArray[Any]]
"""Images of one observation by the names of its parts."""
Substitute = Callable[[int, Images], Images]
"""Images that replace those of a step."""


def image_keys(space: gymnasium.Space[Any], tables: bool = False) -> list[str]:
    """The parts of an observation space that are images: a Box of 2 to 4 dimensions each, without
    or with tables of numbers (`policies.common.observation.is_table`)."""
    return [
        key
        for key, part in parts_of(space)
        if isinstance(part, spaces.Box)
        and 2 <= len(part.shape) <= 4
        and (tables or not is_table(key, part))
    ]


class Altered:
    """Wraps a policy, replaces its images and records its actions.

    Args:
        policy: what acts.
        keys: keys of the images that are replaced.
        shown: returns the replacements; None: images are unchanged.

    Attributes:
        actions: actions of the episode, one per step.
        differed: steps at which a replacement differed from the original image.
    """

    def __init__(self, policy: Policy, keys: Collection[str], shown: Substitute | None) -> None:
        self._policy, self._keys, self._shown = policy, keys, shown
        self.actions: list[NDArray[Any]] = []
        self.differed = 0

    def reset(self) -> None:
        """Begin an episode."""
        self._policy.reset()
        self.actions, self.differed = [], 0

    def act(self, observation: Any) -> Any:
        """The policy's action for the modified observation."""
        if self._shown is not None:
            there = images_of(observation, self._keys)
            shown = self._shown(len(self.actions), there)
            self.differed += any(not _alike(shown[key], there[key]) for key in self._keys)
            observation = _replaced(observation, shown)
        action = self._policy.act(observation)
        self.actions.append(np.array(action))
        return action


def recorder(keys: Collection[str], into: list[Images]) -> Callable[..., None]:
    """An `on_step` that records the observed images."""

    def record(env: Any, observation: Any, action: Any, reward: float, policy: Any) -> None:
        into.append({k: part.copy() for k, part in images_of(observation, keys).items()})

    return record


def substitute(kind: str, lent: Sequence[Images], seed: int) -> Substitute:
    """The replacement images of an intervention in an episode.

    Args:
        kind: one of INTERVENTIONS.
        lent: replacement images, of another episode, one entry per step, at least one. seed: seed
        of the pixel permutation.
    """
    if kind == "swap":
        return lambda step, there: {key: lent[step % len(lent)][key] for key in there}
    if kind == "freeze":
        first: Images = {}
        return lambda step, there: {
            key: first.setdefault(key, image.copy()) for key, image in there.items()
        }
    if kind == "blank":
        means = {key: _blank([images[key] for images in lent]) for key in lent[0]}
        return lambda step, there: {key: means[key] for key in there}
    assert kind == "shuffle", kind
    orders = {key: _order(image, seed) for key, image in lent[0].items()}
    return lambda step, there: {key: _permuted(there[key], orders[key]) for key in there}


def images_of(observation: Any, keys: Collection[str]) -> Images:
    """Some parts of an observation as arrays."""
    parts = flat(observation)
    return {key: np.asarray(parts[key]) for key in keys}


def _alike(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _replaced(observation: Any, shown: Mapping[str, NDArray[Any]], key: str = "") -> Any:
    """The observation with replaced images, copied because a policy may modify its input."""
    if isinstance(observation, Mapping):
        return {
            name: _replaced(part, shown, f"{key}.{name}" if key else str(name))
            for name, part in observation.items()
        }
    if type(observation) is tuple:
        return tuple(
            _replaced(part, shown, f"{key}.{i}" if key else str(i))
            for i, part in enumerate(observation)
        )
    name = key or next(iter(flat(observation)))
    return shown[name].copy() if name in shown else observation


def _pixel_axes(shape: tuple[int, ...]) -> tuple[int, int]:
    layout = layout_of(shape)
    return layout.index("H"), layout.index("W")


def _blank(images: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """A constant image: the mean of the finite values over pixels and images."""
    axes = _pixel_axes(images[0].shape)
    total, count = 0.0, 0
    for image in images:
        numbers = image.astype(np.float64)
        finite = np.isfinite(numbers)
        total = total + np.where(finite, numbers, 0).sum(axes, keepdims=True)
        count = count + finite.sum(axes, keepdims=True)
    mean = np.broadcast_to(total / np.maximum(count, 1), images[0].shape)
    kind = images[0].dtype
    return (mean if kind.kind == "f" else np.rint(mean)).astype(kind)


def _order(image: NDArray[Any], seed: int) -> NDArray[np.int64]:
    rows, columns = (image.shape[axis] for axis in _pixel_axes(image.shape))
    return np.random.default_rng(seed).permutation(rows * columns)


def _permuted(image: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """The image with permuted pixels."""
    moved = np.moveaxis(image, _pixel_axes(image.shape), (-2, -1))
    mixed = moved.reshape(*moved.shape[:-2], -1)[..., order].reshape(moved.shape)
    return np.moveaxis(mixed, (-2, -1), _pixel_axes(image.shape))
