"""The Vision-Performer policy (Hybrid Random Features, section 4.4 and appendix K.2).

A colour image and a pose are encoded once; a head gives candidate actions energies, and a search
finds a low one (implicit behavioural cloning, Florence et al. 2021), or regresses the action.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attention.components import component
from attention.construction import Rebuilt
from policies.common.compiled import CompiledDecision
from policies.common.geometry import Geometry
from policies.common.normaliser import RunningNormaliser, RunningStatistics
from policies.vision_performer.action_search import (
    Given,
    Kind,
    Noise,
    Noted,
    autoregressive,
    derivative_free,
    drawn,
    langevin,
    stratified,
    uniform,
)
from policies.vision_performer.config import VisionPolicyConfig
from policies.vision_performer.encoder import VisionPerformer
from policies.vision_performer.energy import AutoregressiveEnergy, JointEnergy, Regression

_MARGIN = 0.05
"""Normalised actions reach beyond the data by this share of its range, on either side."""
_LEAST_WIDTH = 0.02
"""Width of a dimension without spread in the data, as a share of the action space's."""


class VisionPerformerPolicy(Rebuilt):
    """Encodes observations by attention and acts by minimising an energy.

    Args:
        config: its settings.
        observation_space: a Dict with `rgb` (height, width, 3) uint8 and `pose` (k,).
        action_space: a bounded Box of shape (n,).
        geometry: not used.

    Raises:
        ValueError: if the spaces are unsupported or patches do not divide the image.
    """

    action_low: Tensor
    action_high: Tensor
    space_low: Tensor
    space_high: Tensor

    def __init__(
        self,
        config: VisionPolicyConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.image_shape, pose = observed(observation_space)
        box = _bounded(action_space)
        size = box.shape[0]
        if config.two_arms and (pose % 2 or size % 2):
            raise ValueError(
                f"two_arms must be false where pose and action are not two halves, got {pose} and "
                f"{size} numbers"
            )
        generator = torch.Generator().manual_seed(config.init_seed)
        self.normaliser = RunningNormaliser(pose)
        self.encoder = VisionPerformer(*self.image_shape[:2], pose, config, generator)
        sizes = (config.context_dim, size, config.hidden)
        negatives = (config.negatives, config.action_noise)
        self.head: AutoregressiveEnergy | JointEnergy | Regression
        if config.head == "autoregressive":
            self.head = AutoregressiveEnergy(*sizes, *negatives, generator)
        elif config.head == "joint":
            chain = config.langevin_training_steps if config.langevin_negatives else 0
            self.head = JointEnergy(*sizes, *negatives, chain, generator)
        else:
            self.head = Regression(*sizes, generator)
        low, high = (torch.as_tensor(v).float() for v in (box.low, box.high))
        self.register_buffer("space_low", low, persistent=False)
        self.register_buffer("space_high", high, persistent=False)
        self.register_buffer("action_low", low.clone())
        self.register_buffer("action_high", high.clone())
        self._generator = torch.Generator()
        self._plan: list[tuple[Kind, int]] | None = None  # the numbers that a search draws
        self._compiled = CompiledDecision()
        self.reset()

    def reset(self) -> None:
        """Start an episode: the search's noise restarts from `inference_seed`."""
        self._generator.manual_seed(self.config.inference_seed)

    @torch.no_grad()
    def set_statistics(self, pose: ArrayLike | Tensor, actions: ArrayLike | Tensor) -> None:
        """Normalise by the data: pose (N, k) to mean 0 and variance 1, actions (N, n) to [-1, 1].

        The actions' range is widened by 5 % on either side, and a dimension without spread to 2 %
        of the action space.

        Raises:
            ValueError: for other shapes, no data, or numbers that are not finite.
        """
        poses = _data("pose", pose, len(self.normaliser.mean))
        given = _data("actions", actions, len(self.action_low))
        if self.config.two_arms:
            poses, given = (
                to_mean_and_difference(torch.from_numpy(v)).numpy() for v in (poses, given)
            )
        empty = RunningStatistics.empty(poses.shape[1])
        self.normaliser.statistics = empty.update(poses)
        low, high = (torch.from_numpy(v).to(self.action_low) for v in (given.min(0), given.max(0)))
        least = _LEAST_WIDTH * (self.space_high - self.space_low)
        half = torch.maximum((0.5 + _MARGIN) * (high - low), least / 2)
        middle = (low + high) / 2
        self.action_low.copy_(middle - half)
        self.action_high.copy_(middle + half)

    def normalised(self, actions: Tensor) -> Tensor:
        """Actions (..., n) in units of the space -> in units of the head, [-1, 1] over the data."""
        if self.config.two_arms:
            actions = to_mean_and_difference(actions)
        width = self.action_high - self.action_low
        return (actions - self.action_low) * (2 / width) - 1

    def encode(self, rgb: Tensor, pose: Tensor) -> Tensor:
        """(batch, height, width, 3) uint8 and (batch, k) -> context (batch, context_dim)."""
        context: Tensor = self.encoder(rgb, self._pose(pose))
        return context

    def forward(
        self, rgb: Tensor, pose: Tensor, actions: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Compute the loss, so that wrappers such as DistributedDataParallel can be trained."""
        return self.loss(rgb, pose, actions, generator)

    def loss(
        self, rgb: Tensor, pose: Tensor, actions: Tensor, generator: torch.Generator
    ) -> Tensor:
        """The head's loss, a scalar.

        Args:
            rgb: (batch, height, width, 3) uint8.
            pose: (batch, k).
            actions: demonstrated actions (batch, n), in units of the action space.
            generator: source of the negatives, on any device.

        Raises:
            ValueError: for images that the policy was not built for.
        """
        self._check(rgb)
        context = self.encode(rgb, pose)
        with component("controller"):
            return self.head.loss(context, self.normalised(actions), generator)

    def fit_attention(self, rgb: Tensor, pose: Tensor) -> None:
        """Fit the feature maps to this policy's own queries and keys of some observations.

        Nothing happens to maps without data-dependent parameters.

        Args:
            rgb: (batch, height, width, 3) uint8.
            pose: (batch, k).

        Raises:
            ValueError: for images that the policy was not built for, and for tokens that a map
                cannot be fitted to, such as numbers not finite.
        """
        self._check(rgb)
        self.encoder.fit(rgb, self._pose(pose))

    def act(self, observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """The action (n,), within the action space, for one observation."""
        rgb, pose = self._batch(observation)
        # Tensors of inference mode could not take part in a Langevin chain's gradients.
        with torch.no_grad():
            action = self.decided(rgb, pose, self._generator)[0]
        chosen: NDArray[np.float32] = action.float().cpu().numpy()
        return chosen

    def decided(self, rgb: Tensor, pose: Tensor, noise: Noise) -> Tensor:
        """The action (1, n) for a batch of one, (1, height, width, 3) and (1, k), with the noise of
        the search from a generator or a tensor."""
        context = self.encode(rgb, pose)
        with component("controller"):
            normal = self._found(context, noise)
            width = self.action_high - self.action_low
            action = self.action_low + (normal + 1) * (width / 2)
            if self.config.two_arms:
                action = from_mean_and_difference(action)
            return action.clamp(self.space_low, self.space_high)

    @torch.inference_mode()
    def attention_map(self, observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Attention that each pixel's patch receives in the last block, (height, width).

        Shares of the total over patches, from all tokens and heads; a patch's pixels all have the
        patch's share.
        """
        rgb, pose = self._batch(observation)
        rows, columns = self.encoder.patches.grid
        found = self.encoder.received(rows * columns, rgb, self._pose(pose))
        shares = found.view(rows, columns).float().cpu().numpy()
        height, width, _ = self.image_shape
        pixels: NDArray[np.float32] = shares.repeat(height // rows, 0).repeat(width // columns, 1)
        return pixels

    @torch.no_grad()
    def diagnose(self, rgb: Tensor, pose: Tensor) -> dict[str, Any]:
        """Diagnostics, as plain data, for a batch whose loss is not finite.

        `parameters`: names of those with numbers that are not finite; `pose`: how many numbers of
        the pose are not; `context`: the same for the encoder's output; `attention`: a list with an
        entry for each block and head, see `policies.vision_performer.encoder.head_diagnoses`.
        """
        normal = self._pose(pose)
        return {
            "parameters": [n for n, p in self.named_parameters() if not bool(p.isfinite().all())],
            "pose": int((~pose.isfinite()).sum()),
            "context": int((~self.encoder(rgb, normal).isfinite()).sum()),
            "attention": self.encoder.diagnose(rgb, normal),
        }

    def _found(self, context: Tensor, noise: Noise) -> Tensor:
        """As `_search`, traced after a while when a generator is given; a trace takes the random
        numbers instead and has no gradients.
        """
        chain = self.config.head == "joint" and self.config.optimiser == "langevin"
        if chain or torch.is_grad_enabled() or not isinstance(noise, torch.Generator):
            return self._search(context, noise)
        if self._plan is None:
            noted = Noted(noise)
            found = self._search(context, noted)
            self._plan = noted.plan
            return found
        seen = {"context": context, "noise": drawn(self._plan, noise)}
        return self._compiled(self.head, self._search_again, seen)[0]

    def _search_again(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (self._search(seen["context"], Given(seen["noise"])),)

    def _search(self, context: Tensor, generator: Noise) -> Tensor:
        """The normalised action (1, n) that the search finds for a context (1, c)."""
        config, head = self.config, self.head
        if isinstance(head, Regression):
            return head(context)
        part = head.context_part(context)
        if isinstance(head, AutoregressiveEnergy):
            return autoregressive(
                lambda i, before, values: head.energy(i, part, before, values),
                head.size,
                lambda: stratified((1, config.samples), generator, context),
                config.rounds,
                config.noise,
                config.temperature,
                generator,
            )
        start = uniform((1, config.samples, head.size), generator, context)
        if config.optimiser == "derivative_free":
            return derivative_free(
                lambda a: head.energy(part, a), start, config.rounds, config.noise, generator
            )
        return langevin(
            lambda a: head.energy(part, a),
            start,
            config.langevin_steps,
            config.langevin_step_start,
            config.langevin_step_end,
            generator,
        )

    def _pose(self, pose: Tensor) -> Tensor:
        with component("tokens"):
            if self.config.two_arms:
                pose = to_mean_and_difference(pose)
            normal: Tensor = self.normaliser(pose)
            return normal

    def _batch(self, observation: dict[str, NDArray[Any]]) -> tuple[Tensor, Tensor]:
        """One observation as a batch, on the policy's device and in its dtype."""
        rgb = torch.tensor(np.asarray(observation["rgb"])).unsqueeze(0)
        self._check(rgb)
        like = self.action_low
        pose = torch.tensor(np.asarray(observation["pose"]), dtype=like.dtype, device=like.device)
        return rgb.to(like.device), pose.unsqueeze(0)

    def _check(self, rgb: Tensor) -> None:
        if rgb.dtype != torch.uint8 or rgb.ndim != 4 or rgb.shape[1:] != self.image_shape:
            raise ValueError(
                f"rgb must be uint8 images of shape {self.image_shape}, got {rgb.dtype} of shape "
                f"{tuple(rgb.shape[1:])}"
            )


def fits_implicit(observation_space: Any, action_space: Any) -> bool:
    """Whether spaces are those of a `VisionPerformerPolicy`."""
    try:
        observed(observation_space)
        _bounded(action_space)
    except ValueError:
        return False
    return True


def to_mean_and_difference(both: Tensor) -> Tensor:
    """Two halves (..., 2k), left and right -> their mean, then half of left minus right."""
    left, right = both.chunk(2, -1)
    return torch.cat((left + right, left - right), -1) / 2


def from_mean_and_difference(parts: Tensor) -> Tensor:
    """The inverse of `to_mean_and_difference`."""
    mean, half = parts.chunk(2, -1)
    return torch.cat((mean + half, mean - half), -1)


def observed(space: Any) -> tuple[tuple[int, int, int], int]:
    """Shape of the image and length of the pose; raises ValueError for another observation."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    rgb, pose = parts.get("rgb"), parts.get("pose")
    image: tuple[int, ...] = getattr(rgb, "shape", None) or ()
    if len(image) != 3 or image[2] != 3 or getattr(rgb, "dtype", None) != np.uint8:
        raise ValueError(
            "observation_space must be a Dict whose 'rgb' is (height, width, 3) of uint8 (the form "
            f"pooled takes any), got {space}"
        )
    vector: tuple[int, ...] = getattr(pose, "shape", None) or ()
    if len(vector) != 1:
        raise ValueError(f"observation_space must be a Dict whose 'pose' is (k,), got {space}")
    height, width, colours = image
    return (height, width, colours), vector[0]


def _bounded(space: Any) -> spaces.Box:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
        raise ValueError(f"action_space must be a bounded Box of shape (n,), got {space}")
    return space


def _data(name: str, given: ArrayLike | Tensor, size: int) -> NDArray[np.float64]:
    """(N, size) as float64; raises ValueError for anything else."""
    array = given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.ndim != 2 or array.shape[1] != size or not len(array):
        raise ValueError(f"{name} must have shape (N, {size}), N above 0, got {array.shape}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(array)).sum())} others")
    return array
