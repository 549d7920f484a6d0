"""All tasks of the experiments, by name."""

from __future__ import annotations

from experiments.compositional.settings import COMPOSITIONAL
from experiments.images.settings import IMAGES, TRUSTED_IMAGES
from experiments.language.settings import SAMPLED_SOFTMAX, SOFTMAX_ERRORS
from experiments.speech.settings import SPEECH
from experiments.task import Task
from experiments.text.settings import LISTOPS
from training.command.errors import did_you_mean

__all__ = ["TASKS", "task"]

TASKS = (COMPOSITIONAL, IMAGES, LISTOPS, SAMPLED_SOFTMAX, SOFTMAX_ERRORS, SPEECH, TRUSTED_IMAGES)


def task(name: str) -> Task:
    """The task of a name. Raises ValueError if there is none."""
    for one in TASKS:
        if one.name == name:
            return one
    names = [one.name for one in TASKS]
    raise ValueError(
        f"task must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}"
    )
