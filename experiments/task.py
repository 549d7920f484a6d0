"""A learning task: its settings, its measures, and the functions that train and measure a model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from training.compare.measures import Measure

__all__ = ["STRICT", "Learning", "Measure", "Task"]
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""pydantic configuration of settings."""


@dataclass(frozen=True)
class Learning:
    """One variant's model with one seed, as a task receives it."""

    settings: Any
    """An instance of the task's class."""
    seed: int
    """Seed of all that is random."""
    folder: Path
    """Where it keeps its state and its model."""
    start: Path | None = None
    """The folder of the model that it begins with."""
    data: str | None = None
    """Folder with the data; None: the environment variable FOVEATE_DATA, then the cache."""
    label: str = ""
    """Label of the progress bar."""
    device: str = "cpu"
    """PyTorch device that it is trained on."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The description of a task for the command and the pages."""

    name: str
    """The value of `task` in a YAML."""
    settings: type[Any]
    """A frozen pydantic dataclass, every field documented."""
    learn: Callable[[Learning], dict[str, float]]
    """Trains a model and returns every measure, NaN for one that the model does not reach. Where
    training stopped at a loss that is not finite, all count as NaN."""
    check: Callable[[Any, str | None], object]
    """Finds the data for settings in a folder, or raises UserError; ValueError where the settings
    do not fit."""
    measures: tuple[Measure, ...]
    """The first is the main measure of the task."""
