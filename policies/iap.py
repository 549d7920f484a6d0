"""The Implicit Attention Policy (Hybrid Random Features, section 4.4 and appendix K.1).

Depth images become tokens; attention scores them in O(L) and keeps the best; a small controller
turns what is left, with proprioception, into footholds.
"""

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from attention.components import component
from attention.construction import Rebuilt
from policies.config import PolicyConfig
from policies.dense import DenseController
from policies.footholds import ACTION_SIZE, FootholdVotes
from policies.normaliser import RunningNormaliser
from policies.selection import LearnedSelection, RandomSelection
from policies.tokens import PatchTokens
from policies.vote import VoteController

__all__ = ["ImplicitAttentionPolicy"]


class ImplicitAttentionPolicy(Rebuilt):
    """Selects tokens of depth images by attention and places feet by what it kept.

    Args:
        config: its settings.
        observation_space: a Dict with `depth` (cameras, height, width) and `proprio` (k,).
        action_space: a Box of shape (9,), as SteppingStones-v0 has it.

    Raises:
        ValueError: if the spaces are others.
    """

    def __init__(
        self, config: PolicyConfig, observation_space: spaces.Dict, action_space: spaces.Box
    ) -> None:
        super().__init__()
        self.config = config
        cameras, height, width = _shape(observation_space, "depth", 3)
        (proprio,) = _shape(observation_space, "proprio", 1)
        if action_space.shape != (ACTION_SIZE,):
            raise ValueError(
                f"action_space must have shape ({ACTION_SIZE},), got {action_space.shape}"
            )
        generator = torch.Generator().manual_seed(config.init_seed)
        self.normaliser = RunningNormaliser(proprio)
        self.tokens = PatchTokens(cameras, height, width, config.patch, config.standardise)
        num_tokens, num_features = self.tokens.count, self.tokens.num_features
        self.selection: LearnedSelection | RandomSelection | None = None
        if config.selection == "learned" and num_tokens < 2:
            raise ValueError(
                f"selection must be random or all where the patch {list(config.patch)} makes all "
                "that is seen one token, got learned"
            )
        if config.selection == "learned":
            self.selection = LearnedSelection(num_features, num_tokens, config, generator)
        elif config.selection == "random":
            self.selection = RandomSelection(num_tokens, config, generator)
        self.controller: VoteController | DenseController
        if config.controller == "vote":
            self.controller = VoteController(cameras, height, width, self.normaliser)
        else:
            handed = num_tokens * self.tokens.size
            if config.variant == "rank" and isinstance(self.selection, LearnedSelection):
                handed = self.selection.kept * num_features
            self.controller = DenseController(
                handed, proprio, config.hidden, self.normaliser, generator
            )

    def reset(self) -> None:
        """Begin an episode; the policy carries nothing from step to step."""

    def forward(self, depth_m: Tensor, proprio: Tensor) -> FootholdVotes:
        """Depth (batch, cameras, height, width), metres, and proprioception (batch, k) -> votes."""
        with component("tokens"):
            values = self.tokens(depth_m)
            tokens = self.tokens.with_places(values) if self.selection is not None else None
        config = self.config
        if tokens is None or self.selection is None:
            attended = values
        elif config.variant == "trans":
            assert isinstance(self.selection, LearnedSelection)
            query, key = self.selection.project(tokens)
            with component("score"):
                attended = self.selection.features.attend(query, key, values)
        elif config.variant == "rank" and isinstance(self.controller, DenseController):
            assert isinstance(self.selection, LearnedSelection)
            attended = self.selection.ranked(tokens)
        else:
            gate = self.selection(tokens)
            with component("score"):
                attended = values * gate.unsqueeze(-1)
        with component("controller"):
            if isinstance(self.controller, VoteController):
                attended = self.tokens.image(attended)
            votes: FootholdVotes = self.controller(attended, proprio)
            return votes

    @torch.no_grad()
    def fit_attention(self, depth_m: Tensor) -> None:
        """Fit the feature map to this policy's own queries and keys of some observations.

        Nothing happens to maps without data-dependent parameters, or without learned selection.

        Args:
            depth_m: (batch, cameras, height, width), metres.

        Raises:
            ValueError: for tokens that the map cannot be fitted to, such as numbers not finite.
        """
        if isinstance(self.selection, LearnedSelection):
            self.selection.fit(self.tokens.with_places(self.tokens(depth_m)))

    @torch.inference_mode()
    def act(self, observation: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """The action (9,) for one observation of SteppingStones-v0."""
        votes = self(*self._batch(observation))
        with component("controller"):
            action: NDArray[np.float32] = votes.action()[0].float().cpu().numpy()
        return action

    @torch.inference_mode()
    def attention_mask(self, observation: dict[str, NDArray[np.float32]]) -> NDArray[np.bool_]:
        """Pixels that attention keeps, (cameras, height, width); all where there is no choice."""
        depth_m, _ = self._batch(observation)
        if self.selection is None or self.config.variant == "trans":
            return np.ones(depth_m.shape[1:], bool)
        tokens = self.tokens.with_places(self.tokens(depth_m))
        gate = self.selection(tokens).unsqueeze(-1)
        mask: NDArray[np.bool_] = self.tokens.image(gate)[0].cpu().numpy() > 0.5
        return mask

    def _batch(self, observation: dict[str, NDArray[np.float32]]) -> tuple[Tensor, Tensor]:
        device = self.normaliser.mean.device
        depth = torch.as_tensor(observation["depth"], dtype=torch.float32, device=device)
        proprio = torch.as_tensor(observation["proprio"], dtype=torch.float32, device=device)
        return depth.unsqueeze(0), proprio.unsqueeze(0)


def _shape(space: spaces.Dict, key: str, dimensions: int) -> tuple[int, ...]:
    part = space.spaces.get(key) if isinstance(space, spaces.Dict) else None
    if part is None or part.shape is None or len(part.shape) != dimensions:
        raise ValueError(
            f"observation_space must be a Dict whose '{key}' has {dimensions} dimensions, "
            f"got {space}"
        )
    return part.shape
