"""The frames of a video.

Usually the outside view that the environment draws, with the images that the policy sees inset and
what its attention drops in red. If the environment's description names an image, or a policy has a
map of its attention on its only image, a frame shows that image with and without the attention. An
environment without rendering is shown by its observation images alone."""

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from envs import name_of, task_of
from policies.common.geometry import geometry_of, published
from policies.common.observation import ImageInput, Observations, flat
from policies.common.policy_inputs import PolicyInputs
from training.collect.episode import Policy
from training.io.config import UserError
from training.video.overlays import Inset, compose, side_by_side, with_memory

_CANVAS = (480, 640, 3)
_CONTRAST = 1.3  # of appearances, whose numbers are about 1 / sqrt(their count)
_ALONE_PX = (300, 400)  # for an image if there is no outside view


class Scene:
    """Renders frames of an open environment.

    Args:
        env: an environment with render mode rgb_array, if it has one.

    Raises:
        UserError: if it cannot render and its observations hold no images.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env, unwrapped = env, env.unwrapped
        self._name, self._task = name_of(env), task_of(env)
        self._geometry = geometry_of(env)
        self._draws = unwrapped.render_mode == "rgb_array"
        if not self._draws and not self._images(None):
            raise UserError(
                f"{self._name} draws no rgb_array and its observations hold no images, so there is "
                "nothing to record"
            )

    def frame(
        self, observation: Any, policy: Policy, caption: str, outside: Any = None
    ) -> NDArray[np.uint8]:
        """A frame (height, width, 3) with the policy's images of an observation, and its memory
        below. `outside` is the outside view, by default that of now."""
        frame = self._frame(observation, policy, caption, outside)
        ask = getattr(policy, "remembered", None)
        ground = ask(observation) if callable(ask) else None
        return frame if ground is None else with_memory(frame, ground)

    def _frame(
        self, observation: Any, policy: Policy, caption: str, outside: Any
    ) -> NDArray[np.uint8]:
        parts, images = flat(observation), self._images(policy)
        key = self._key(policy, images)
        attention = getattr(policy, "attention_map", None)
        if key is not None and attention is not None:
            # The image that the policy acted on: attention belongs to it, not to the next one.
            return side_by_side(np.asarray(parts[key]), np.asarray(attention(observation)), caption)
        if key is not None:
            drawn = self._outside(outside) if self._draws else np.asarray(parts[key])
            return side_by_side(drawn, None, caption)
        insets = self._seen(observation, policy, images)
        if self._draws:
            return compose(self._outside(outside), insets, caption)
        return compose(np.zeros(_CANVAS, np.uint8), insets, caption, _ALONE_PX)

    def _key(self, policy: Policy, images: list[ImageInput]) -> str | None:
        """Key of the image that is shown as the frame; None if there is none."""
        if self._task is not None:
            return self._task.camera_image
        alone = len(images) == 1 and images[0].layout == "HWC" and images[0].channels == 3
        return images[0].key if alone and hasattr(policy, "attention_map") else None

    def _images(self, policy: Policy | None) -> list[ImageInput]:
        """The images of the observation as the policy reads them."""
        inputs: Any = getattr(policy, "inputs", None)
        if isinstance(inputs, PolicyInputs):
            return inputs.observations.image_parts
        spaces = self._env.observation_space, self._env.action_space
        geometry = published(*spaces) if self._geometry is None else self._geometry
        try:
            return Observations(spaces[0], None, geometry).image_parts
        except ValueError:  # for spaces that no built-in policy supports
            return []

    def _outside(self, drawn: Any) -> NDArray[np.uint8]:
        try:
            drawn = self._env.render() if drawn is None else drawn
        except NotImplementedError:
            drawn = None
        if drawn is None or np.ndim(drawn) != 3:
            raise UserError(f"environment {self._name} draws no rgb_array")
        return np.asarray(drawn, np.uint8)

    def _seen(self, observation: Any, policy: Policy, images: list[ImageInput]) -> list[Inset]:
        """Every image as the policy saw it: repaired, with what its attention drops."""
        repair = getattr(policy, "repair", None)
        parts = flat(observation) if repair is None else repair.seen(observation)
        masks = getattr(policy, "attention_masks", None)
        kept = {} if masks is None or not images else masks(observation)
        return [one for seen in images for one in self._insets(seen, parts, kept)]

    def _insets(self, seen: ImageInput, parts: Any, kept: dict[str, Any]) -> list[Inset]:
        """The insets of a part of the observation: each image, and the last frame of a stack."""
        values = torch.as_tensor(np.array(parts[seen.key]))[None]
        images = seen.read(values)[0].numpy()  # (count, channels, height, width)
        masks = kept.get(seen.key)
        masks = None if masks is None else np.asarray(masks, bool).reshape(-1, *images.shape[2:])
        names = () if self._geometry is None else self._geometry.cameras.get(seen.key, ())
        if len(names) != len(images):
            several = len(images) > 1
            names = [f"{seen.key} {i + 1}" if several else seen.key for i in range(len(images))]
        return [
            Inset(name, self._image(image, seen), None if masks is None else masks[i])
            for i, (name, image) in enumerate(zip(names, images, strict=True))
        ]

    def _image(self, image: NDArray[Any], seen: ImageInput) -> NDArray[np.uint8]:
        """(channels, height, width) as colours, or the last channel in grey; an appearance of many
        numbers as three of them."""
        if seen.key in getattr(self._geometry, "appearances", {}).values():
            return _appearance(image, seen.high == 255)
        black, white = (0.0, 255.0) if seen.high == 255 else (seen.low, seen.high)
        if self._task is not None and self._task.shown is not None:
            white, black = self._task.shown
        elif not seen.is_bounded:
            black, white = float(np.nanmin(image)), float(np.nanmax(image))
        colour = image[-3:] if len(image) in (3, 6, 9, 12) else np.repeat(image[-1:], 3, 0)
        share = (colour.astype(np.float64) - black) / ((white - black) or 1.0)
        bright = 255.0 * np.clip(np.nan_to_num(share), 0.0, 1.0)
        return bright.transpose(1, 2, 0).astype(np.uint8)


def _appearance(image: NDArray[Any], is_picture: bool) -> NDArray[np.uint8]:
    """Appearances (numbers, height, width) -> (height, width, 3), black where there are none."""
    if is_picture:
        return image.transpose(1, 2, 0).astype(np.uint8)
    numbers = math.sqrt(len(image)) * np.resize(image, (3, *image.shape[1:]))
    colours = 1 / (1 + np.exp(-_CONTRAST * numbers))
    return (255 * colours * image.any(0)).transpose(1, 2, 0).astype(np.uint8)
