"""A learning task: its settings, its measures, and the module that trains a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["Learning", "Measure", "Task"]


@dataclass(frozen=True)
class Measure:
    """A number by which variants are compared."""

    name: str
    """Its key in results."""
    label: str
    """What a page calls it."""
    unit: str = ""
    """In small print below."""
    higher_is_better: bool = True
    form: str = ".3f"
    """How it is printed."""


@dataclass(frozen=True)
class Learning:
    """One variant's model with one seed, as a task receives it."""

    settings: Any
    """Of the task's class."""
    seed: int
    """Of all that is random."""
    folder: Path
    """Where it keeps its state and its model."""
    start: Path | None = None
    """The folder of the model that it begins with."""
    data: str | None = None
    """Folder with the data; None: the environment variable FOVEATE_DATA, then the cache."""
    label: str = ""
    """What progress is printed with."""
    device: str = "cpu"
    """PyTorch device that it is learned on."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The description of a task for the command and the pages."""

    name: str
    """The value of `task` in a YAML."""
    settings: type[Any]
    """A frozen pydantic dataclass, every field documented."""
    module: str
    """What learns it, imported late: `learn(learning) -> dict[str, float]` gives every measure,
    and NaN for one that the model does not reach. Where learning stopped at a loss that is not
    finite, all count as NaN. `check(settings, data)` raises UserError where
    data are missing."""
    measures: tuple[Measure, ...]
    """What is measured; the first is what the task is judged by."""

    @property
    def learn(self) -> Callable[[Learning], dict[str, float]]:
        """Trains a model and measures it."""
        learn: Callable[[Learning], dict[str, float]] = import_module(self.module).learn
        return learn

    @property
    def check(self) -> Callable[[Any, str | None], object]:
        """Finds the data, or raises UserError."""
        check: Callable[[Any, str | None], object] = import_module(self.module).check
        return check
