"""Worker processes on this machine, which end when the process that opened them does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from training.errors import UserError

__all__ = ["open_processes"]

_MOST_PROCESSES, _MOST_A_CORE = 64, 8


def open_processes(
    count: int, begin: Callable[..., None] | None = None, *arguments: Any
) -> ProcessPoolExecutor:
    """A pool of `count` processes, each of which runs `begin(*arguments)` first.

    Control-C is left to the process that opened them. UserError for more than this machine can
    run.
    """
    cores = os.cpu_count() or 1
    most = max(_MOST_PROCESSES, _MOST_A_CORE * cores)
    if count > most:
        raise UserError(
            f"{count} processes are too many for this machine with {cores} cores: give at most "
            f"{most} workers"
        )
    return ProcessPoolExecutor(
        count,
        multiprocessing.get_context("spawn"),  # forked physics and threads do not mix
        initializer=_begin,
        initargs=(begin, arguments),
    )


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    """Leave no process behind when the parent is killed: a pool's workers would wait on."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
