"""Actions that are drawn: categorical choices by their logits, numbers with or without noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from policies.common.base_policy import SeeingPolicy
from policies.common.compiled import CompiledDecision
from policies.common.heads import Decision, PartsHead


def draw(
    decision: Decision, log_std: Tensor | None, generator: torch.Generator, temperature: float = 1.0
) -> Tensor:
    """Draw samples (batch, choices + numbers); logits of choices are divided by the temperature.

    Args:
        decision: of a policy.
        log_std: logarithms of the standard deviations of the noise on numbers; None: no noise.
        generator: source of the draws.
        temperature: divisor of the logits.

    Raises:
        FloatingPointError: if a decision is not finite.
    """
    return _drawn(decision.choices(), decision.means(), log_std, generator, temperature)


def _drawn(
    choices: Sequence[Tensor], means: Tensor, log_std: Tensor | None,
    generator: torch.Generator, temperature: float = 1.0,
) -> Tensor:  # fmt: skip
    if not all(bool(part.isfinite().all()) for part in (means, *choices)):
        raise FloatingPointError("the policy's output has numbers that are not finite")
    chosen = [
        torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        for logits in choices
    ]
    if log_std is not None:
        noise = torch.randn(means.shape, generator=generator)
        means = means + log_std.exp() * noise
    return torch.cat([*(one.to(means.dtype) for one in chosen), means], -1)


def take(policy: SeeingPolicy, sample: Tensor, choices: int) -> tuple[Any, Tensor]:
    """The action of a sample (1, choices + numbers), in the environment's format and as a tensor
    (1, ...); it becomes the policy's previous action."""
    head = policy.head
    action = head.given(head.explored(sample[:, :choices].long(), sample[:, choices:])[0])
    numbers = head.flat(action) if isinstance(head, PartsHead) else action
    taken = torch.as_tensor(numbers).unsqueeze(0)
    policy.took(taken)
    return action, taken


class Sampled:
    """A policy whose categorical choices are drawn by their logits, where the policy itself takes
    the most probable ones. Numbers that are regressed stay as they are.

    Args:
        policy: a policy, whose other attributes this has too.

    Raises:
        ValueError: for a policy without logits.
    """

    def __init__(self, policy: Any) -> None:
        if not isinstance(policy, SeeingPolicy):
            raise ValueError(
                "only implicit_attention, place_memory, pooled vision_performer and cnn policies "
                f"have probabilities of actions, got {type(policy).__name__}"
            )
        if not policy.head(torch.zeros(1, policy.head.size)).choices():
            raise ValueError("the policy's actions are numbers, where choices can be drawn")
        self.policy = policy
        self._generator = torch.Generator()
        self._compiled = CompiledDecision(policy._compiled.after)

    def seed(self, seed: int) -> None:
        """Set the seed of the draws of the next episode."""
        self._generator.manual_seed(seed)

    def reset(self) -> None:
        """Begin an episode."""
        self.policy.reset()

    def act(self, observation: Any) -> Any:
        """An action for one observation, in the format of the action space."""
        with torch.inference_mode():
            if self.policy.remembers:
                *choices, means = _parts(self.policy.decide_one(observation))
            else:
                seen = self.policy.seen(observation)
                *choices, means = self._compiled(self.policy, self._decided, seen)
            sample = _drawn(choices, means, None, self._generator)
            return take(self.policy, sample, len(choices))[0]

    def _decided(self, observations: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return _parts(self.policy.decide(observations))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["policy"], name)


def _parts(decision: Decision) -> tuple[Tensor, ...]:
    """Logits of each choice, then the numbers."""
    return (*decision.choices(), decision.means())
