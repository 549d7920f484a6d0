"""Searches for the action of least energy (Florence et al. 2021, appendices B.1 to B.3).

Actions are normalised to [-1, 1]; energies are functions, so that a search is independent of
networks. All noise comes from the given generator, or from a tensor, as an exported graph holds no
generator: `Noted` records what a search draws, in order, and `Given` replays these numbers.

Derivative-free search over all dimensions is known to fail beyond about five of them:
hence the autoregressive one, a dimension at a time, and Langevin chains along gradients. On twelve
dimensions of toy data, after equally many gradient steps, mean errors were 0.1 % of the range for
the autoregressive search, 5 to 7 % for Langevin and 8 % for the derivative-free one
(`python -m experiments.robots.action_search`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from attention.tracing import is_exporting

Kind = Literal["uniform", "normal"]
"""Uniform in [0, 1), or of mean 0 and variance 1."""


class Noted:
    """Draws from a generator and records the draws.

    Attributes:
        plan: kind and count of each draw, in order.
        numbers: the draws, float32, one tensor per draw.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self.plan: list[tuple[Kind, int]] = []
        self.numbers: list[Tensor] = []

    def draw(self, kind: Kind, shape: tuple[int, ...]) -> Tensor:
        """(shape) new numbers."""
        numbers = _of_kind(kind, shape, self._generator)
        self.plan.append((kind, numbers.numel()))
        self.numbers.append(numbers.flatten())
        return numbers


class Given:
    """Replays recorded numbers.

    Args:
        numbers: (n,), the concatenated draws of `Noted`.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers, self._first = numbers, 0

    def draw(self, kind: Kind, shape: tuple[int, ...]) -> Tensor:
        """(shape) of the next numbers; their kind is not checked."""
        shape = tuple(map(int, shape))  # constants of a trace
        first, count = self._first, math.prod(shape)
        self._first += count
        return self._numbers[first : first + count].view(shape)


def drawn(plan: Sequence[tuple[Kind, int]], generator: torch.Generator) -> Tensor:
    """The concatenated numbers of a plan, as `Noted` would draw them: (n,)."""
    pieces = [_of_kind(kind, (count,), generator) for kind, count in plan]
    return torch.cat(pieces) if pieces else torch.empty(0, device=generator.device)


def _of_kind(kind: Kind, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return (rand if kind == "uniform" else randn)(shape, generator)


Noise = torch.Generator | Noted | Given


def rand(shape: tuple[int, ...], source: Noise) -> Tensor:
    """Uniform numbers in [0, 1), float32, on the generator's device."""
    if isinstance(source, torch.Generator):
        return torch.rand(shape, generator=source, device=source.device)
    return source.draw("uniform", shape)


def randn(shape: tuple[int, ...], source: Noise) -> Tensor:
    """Normal numbers, float32, on the generator's device."""
    if isinstance(source, torch.Generator):
        return torch.randn(shape, generator=source, device=source.device)
    return source.draw("normal", shape)


Energy = Callable[[Tensor], Tensor]
"""Candidates (batch, k, n) -> energies (batch, k)."""
NOISE_DECAY = 0.5
_LARGEST_MOVE = 0.1


def derivative_free(
    energy: Energy,
    candidates: Tensor,
    rounds: int,
    noise: float,
    generator: Noise,
    temperature: float = 0.0,
) -> Tensor:
    """Sample, weigh by softmax(-energy), resample with noise that halves every round; the best.

    Args:
        candidates: (batch, k, n), initial candidates.
        rounds: number of evaluations of the candidates.
        noise: standard deviation after the first round.
        temperature: above 0, one candidate of the first round is drawn with weights
            softmax(-energy / temperature) and takes the place of them all.

    Returns:
        (batch, n), the candidate of least energy of all rounds, or of the drawn one and all after;
        NaN where that energy is not finite or any energy is NaN.
    """
    energies = energy(candidates)
    best, least = _least(candidates, energies)
    if temperature > 0:
        drawn = _multinomial(energies / temperature, generator)[:, :1]
        # 0 * NaN is NaN: the drawn candidate must not hide another's energy.
        least = energies.take_along_dim(drawn, -1).squeeze(-1) + 0 * least
        best = candidates.take_along_dim(drawn.unsqueeze(-1), 1).squeeze(1)
        energies = least.unsqueeze(-1).expand_as(energies)
        candidates = best.unsqueeze(1).expand_as(candidates)
    for round_ in range(1, rounds):
        index = _multinomial(energies, generator).unsqueeze(-1)
        moved = _normal(candidates.shape, candidates, generator)
        spread = noise * NOISE_DECAY ** (round_ - 1)
        candidates = (candidates.take_along_dim(index, 1) + spread * moved).clamp(-1, 1)
        energies = energy(candidates)
        found, value = _least(candidates, energies)
        best = torch.where((value < least).unsqueeze(-1), found, best)
        least = torch.minimum(value, least)
    return _sound(best, least)


def autoregressive(
    energy: Callable[[int, Tensor, Tensor], Tensor],
    size: int,
    first: Callable[[], Tensor],
    rounds: int,
    noise: float,
    temperature: float,
    generator: Noise,
) -> Tensor:
    """A derivative-free search for each dimension in turn, given those already chosen.

    Args:
        energy: dimension i, chosen (batch, i) and candidates (batch, k) -> (batch, k).
        size: n, dimensions of the action.
        first: returns initial candidates (batch, k) of a dimension.
        rounds, noise, temperature: as in `derivative_free`, for each dimension.

    Returns:
        (batch, n).
    """
    start = first()
    before = start[:, :0]
    for i in range(size):

        def of_values(values: Tensor, i: int = i, before: Tensor = before) -> Tensor:
            return energy(i, before, values.squeeze(-1))

        candidates = (start if i == 0 else first()).unsqueeze(-1)
        found = derivative_free(of_values, candidates, rounds, noise, generator, temperature)
        before = torch.cat((before, found), -1)
    return before


def langevin(
    energy: Energy,
    candidates: Tensor,
    steps: int,
    step_start: float,
    step_end: float,
    generator: Noise,
) -> Tensor:
    """Chains from the candidates (batch, k, n), then as many small steps; the best (batch, n)."""
    moved = langevin_chain(energy, candidates, steps, generator, step_start, step_end)
    moved = langevin_chain(energy, moved, steps, generator, step_end, step_end)
    return _sound(*_least(moved, energy(moved)))


def langevin_chain(
    energy: Energy,
    candidates: Tensor,
    steps: int,
    generator: Noise,
    step_start: float = 0.1,
    step_end: float = 1e-5,
) -> Tensor:
    """a <- a - step (gradient / 2 + noise), steps falling by the square from start to end.

    A move is at most 0.1 in each dimension, and actions stay in [-1, 1]. (batch, k, n) -> the same,
    without a gradient.
    """
    for k in range(steps):
        share = 1 - k / max(1, steps - 1)
        step = step_end + (step_start - step_end) * share**2
        with torch.enable_grad():
            candidates = candidates.detach().requires_grad_()
            (slope,) = torch.autograd.grad(energy(candidates).sum(), candidates)
        noise = _normal(candidates.shape, candidates, generator)
        move = (step * (slope / 2 + noise)).clamp(-_LARGEST_MOVE, _LARGEST_MOVE)
        candidates = (candidates.detach() - move).clamp(-1, 1)
    return candidates.detach()


def uniform(shape: tuple[int, ...], generator: Noise, like: Tensor) -> Tensor:
    """Uniform numbers from [-1, 1], in the dtype and on the device of `like`."""
    return rand(shape, generator).to(like) * 2 - 1


def stratified(shape: tuple[int, ...], generator: Noise, like: Tensor) -> Tensor:
    """One uniform number from each of shape[-1] equal parts of [-1, 1], otherwise like
    `uniform`."""
    drawn = rand(shape, generator).to(like)
    return (torch.arange(shape[-1], device=like.device) + drawn) * (2 / shape[-1]) - 1


def _least(candidates: Tensor, energies: Tensor) -> tuple[Tensor, Tensor]:
    """The best candidate (batch, n) and its energy (batch,), NaN where any energy is."""
    index = energies.argmin(-1, keepdim=True)
    best = candidates.take_along_dim(index.unsqueeze(-1), 1).squeeze(1)
    return best, energies.take_along_dim(index, -1).squeeze(-1)


def _sound(best: Tensor, least: Tensor) -> Tensor:
    """The best (batch, n); NaN where its energy (batch,) is not finite, so that a broken policy
    does not look sound."""
    return torch.where(least.isfinite().unsqueeze(-1), best, torch.nan)


def _multinomial(energies: Tensor, generator: Noise) -> Tensor:
    """Indices (batch, k), one per candidate, drawn with weights softmax(-energy)."""
    cumulative = (-energies).softmax(-1).cumsum(-1)
    drawn = rand(energies.shape, generator)
    drawn = drawn.to(energies) * cumulative[..., -1:]
    if torch.compiler.is_compiling() and is_exporting():  # ONNX has no such operator
        index = (cumulative.unsqueeze(-2) < drawn.unsqueeze(-1)).sum(-1)
    else:
        index = torch.searchsorted(cumulative, drawn)
    return index.clamp_max(energies.shape[-1] - 1)


def _normal(shape: torch.Size, like: Tensor, generator: Noise) -> Tensor:
    return randn(shape, generator).to(like)
