"""PyBullet environments in Gymnasium form; importing this package registers and describes them."""

from envs.bimanual_sweep import task as _sweep
from envs.stepping_stones import task as _stones
from envs.task import Outcome, Task, find_task, register, tasks

__all__ = [
    "BIMANUAL_SWEEP",
    "STEPPING_STONES",
    "Outcome",
    "Task",
    "find_task",
    "register",
    "tasks",
]

BIMANUAL_SWEEP, STEPPING_STONES = _sweep.BIMANUAL_SWEEP, _stones.STEPPING_STONES

register(_stones.TASK, "envs.stepping_stones.env:SteppingStonesEnv")
register(_sweep.TASK, "envs.bimanual_sweep.env:BimanualSweepEnv")
