"""One owned PyBullet physics client.

PyBullet's module functions act on client 0 when no client is named, so two environments in one
process would disturb each other. `BulletClient` binds its own client to every call.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Send what a C library prints while it loads nowhere."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


with _quiet_stderr():  # PyBullet announces when it was built, beside every error message
    import pybullet

__all__ = ["BulletClient", "has_display"]


def has_display() -> bool:
    """Whether a window can be opened here; PyBullet ends the process where it cannot."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY"))


class BulletClient:
    """A physics server of its own; every `pybullet` function is a method bound to it.

    Args:
        gui: open PyBullet's window instead of computing headless.

    Raises:
        RuntimeError: if PyBullet cannot open a client (no display for `gui`).
    """

    def __init__(self, *, gui: bool = False) -> None:
        self.id = -1
        if gui and not has_display():
            raise RuntimeError("render_mode 'human' needs a display, and DISPLAY is not set")
        self.id = pybullet.connect(pybullet.GUI if gui else pybullet.DIRECT)
        if self.id < 0:
            raise RuntimeError("PyBullet could not open a physics client")

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(pybullet, name)
        if not callable(attribute):
            return attribute
        bound: Callable[..., Any] = partial(attribute, physicsClientId=self.id)
        setattr(self, name, bound)  # the next look-up finds it without this detour
        return bound

    def close(self) -> None:
        """Disconnect; calling it again does nothing, any other call is then a pybullet.error."""
        if self.id >= 0 and pybullet.isConnected(self.id):
            pybullet.disconnect(self.id)
        vars(self).clear()  # methods bound to the number too: PyBullet gives it to a later client
        self.id = -1
