"""Policies as graphs: one decision from tensors to tensors, with explicit recurrent state.

The recurrent state is an input and an output (`state_...`, `next_state_...`), and the noise of a
search is an input (`search_noise`). The graph itself is stateless, so that one graph serves any
number of robots.
"""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from deploy.search_noise import LEAST_NORMAL
from policies import PlaceMemoryPolicy, VisionPerformerPolicy
from policies.common.action_parts import ActionParts
from policies.common.base_policy import SeeingPolicy
from policies.common.observation import flat, parts_of
from policies.common.recurrent_state import RecurrentState, flatten_state, unflatten_state
from policies.vision_performer.action_search import Given, Kind, Noted

NOISE = "search_noise"
"""Name of the input that holds the random numbers of a search."""
_OUT = "next_"


class Step(nn.Module):
    """One decision of a policy.

    Args:
        policy: policy of a kind that `step_of` takes.
        observation_space, action_space: spaces of its environment.

    Attributes:
        parts: of the observation, by name.
        initial: states at the beginning of an episode, by the names of inputs.
        plan: of a search, kind and count of its draws, in order. seed: of those random numbers at
        the beginning of an episode.
    """

    def __init__(
        self,
        policy: SeeingPolicy | VisionPerformerPolicy,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
    ) -> None:
        super().__init__()
        self.policy = policy
        self.action_space = action_space
        self.parts: dict[str, Any] = dict(parts_of(observation_space))
        self.initial: dict[str, Tensor] = {}
        self.plan: list[tuple[Kind, int]] = []
        self.seed = 0
        self._begun: RecurrentState | None = None
        if isinstance(policy, SeeingPolicy):
            if policy.remembers:
                self._begun = policy.start(1)
                # Copies: an export merges inputs that share their memory.
                begun = flatten_state(self._begun, "state")
                self.initial = {key: part.clone() for key, part in begun.items() if part.numel()}
        else:
            self.seed = policy.config.inference_seed
            self.plan = self._drawn(policy)

    def _drawn(self, policy: VisionPerformerPolicy) -> list[tuple[Kind, int]]:
        """The draws of a search, recorded in one decision on an observation of zeros."""
        noted = Noted(torch.Generator().manual_seed(self.seed))
        zeros = {key: torch.zeros(space.shape) for key, space in self.parts.items()}
        rgb = zeros["rgb"].to(torch.uint8).unsqueeze(0)
        with torch.no_grad():
            policy.decided(rgb, zeros["pose"].unsqueeze(0).to(policy.action_low), noted)
        return noted.plan

    @property
    def inputs(self) -> list[str]:
        """Names, in the order of `forward`."""
        noise = [NOISE] if self.plan else []
        return [*self.parts, *self.initial, *noise]

    @property
    def outputs(self) -> list[str]:
        """Names, in the order of what `forward` returns."""
        return ["action", *(f"{_OUT}{name}" for name in self.initial)]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Observation in the environment's format, states and noise -> action in the environment's
        format, and states."""
        given = dict(zip(self.inputs, tensors, strict=True))
        seen = {key: given[key].unsqueeze(0) for key in self.parts}
        policy = self.policy
        if isinstance(policy, VisionPerformerPolicy):
            noise = Given(given[NOISE]) if self.plan else Given(seen["pose"].new_zeros(0))
            action = policy.decided(seen["rgb"], seen["pose"].to(policy.action_low), noise)
            return (self._as_taken(action[0]),)
        if self._begun is None:
            return (self._as_taken(policy.decide(seen).action()[0]),)
        states = {name: given[name] for name in self.initial}
        decision, after = policy.decided(seen, unflatten_state(self._begun, states, "state"))
        found = flatten_state(after, "state")
        return (self._as_taken(decision.action()[0]), *(found[name] for name in self.initial))

    def recurrent_state(self) -> dict[str, Tensor]:
        """The policy's present recurrent state, by the names of inputs."""
        memory = getattr(self.policy, "_memory", None)
        found = {} if memory is None else flatten_state(memory, "state")
        return {name: found.get(name, value) for name, value in self.initial.items()}

    def _as_taken(self, action: Tensor) -> Tensor:
        """The action within the space, of its shape and type, as by the head's `given`."""
        space = self.action_space
        dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
        if isinstance(space, spaces.Box):
            if np.issubdtype(space.dtype, np.integer):
                action = action.round()
            low, high = (torch.from_numpy(np.array(v)).to(action) for v in (space.low, space.high))
            action = action.reshape(space.shape).clamp(low, high)
            if isinstance(space, ActionParts):
                choices = torch.tensor(space.bins, device=action.device) > 0
                action = torch.where(choices, action.round(), action)
        return action.reshape(space.shape or ()).to(dtype)

    def example(self, observation: Any) -> dict[str, Tensor]:
        """Inputs that begin an episode, noise of zeros, in the order of `inputs`."""
        given = {**self.tensors(observation), **self.initial}
        if self.plan:
            given[NOISE] = torch.zeros(sum(count for _, count in self.plan))
        return given

    def tensors(self, observation: Any) -> dict[str, Tensor]:
        """An observation of the environment by the names of inputs, in the types of the space."""
        parts = flat(observation)
        return {
            key: torch.from_numpy(np.array(parts[key], np.dtype(space.dtype).newbyteorder("=")))
            for key, space in self.parts.items()
        }


def step_of(policy: nn.Module, observation_space: Any, action_space: Any) -> Step:
    """The graph of a policy.

    Raises:
        ValueError: one sentence, for a policy that cannot be a graph of fixed sizes.
    """
    if not isinstance(policy, SeeingPolicy | VisionPerformerPolicy):
        raise ValueError(
            "a policy to be exported must be an implicit_attention, place_memory, cnn or "
            f"vision_performer one, got {type(policy).__name__}"
        )
    if isinstance(policy, PlaceMemoryPolicy) and policy.config.memory == "exact":
        raise ValueError(
            "memory must be linear, grid, gru or none in an export, got exact, whose state "
            "grows with the number of frames"
        )
    if isinstance(policy, SeeingPolicy) and policy.repair is not None:
        raise ValueError(
            f"repair must be none in an export, got {policy.config.repair}, which OpenCV does: "
            "give --repair none, and repair images before the model"
        )
    if isinstance(policy, VisionPerformerPolicy) and policy.config.optimiser == "langevin":
        raise ValueError(
            "optimiser must be derivative_free in an export, got langevin, which takes gradients"
        )
    step = Step(policy, observation_space, action_space).eval().requires_grad_(False)
    few = [count for kind, count in step.plan if kind == "normal" and count < LEAST_NORMAL]
    if few:
        raise ValueError(f"samples must be at least {LEAST_NORMAL} in an export, got {few[0]}")
    return step
