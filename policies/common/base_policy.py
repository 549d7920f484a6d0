"""The base of policies for any images and any action space: everything but attention.

It parses the observation, runs the controller on the attention output and the observation's vector,
converts the controller's output to an action by a head, and stores the recurrent state.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attention.components import component
from attention.construction import Rebuilt
from policies.common.compiled import CompiledDecision
from policies.common.controllers import (
    GATES,
    ConvController,
    DenseController,
    RecurrentController,
)
from policies.common.depth_repair import DepthRepair
from policies.common.geometry import Geometry
from policies.common.heads import Decision
from policies.common.normaliser import RunningNormaliser, RunningStatistics
from policies.common.plugins import custom_controller
from policies.common.policy_inputs import PolicyInputs
from policies.common.recurrent_state import FlatState, RecurrentState, flatten_state
from policies.common.settings import CONTROLLERS, SeeingConfig
from policies.implicit_attention.tokens import PatchTokens
from policies.place_memory.remembered import RememberedGround

_CHUNK = 1024  # observations measured per chunk
_STATE = "state"


class SeeingPolicy(Rebuilt):
    """Base class of policies; a subclass has the attention over images and makes the controller.

    Without images there is no attention: the controller acts by the vector alone.

    Args:
        config: its settings.
        observation_space: see `policies.common.observation`.
        action_space: a Box, Discrete, MultiDiscrete or MultiBinary.
        geometry: geometry of the robot, see `policies.common.geometry`.

    Raises:
        ValueError: if the spaces are unsupported or incompatible with the settings.

    Attributes:
        config: its settings.
        inputs: how the policy interprets spaces and geometry.
        head: reads the controller's numbers as an action.
        normaliser: normaliser of the observation's vector and the images' running statistics.
        tokens: cuts images into tokens; None without images, or where they are convolved.
        controller: set by the subclass.
    """

    controller: nn.Module

    def __init__(
        self,
        config: SeeingConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        inputs = self.inputs = PolicyInputs(config, observation_space, action_space, geometry)
        self.head = inputs.head
        self.repair: DepthRepair | None = None
        if config.repair != "none":
            self.repair = DepthRepair(config.repair == "full", inputs.observations.image_parts)
        self.normaliser = RunningNormaliser(inputs.measured)
        self.tokens: PatchTokens | None = None
        if inputs.tokens:
            self.tokens = PatchTokens(
                inputs.cut,
                config.patch, config.stride, config.edges, config.standardise,
            )  # fmt: skip
            self.tokens.start_statistics([images.scale for images in inputs.images])
        self._kept: RecurrentState | FlatState | None = None
        self._compiled = CompiledDecision()

    def dense(self, generator: torch.Generator) -> nn.Module:
        """The configured controller that takes no images."""
        sizes = self.inputs.controller, self.head.size, self.config.hidden, generator
        name = self.config.acts_by
        made: ConvController | DenseController | RecurrentController
        if name == "conv":
            grids = [] if self.tokens is None else self.tokens.grids
            if len(grids) != 1:
                raise ValueError(
                    "controller conv needs images of one size in one part of the observation, got "
                    f"{len(grids)} parts; mlp takes any"
                )
            grid = grids[0]
            images = grid.count * grid.channels
            made = ConvController(images, grid.height, grid.width, *sizes)
        elif name not in CONTROLLERS:
            return custom_controller(name, *sizes)
        else:
            made = RecurrentController(name, *sizes) if name in GATES else DenseController(*sizes)
        with torch.no_grad():
            made.output.weight.mul_(self.config.init_output)
        return made

    def described(self) -> list[str]:
        """The policy's choices by its settings and spaces, a few words each."""
        images = [
            f"{i.shape[1]} x {i.shape[2]} x {i.count * i.shape[0]}" for i in self.inputs.images
        ]
        seen = f"images of {' and '.join(images)}" if images else "no images, so no attention"
        kind = self.config.acts_by
        if kind == "auto":
            geometry = "the robot's geometry names feet and cameras"
            kind = f"vote (auto: {geometry})" if self.inputs.votes is not None else "mlp (auto)"
        return [seen, f"controller {kind}", self.head.described]

    def _attended(self, tokens: PatchTokens, observations: Mapping[str, Tensor]) -> Tensor:
        """Attention output (batch, k) for observations, each part (batch, ...)."""
        raise NotImplementedError

    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Fit the feature maps to this policy's queries and keys of observations, each part (batch,
        ...).
        """
        raise NotImplementedError

    @property
    def reads_geometry(self) -> bool:
        """Whether it accepts cameras at any pose because pixels are mapped to places."""
        return self.inputs.votes is not None

    @property
    def remembers(self) -> bool:
        """Whether an action depends on earlier steps of its episode."""
        return self.unrolls

    @property
    def unrolls(self) -> bool:
        """Whether it still does so after `recalled`: then it is trained on steps in order."""
        return self.config.last_action or hasattr(self.controller, "state_size")

    @property
    def _memory(self) -> RecurrentState | None:
        """The recurrent state; None at the start of an episode."""
        return self._kept.whole() if isinstance(self._kept, FlatState) else self._kept

    @_memory.setter
    def _memory(self, memory: RecurrentState | None) -> None:
        self._kept = memory

    def reset(self) -> None:
        """Start an episode: clear the recurrent state."""
        self._memory = None
        if self.repair is not None:
            self.repair.reset()

    def start(self, batch: int) -> RecurrentState:
        """The initial recurrent state of a batch of episodes."""
        own = self.normaliser.mean
        state = getattr(self.controller, "state_size", 0)
        last = self.head.coded if self.config.last_action else 0
        sizes = ((batch, state), (batch, last))
        return RecurrentState(*(torch.zeros(size, device=own.device) for size in sizes))

    def recalled(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Any
    ) -> tuple[Mapping[str, Tensor], Any]:
        """Step of a policy's memory, before its controller.

        Args:
            observations: each part (batch, steps, ...), or the output of this method.
            starts: (batch, steps) bool, where an episode begins.
            seen: memory state before the first step; None: empty.

        Returns:
            Inputs for the decision, and the next state; here both are returned unchanged.
        """
        return observations, seen

    def forward(self, *parts: Tensor) -> Decision:
        """Decisions for a batch of each part of the observation, in the space's order."""
        return self.decide(dict(zip(self.inputs.observations.keys, parts, strict=True)))

    def decide(
        self, observations: Mapping[str, Tensor], memory: RecurrentState | None = None
    ) -> Decision:
        """Observations, each part (batch, ...) as the space has it, and the recurrent state, by
        default the initial one -> decisions."""
        return self.head(self._step(self.given(observations), memory)[0])

    def numbers(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Outputs of a controller without votes for observations that begin an episode, each part
        (batch, ...): (batch, head.size), which the head reads."""
        return self._step(self.given(observations), None)[0]

    def given(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Inputs of a controller without votes, except the last action, (batch, k)."""
        attended = None if self.tokens is None else self._attended(self.tokens, observations)
        with component("controller"):
            normal = self.normaliser(self.inputs.observations.vector(observations))
            return normal if attended is None else torch.cat((attended, normal), -1)

    def _step(self, given: Tensor, memory: RecurrentState | None) -> tuple[Tensor, Tensor]:
        """The controller's output and its next state."""
        with component("controller"):
            if not self.unrolls:
                return self.controller(given), given[:, :0] if memory is None else memory.state
            memory = memory or self.start(len(given))
            if self.config.last_action:
                given = torch.cat((given, memory.last), -1)
            if hasattr(self.controller, "state_size"):
                numbers, state = self.controller(given, memory.state)
                return numbers, state
            return self.controller(given), memory.state

    def unroll(
        self,
        observations: Mapping[str, Tensor],
        actions: Tensor,
        starts: Tensor,
        memory: RecurrentState,
    ) -> tuple[Decision, RecurrentState]:
        """Decisions at successive steps.

        Args:
            observations: each part (batch, steps, ...).
            actions: the actions taken, (batch, steps, ...).
            starts: (batch, steps) bool, where an episode begins.
            memory: the recurrent state before the first step.

        Returns:
            The decisions, (batch times steps, ...), and the next state, without gradients.
        """
        observations, seen = self.recalled(observations, starts, memory.seen)
        given = self.given({key: part.flatten(0, 1) for key, part in observations.items()})
        given = given.unflatten(0, starts.shape)
        taken = self.head.code(actions.flatten(0, 1)).unflatten(0, starts.shape).to(given)
        if not self.config.last_action:
            taken = taken[..., :0]
        made, state = self._controlled(given, taken, starts, memory)
        return self.head(made), RecurrentState(state.detach(), taken[:, -1].detach(), seen)

    def _controlled(
        self, given: Tensor, taken: Tensor, starts: Tensor, memory: RecurrentState
    ) -> tuple[Tensor, Tensor]:
        """The controller's output at each step, (batch times steps, ...), and its final state.
        As the actions are known, a controller without a state processes all steps at once."""
        goes_on = ~starts.unsqueeze(-1)
        last = torch.cat((memory.last.unsqueeze(1), taken[:, :-1]), 1) * goes_on
        if not hasattr(self.controller, "state_size"):
            every = RecurrentState(given.new_zeros(starts.numel(), 0), last.flatten(0, 1))
            return self._step(given.flatten(0, 1), every)[0], memory.state
        numbers, state = [], memory.state
        for step in range(starts.shape[1]):
            before = RecurrentState(state * goes_on[:, step], last[:, step])
            made, state = self._step(given[:, step], before)
            numbers.append(made)
        return torch.stack(numbers, 1).flatten(0, 1), state

    def prepared(
        self, observations: Mapping[str, Tensor], starts: Tensor | None
    ) -> Mapping[str, Tensor]:
        """Precompute the part of the inputs that does not depend on parameters, for repeated use in
        training. Here observations are returned unchanged.

        Args:
            observations: each part (N, ...).
            starts: (N,) bool, True at the first step of an episode; None: not needed.
        """
        return observations

    def _scaled_images(self, observations: Mapping[str, Tensor]) -> list[Tensor]:
        """Groups of scaled images (batch, count, channels, height, width)."""
        read = [images.read(observations, torch.float32) for images in self.inputs.images]
        if self.tokens is not None and self.tokens.standardises:
            return self.tokens.standardised(read)
        scaled = zip(read, self.inputs.images, self.inputs.statistics_at, strict=True)
        return [images.scaled(pixels, at, self.normaliser) for pixels, images, at in scaled]

    def loss(
        self,
        observations: Mapping[str, Tensor],
        actions: Tensor,
        generator: torch.Generator | None = None,
        speed_weight: float = 5.0,
    ) -> Tensor:
        """Loss of cloning, a scalar, see `policies.common.heads`; no random number is drawn.

        Args:
            observations: each part (batch, ...).
            actions: the expert's, (batch, ...).
            speed_weight: weight of the regressed values beside footholds.
        """
        return self.decide(observations).loss(actions, speed_weight)

    def measured(self, observation: Any) -> NDArray[np.float64]:
        """The values of one observation for the normaliser, (k,)."""
        observations = self.inputs.observations
        one = observations.batch_of_one(observation, torch.device("cpu"))
        return self._measure(one)[0]

    def _measure(self, observations: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """The vector, then each channel's mean and mean square where statistics run, (batch, k)."""
        found = [self.inputs.observations.vector(observations, torch.float64)]
        for images in self.inputs.images:
            if images.scale is None:
                pixels = images.read(observations, torch.float64)
                found += [pixels.mean((1, 3, 4)), pixels.square().mean((1, 3, 4))]
        numbers: NDArray[np.float64] = torch.cat(found, -1).cpu().numpy()
        return numbers

    @torch.no_grad()
    def statistics_of(self, observations: Mapping[str, Tensor]) -> RunningStatistics:
        """The values of observations, each part (N, ...), for the normaliser."""
        chunks = [part.split(_CHUNK) for part in observations.values()]
        found = [
            self._measure(dict(zip(observations, parts, strict=True)))
            for parts in zip(*chunks, strict=True)
        ]
        return RunningStatistics.empty(self.inputs.measured).update(np.concatenate(found))

    @torch.no_grad()
    def set_statistics(self, observations: Mapping[str, Tensor]) -> None:
        """Normalise by these observations alone, each part (N, ...)."""
        self.normaliser.statistics = self.statistics_of(observations)
        if self.tokens is not None and self.tokens.standardises:
            self.tokens.set_statistics([images.read(observations) for images in self.inputs.images])

    @property
    def is_alike(self) -> bool:
        """Whether every decision runs the same operations, so that one trace is valid for all."""
        return True

    def act(self, observation: Any) -> Any:
        """The action for one observation, in the format of the action space."""
        with torch.inference_mode():
            action = self._acted(self.seen(observation))
            with component("controller"):
                return self.head.given(action[0])

    def _acted(self, seen: dict[str, Tensor]) -> Tensor:
        """The action (1, ...) that becomes the previous action of the next decision."""
        if not self.remembers:
            return self._compiled(self, self._action, seen)[0]
        kept = self._kept
        if kept is None or not self.is_alike:
            decision, self._memory = self.decided(seen, self._memory)
            with component("controller"):
                return decision.action()
        if not isinstance(kept, FlatState):
            kept = FlatState(kept, _STATE)

        def decide(given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
            decision, after = self.decided({key: given[key] for key in seen}, kept.whole(given))
            with component("controller"):
                return decision.action(), *flatten_state(after, _STATE).values()

        action, *after = self._compiled(self, decide, seen, kept.tensors)
        kept.tensors = dict(zip(kept.tensors, after, strict=True))
        self._kept = kept
        return action

    def _action(self, observations: Mapping[str, Tensor]) -> tuple[Tensor]:
        """The state of a policy without memory."""
        decision = self.decide(observations)
        with component("controller"):
            return (decision.action(),)

    def seen(self, observation: Any) -> dict[str, Tensor]:
        """The parts of an observation from the environment, repaired, each (1, ...)."""
        if self.repair is not None:
            with component("repair"):
                observation = self.repair(observation)
        return self._one(observation)

    def decide_one(self, observation: Any) -> Decision:
        """The decision, a batch of one, for an observation from the environment; its action counts
        as taken.
        """
        decision, self._memory = self.decided(self.seen(observation), self._memory)
        return decision

    def decided(
        self, observations: Mapping[str, Tensor], memory: RecurrentState | None
    ) -> tuple[Decision, RecurrentState | None]:
        """One decision, and the recurrent state after its action; the policy is not changed.

        Args:
            observations: a batch of one, each part (1, ...).
            memory: recurrent state; None: start of an episode, as with `start(1)`.
        """
        if not self.remembers:
            return self.decide(observations), None
        observations, seen = self._recalled_now(observations, memory)
        numbers, state = self._step(self.given(observations), memory)
        decision = self.head(numbers)
        coded = self.config.last_action
        taken = self.head.code(decision.action()) if coded else numbers[:, :0]
        return decision, RecurrentState(state, taken, seen)

    def _recalled_now(
        self, observations: Mapping[str, Tensor], memory: RecurrentState | None
    ) -> tuple[dict[str, Tensor], Any]:
        """`recalled` for one step, (batch, ...)."""
        steps = {key: part.unsqueeze(1) for key, part in observations.items()}
        made = torch.ones if memory is None else torch.zeros  # `torch.full` cannot be traced
        starts = made(1, 1, dtype=torch.bool, device=self.normaliser.mean.device)
        found, seen = self.recalled(steps, starts, None if memory is None else memory.seen)
        return {key: part.squeeze(1) for key, part in found.items()}, seen

    def took(self, action: Tensor) -> None:
        """Record that another action (1, ...) was taken than that of the last decision."""
        if self._memory is not None and self.config.last_action:
            self._memory = dataclasses.replace(self._memory, last=self.head.code(action))

    def remembered(self, observation: Any) -> RememberedGround | None:
        """The remembered ground around the robot after the decision on an observation from the
        environment; None, as here, without such a memory.
        """
        return None

    @property
    def carried(self) -> int:
        """Size of the current recurrent state."""
        return 0 if self._memory is None else self._memory.numbers

    def _one(self, observation: Any) -> dict[str, Tensor]:
        return self.inputs.observations.batch_of_one(observation, self.normaliser.mean.device)
