"""Workers of pools, for tests."""

import os
import signal
import time
from contextlib import closing

from training.collect.pool import open_pool


class Squares:
    """Squares numbers, and says who did; -1 fails, -2 kills itself, -3 once, -4 hands out what
    cannot be sent, -5 ends its process, -6 takes long."""

    def __init__(self, mark=None, trouble=None):
        if trouble is not None:
            raise trouble
        self.mark = mark

    def run(self, task):
        if task == -1:
            raise LookupError("nothing", 7)
        if task == -2 or (task == -3 and not os.path.exists(self.mark)):
            open(self.mark or os.devnull, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if task == -4:
            return lambda: None
        if task == -5:
            raise SystemExit(3)
        if task == -6:
            time.sleep(60)
        return task * task, os.getpid()

    def close(self):
        """Nothing is held."""


def squared_by_two(number):
    """The square of a number, by a pool of two workers."""
    with closing(open_pool(Squares, 2)) as pool:
        return pool.run([number, 0])[0][0]


class Holding:
    """Makes a file when a task begins, which takes a minute, and another when it is closed;
    "stubborn" tasks cannot be interrupted; with None only waits until a task has started."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, task):
        if task is None:
            while not os.listdir(self.folder):
                time.sleep(0.01)
            return
        open(os.path.join(self.folder, f"begun {task}"), "w").close()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                time.sleep(until - time.monotonic())
            except SystemExit:
                if task != "stubborn":
                    raise

    def close(self):
        open(os.path.join(self.folder, f"closed {os.getpid()}"), "w").close()


class Odd(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
