"""What a search may choose: settings, and which values each may have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.io.config import UserError
from training.io.overrides import assignment
from training.io.yaml_text import parse

__all__ = ["Choice", "Interval", "read_space"]

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included; whole ones where both are written so."""

    low: float
    high: float
    log: bool
    whole: bool

    def distribution(self, optuna: Any) -> Any:
        """As Optuna has it."""
        kind = optuna.distributions
        if self.whole:
            return kind.IntDistribution(int(self.low), int(self.high), log=self.log)
        return kind.FloatDistribution(self.low, self.high, log=self.log)

    def setting(self, key: str, value: Any) -> str:
        """As a word of --set."""
        return assignment(key, value)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible."""
        kind = int if self.whole else float
        return kind(self.low), kind(self.high)


@dataclass(frozen=True)
class Choice:
    """One of some values, each as it was typed."""

    words: tuple[str, ...]

    def distribution(self, optuna: Any) -> Any:
        """As Optuna has it."""
        return optuna.distributions.CategoricalDistribution(self.words)

    def setting(self, key: str, value: Any) -> str:
        """As a word of --set."""
        return f"{key}={value}"

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible."""
        return self.words


def read_space(words: Sequence[str]) -> dict[str, Interval | Choice]:
    """`KEY=LOW:HIGH`, `KEY=log:LOW:HIGH` and `KEY=A|B|C`, by key. UserError for other words."""
    space: dict[str, Interval | Choice] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not key or not equals:
            raise UserError(f"--search takes KEY=LOW:HIGH or KEY=A|B|C, got {word!r}")
        if key in space:
            raise UserError(f"--search has {key} twice")
        space[key] = _read(word, text.strip())
    if not space:
        raise UserError("--search must name at least one setting, such as sigma=log:0.01:1")
    return space


def _read(word: str, text: str) -> Interval | Choice:
    found = re.fullmatch(rf"(log:)?({_NUMBER}):({_NUMBER})", text)
    if found:
        low, high = float(found[2]), float(found[3])
        log = found[1] is not None
        if not low < high or (log and low <= 0):
            raise UserError(
                f"--search {word}: the first number must be below the second"
                f"{', and above 0' if log else ''}"
            )
        whole = all(re.fullmatch(r"[-+]?\d+", part) for part in (found[2], found[3]))
        return Interval(low, high, log, whole)
    words = tuple(part.strip() for part in text.split("|"))
    if len(words) < 2 or len(set(words)) < len(words) or not all(words):
        raise UserError(
            f"--search takes KEY=LOW:HIGH, KEY=log:LOW:HIGH or KEY=A|B|C of different values, got "
            f"{word!r}"
        )
    for part in words:
        parse(part, f"--search {word}")
    return Choice(words)
