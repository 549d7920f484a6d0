"""Comparison of a model with its policy, decision by decision, on the policy's episodes.

Both receive the same observation, recurrent state and noise, those of the policy, so that a
difference belongs to that decision alone.

A policy that selects, such as pixels by their scores, can be close to another selection: two
scores may be so close that the order of a sum decides. Such a decision is a tie. It is recognised
by the backward error of the model: the policy itself decides as the model did, within tolerance,
if its observation and recurrent state are changed by a few roundings (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 1.5).
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from deploy.contract_file import Port
from deploy.formats import Run
from deploy.runtime import UnfitError, fitted
from deploy.search_noise import SearchNoise
from deploy.steps import NOISE, Step
from training.collect.episode import run_episode

LARGEST = 1e-5
"""Difference that is allowed, as a share: of a state's largest number, if that is above 1; of half
the range of a bounded action, if that is above 1. An action of smaller range may differ by this
number itself, and by a thousandth of half its range at most."""
_LEAST_SHARE, _LEAST_ROUNDINGS = 1e-3, 4
_ROUNDINGS = (0.5, 1.0, 2.0, 4.0, 8.0)
_DRAWS = 16


@dataclass
class Parity:
    """Result of a comparison."""

    decisions: int = 0
    action: float = 0.0
    """Largest difference of any number of an action, where there is no tie, as a share of half its
    range if that is above 1."""
    state: float = 0.0
    """The same for the recurrent state."""
    beyond: int = 0
    """Decisions whose action or state differs by more than is allowed, and which are no ties."""
    ties: int = 0
    """Decisions that differ so, and that are ties."""
    tie: float = 0.0
    """Largest difference of an action or state there."""
    roundings: float = 0.0
    """The most that an observation and state there had to be off, in roundings of each number."""
    policy_ms: list[float] = field(default_factory=list)
    """CPU time of each decision of the policy in PyTorch, in this thread."""
    model_ms: list[float] = field(default_factory=list)
    """CPU time of each decision of the model."""
    outside: int = 0
    """Decisions whose observation left its bounds."""
    first_outside: str = ""
    """Description of the first of them."""
    episodes: list[bool | None] = field(default_factory=list)
    """Success of each whole episode."""

    @property
    def passed(self) -> bool:
        """Whether model and policy agree."""
        return self.beyond == 0

    @property
    def median_ms(self) -> tuple[float, float]:
        """Median times of the policy and of the model."""
        return statistics.median(self.policy_ms), statistics.median(self.model_ms)


def ties(found: Parity) -> str:
    """The number of ties in words; "" without ties."""
    if not found.ties:
        return ""
    several = found.ties > 1
    return (
        f"beside them {found.ties} {'are ties' if several else 'is a tie'}, where model and policy "
        f"differ by up to {found.tie:.1e}: the policy itself decides as the model where its "
        f"observation and state are {found.roundings:g} roundings off"
    )


class _Enough(Exception):
    """Raised when enough decisions were compared."""


class _Compared:
    """A policy that is compared with a model while it acts."""

    def __init__(
        self, policy: Any, step: Step, run: Run, parity: Parity, most: int, ports: Sequence[Port]
    ) -> None:
        self._policy, self._step, self._run = policy, step, run
        self._parity, self._most = parity, most
        self._within = [replace(port, outside="refuse") for port in ports]
        self._ports = [_passing(port, step.parts[port.name]) for port in ports]
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
        given = self._fitted(observation)
        if any(port.outside == "clip" for port in self._ports):
            observation = given
        inputs = {**self._step.tensors(given), **self._states}
        if self._noise is not None:
            inputs[NOISE] = torch.from_numpy(self._noise.next())
        found = _timed(lambda: self._run(inputs), parity.model_ms)
        taken = _timed(lambda: self._policy.act(observation), parity.policy_ms)
        self._states = self._step.recurrent_state()
        wanted = {"action": torch.as_tensor(taken), **self._carried_out()}
        differs = _differences(self._step, found, wanted)
        parity.decisions += 1
        most = max(differs.values())
        differs_much = most > LARGEST
        roundings = _roundings_off(self._step, inputs, found) if differs_much else None
        if roundings is not None:
            parity.ties += 1
            parity.tie, parity.roundings = max(parity.tie, most), max(parity.roundings, roundings)
            return taken
        parity.beyond += differs_much
        parity.action = max(parity.action, differs.pop("action"))
        parity.state = max(parity.state, *differs.values(), 0.0)
        return taken

    def _fitted(self, observation: Any) -> Any:
        """The observation as the runtime gives it to the model."""
        if not self._ports:
            return observation
        try:
            fitted(self._within, observation)
        except UnfitError as error:
            self._parity.outside += 1
            self._parity.first_outside = self._parity.first_outside or str(error)
        return fitted(self._ports, observation)

    def _carried_out(self) -> dict[str, Tensor]:
        return {f"next_{name}": value for name, value in self._states.items()}


def compare(
    env: gymnasium.Env[Any, Any],
    policy: Any,
    step: Step,
    run: Run,
    decisions: int,
    seed: int,
    ports: Sequence[Port] = (),
) -> Parity:
    """Compare a model with its policy over a number of decisions in the policy's episodes, the
    first of which begins with `seed`.

    Observations pass the runtime's checks of `ports`, the inputs of the contract, if given. An
    observation out of bounds that the contract refuses is counted and compared all the same.

    Raises:
        ValueError: one sentence, for an observation that does not match the contract otherwise.
    """
    parity = Parity()
    compared = _Compared(policy, step, run, parity, decisions, ports)
    try:
        while parity.decisions < decisions:
            episode = run_episode(env, compared, seed + len(parity.episodes), simulated=False)
            parity.episodes.append(episode.success)
    except _Enough:
        pass
    return parity


def _passing(port: Port, space: Any) -> Port:
    passes = port.outside == "refuse" and isinstance(space, spaces.Box)
    return replace(port, outside="pass") if passes else port


def _roundings_off(
    step: Step, inputs: Mapping[str, Tensor], found: Mapping[str, Tensor]
) -> float | None:
    """By how many roundings the numbers of observation and state must be off for the policy itself
    to decide as the model did; None if no draw, up to 8 roundings, does so."""
    for roundings in _ROUNDINGS:
        for draw in range(_DRAWS):
            generator = torch.Generator().manual_seed(draw)
            nudged = {
                name: given if name == NOISE else _off(given, roundings, generator)
                for name, given in inputs.items()
            }
            with torch.no_grad():
                own = dict(zip(step.outputs, step(*nudged.values()), strict=True))
            if max(_differences(step, found, own).values()) <= LARGEST:
                return roundings
    return None


def _off(numbers: Tensor, roundings: float, generator: torch.Generator) -> Tensor:
    """Move each float by random numbers of roundings up or down; integers stay unchanged."""
    if not numbers.is_floating_point():
        return numbers
    signs = torch.randint(2, numbers.shape, generator=generator) * 2 - 1
    return numbers * (1 + signs * (torch.finfo(numbers.dtype).eps * roundings))


def _timed(call: Callable[[], Any], times_ms: list[float]) -> Any:
    started = time.thread_time_ns()  # CPU time of this thread alone
    found = call()
    times_ms.append((time.thread_time_ns() - started) / 1e6)
    return found


def _differences(
    step: Step, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, float]:
    scale = _action_scale(step.action_space)
    return {
        name: _difference(found[name], value, scale if name == "action" else None)
        for name, value in wanted.items()
    }


def _action_scale(space: Any) -> Tensor | None:
    """Unit of the difference of each number of an action; NaN without bounds, None for choices."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return None
    low, high = (torch.from_numpy(np.array(bound, np.float64)) for bound in (space.low, space.high))
    half = (high - low) / 2
    unit = half.maximum((half * (_LEAST_SHARE / LARGEST)).clamp_max(1))
    rounding = low.abs().maximum(high.abs()) * float(np.finfo(space.dtype).eps)
    unit = unit.maximum(rounding * (_LEAST_ROUNDINGS / LARGEST))
    return torch.where(unit.isfinite() & (unit > 0), unit, torch.nan)


def _difference(found: Tensor, wanted: Tensor, scale: Tensor | None = None) -> float:
    """Largest absolute difference, in units of `scale`, or without a scale in units of the largest
    number if that is above 1; infinite if shapes differ or a number is NaN."""
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.numel():
        return 0.0
    unit: Tensor = wanted.double().abs().max().clamp_min(1)
    if scale is not None:
        unit = torch.where(scale.isnan(), unit, scale)
    share = float(((found.double() - wanted.double()).abs() / unit).max())
    return share if share == share else float("inf")
