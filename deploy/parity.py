"""Does the model decide as the policy? On the policy's own episodes, decision by decision.

Both are given the same observation, the same memory and the same noise, those of the policy. So a
difference is of that decision alone.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import torch
from torch import Tensor

from deploy.formats import Run
from deploy.search_noise import SearchNoise
from deploy.steps import NOISE, Step
from training.episodes.episode import run_episode

__all__ = ["LARGEST", "Parity", "compare"]

LARGEST = 1e-5
"""Difference that is allowed: of an action absolute, of a state as a share of its largest number,
if that is above 1."""
_DRAWS = 8


@dataclass
class Parity:
    """What a comparison found."""

    decisions: int = 0
    action: float = 0.0
    """Largest difference of any number of an action."""
    state: float = 0.0
    """The same of what is carried on."""
    beyond: int = 0
    """Decisions whose action or state differs by more than is allowed."""
    unsure: float = 0.0
    """At those, how far the policy's own action moves where its observation is a rounding off."""
    policy_ms: list[float] = field(default_factory=list)
    """Of each decision of the policy in PyTorch, CPU time of this thread."""
    model_ms: list[float] = field(default_factory=list)
    """Of each decision of the model."""
    episodes: list[bool | None] = field(default_factory=list)
    """Success of each whole episode."""

    @property
    def passed(self) -> bool:
        """Whether the model is the policy."""
        return self.beyond == 0

    @property
    def median_ms(self) -> tuple[float, float]:
        """Of the policy and of the model."""
        return statistics.median(self.policy_ms), statistics.median(self.model_ms)


class _Enough(Exception):
    """As many decisions as wanted."""


class _Compared:
    """A policy that is compared with a model while it acts."""

    def __init__(self, policy: Any, step: Step, run: Run, parity: Parity, most: int) -> None:
        self._policy, self._step, self._run = policy, step, run
        self._parity, self._most = parity, most
        self._noise = SearchNoise(step.plan, step.seed) if step.plan else None
        self._states: dict[str, Tensor] = {}

    def reset(self) -> None:
        self._policy.reset()
        self._states = dict(self._step.initial)
        if self._noise is not None:
            self._noise.reset()

    def act(self, observation: Any) -> Any:
        parity = self._parity
        if parity.decisions == self._most:
            raise _Enough
        inputs = {**self._step.tensors(observation), **self._states}
        if self._noise is not None:
            inputs[NOISE] = torch.from_numpy(self._noise.next())
        found = _timed(lambda: self._run(inputs), parity.model_ms)
        taken = _timed(lambda: self._policy.act(observation), parity.policy_ms)
        self._states = self._step.carried()
        wanted = {"action": torch.as_tensor(taken), **self._carried_out()}
        differs = {name: _difference(found[name], value) for name, value in wanted.items()}
        action = differs.pop("action")
        parity.action, parity.state = (
            max(parity.action, action), max(parity.state, *differs.values(), 0.0),
        )  # fmt: skip
        if not max(action, *differs.values(), 0.0) <= LARGEST:
            parity.beyond += 1
            parity.unsure = max(parity.unsure, _unsure(self._step, inputs, wanted["action"]))
        parity.decisions += 1
        return taken

    def _carried_out(self) -> dict[str, Tensor]:
        return {f"next_{name}": value for name, value in self._states.items()}


def compare(
    env: gymnasium.Env[Any, Any], policy: Any, step: Step, run: Run, decisions: int, seed: int
) -> Parity:
    """Compare a model with its policy over so many decisions of the policy's own episodes, the
    first of which begins with `seed`."""
    parity = Parity()
    compared = _Compared(policy, step, run, parity, decisions)
    try:
        while parity.decisions < decisions:
            episode = run_episode(env, compared, seed + len(parity.episodes))
            parity.episodes.append(episode.success)
    except _Enough:
        pass
    return parity


def _unsure(step: Step, inputs: Mapping[str, Tensor], action: Tensor) -> float:
    """Largest move of the policy's action over some draws in which every number of the observation
    is half a rounding larger or smaller."""
    found = 0.0
    for draw in range(_DRAWS):
        generator = torch.Generator().manual_seed(draw)
        nudged = dict(inputs)
        for name in step.parts:
            value = inputs[name]
            if value.is_floating_point():
                sign = torch.randint(2, value.shape, generator=generator) * 2 - 1
                nudged[name] = value * (1 + sign * torch.finfo(value.dtype).eps / 2)
        with torch.no_grad():
            found = max(found, _difference(step(*nudged.values())[0], action))
    return found


def _timed(call: Callable[[], Any], times_ms: list[float]) -> Any:
    begun = time.thread_time_ns()  # what else the machine does is not in it
    found = call()
    times_ms.append((time.thread_time_ns() - begun) / 1e6)
    return found


def _difference(found: Tensor, wanted: Tensor) -> float:
    """Largest absolute one, in units of the largest number where that is above 1; infinite where
    shapes differ or a number is none."""
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.numel():
        return 0.0
    miss = (found.double() - wanted.double()).abs().max()
    share = float(miss / wanted.double().abs().max().clamp_min(1))
    return share if share == share else float("inf")
