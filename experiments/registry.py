"""All tasks of the experiments, by name."""

from experiments.compositional.learning import COMPOSITIONAL
from experiments.images import IMAGES, TRUSTED_IMAGES
from experiments.language.learning import SAMPLED_SOFTMAX, SOFTMAX_ERRORS
from experiments.listops import LISTOPS
from experiments.speech.learning import SPEECH
from experiments.task import Task
from training.command.errors import did_you_mean

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
