"""PyBullet environments in Gymnasium form; importing this package registers and describes them.

Every folder here that has a `task.py` is an environment, which that file registers.
"""

from importlib import import_module
from pathlib import Path

from foveate_extras import needs, require_python

require_python("envs")

with needs("envs", "sim", "gymnasium", "numpy", "pydantic"):
    from envs.task import Outcome, Task, find_task, name_of, register, task_of, tasks

__all__ = [
    "BIMANUAL_SWEEP",
    "RECORDED_SPACES",
    "STEPPING_STONES",
    "Outcome",
    "Task",
    "find_task",
    "name_of",
    "register",
    "task_of",
    "tasks",
]

BIMANUAL_SWEEP = "BimanualSweep-v0"
"""Gymnasium's id of the task of sweeping."""
RECORDED_SPACES = "RecordedSpaces-v0"
"""Gymnasium's id of the spaces of a dataset, without a simulator."""
STEPPING_STONES = "SteppingStones-v0"
"""Gymnasium's id of the task of walking over stones."""

_FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/task.py"))

with needs("envs", "sim", "gymnasium", "numpy", "pydantic"):
    for _name in ("stepping_stones", *_FOLDERS):  # the commands' default environment comes first
        import_module(f"envs.{_name}.task")
