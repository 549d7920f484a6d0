"""One owned PyBullet physics client.

PyBullet's module functions act on client 0 when no client is named, so two environments in one
process would disturb each other. `BulletClient` binds its own client to every call, and frees it
when nothing refers to it any more.
"""

import os
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from envs.display import has_display
from foveate_extras import needs


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Discard the output of a C library while it is loaded."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


with needs("an environment in PyBullet", "sim"), _quiet_stderr():
    # PyBullet announces when it was built, beside every error message.
    import pybullet

__all__ = ["BulletClient", "HoldsPhysics"]


class HoldsPhysics:
    """Base class of objects that hold a physics client; they can be neither copied nor pickled.

    A copy would hold the number of the same client and would move the original's world, or, in
    another process, the world of another environment. PyBullet does not save a world exactly: a
    restored state departs from the original within a few steps.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Called by `copy`, `pickle` and all that build on them.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{type(self).__name__} can be neither copied nor pickled, as its world is inside "
            "PyBullet; make another environment with the same settings, where a reset with the "
            "same seed and the same actions lead to the same state"
        )


class BulletClient(HoldsPhysics):
    """A separate physics server; every `pybullet` function is a method bound to it.

    It is freed by `close`, or else with the last reference to it.

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
        # Not __del__: this also runs once, and before PyBullet is gone, when the process ends.
        self._free = weakref.finalize(self, _disconnect, self.id, os.getpid() if gui else None)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(pybullet, name)
        if callable(attribute):
            if self.id < 0:
                return _closed
            attribute = partial(attribute, physicsClientId=self.id)
        setattr(self, name, attribute)  # the next lookup finds the bound method directly
        return attribute

    def image(
        self,
        width_height: tuple[int, int],
        view: Sequence[float],
        projection: Sequence[float],
        light: Sequence[float],
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Render the world with the software renderer.

        Args:
            width_height: size of the image, pixels.
            view, projection: the camera's matrices, 16 numbers each, as PyBullet computes them.
            light: direction (x, y, z) that the light comes from.

        Returns:
            Colours (height, width, 3), and PyBullet's depths (height, width): 0 near, 1 far.
        """
        width, height = width_height
        _warn_without_numpy()
        _, _, colours, depth, _ = self.getCameraImage(
            width,
            height,
            view,
            projection,
            shadow=0,
            lightDirection=light,
            renderer=pybullet.ER_TINY_RENDERER,
            flags=pybullet.ER_NO_SEGMENTATION_MASK,
        )
        rgba = np.asarray(colours, np.uint8).reshape(height, width, 4)
        return rgba[..., :3], np.asarray(depth, np.float32).reshape(height, width)

    def close(self) -> None:
        """Disconnect; calling it again does nothing, any other call is then a pybullet.error."""
        free = vars(self).get("_free")
        vars(self).clear()  # methods bound to the number too: PyBullet gives it to a later client
        self.id = -1
        if free is not None:
            free()


def _disconnect(number: int, window_of: int | None) -> None:
    """Free a client. A window that a parent process opened is left to the parent."""
    if window_of in (None, os.getpid()) and pybullet.isConnected(number):
        pybullet.disconnect(number)


def _closed(*_: Any, **__: Any) -> NoReturn:
    raise pybullet.error(
        "Not connected to physics server: the environment was closed; make another to continue"
    )


_can_warn = True


def _warn_without_numpy() -> None:
    """Warn once per process if PyBullet returns images as tuples of a million numbers."""
    global _can_warn
    if not _can_warn or pybullet.isNumpyEnabled():
        return
    _can_warn = False
    warnings.warn(
        "PyBullet was built without NumPy, so that every image takes several times as long; "
        "to fix it: pip install numpy setuptools wheel && pip install --no-cache-dir "
        "--no-binary pybullet --no-build-isolation --force-reinstall --no-deps pybullet",
        RuntimeWarning,
        stacklevel=3,
    )
