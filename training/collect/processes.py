"""Worker processes on this machine, which end when the process that opened them does."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import connection, context, resource_tracker
from types import ModuleType
from typing import Any

from training.collect.pool import (
    RETRIES,
    Death,
    Failure,
    Outcome,
    R,
    T,
    Worker,
    WorkerDiedError,
    WorkerHandle,
    WorkerPool,
    portable,
    startup_error,
)
from training.command.errors import UserError

__all__ = ["ProcessPool", "open_processes"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_S = 5.0
"""How long an idle worker may take to end, before it is killed."""


class _Process(context.SpawnProcess):
    """From its first instruction deaf to Control-C, which is for the process that opened it."""

    def start(self) -> None:
        with _blocked():
            super().start()


@contextmanager
def _blocked() -> Iterator[None]:
    """Block signals, which processes that are begun meanwhile inherit."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # which that has undone
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(context.SpawnContext):  # spawned: forked physics and threads do not mix
    Process = _Process


_MOST_PROCESSES, _MOST_A_CORE = 64, 8


def check_count(count: int) -> None:
    """UserError for more processes than this machine can run."""
    cores = os.cpu_count() or 1
    most = max(_MOST_PROCESSES, _MOST_A_CORE * cores)
    if count > most:
        raise UserError(
            f"{count} processes are too many for this machine with {cores} cores: give at most "
            f"{most} workers"
        )


def open_processes(
    count: int, begin: Callable[..., None] | None = None, *arguments: Any
) -> ProcessPoolExecutor:
    """A pool of `count` processes, each of which runs `begin(*arguments)` first.

    Control-C is left to the process that opened them. UserError for more than this machine can
    run.
    """
    check_count(count)
    with _blocked():
        return ProcessPoolExecutor(
            count, _Context(), initializer=_begin, initargs=(begin, arguments)
        )


def _begin(begin: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()) -> None:
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    """Leave no process behind when the parent is killed: a pool's workers would wait on."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Handle(WorkerHandle):
    """A worker process, and this end of its pipe."""

    def __init__(self) -> None:
        super().__init__()
        self.here = False
        self.pipe, self.theirs = connection.Pipe()
        self.process = _Process(target=_serve, args=(self.theirs,))


class ProcessPool(WorkerPool[T, R, _Handle]):
    """Workers in processes of this machine.

    They do not run the program's own file again, as other spawned processes do.
    """

    def __init__(self, make: Callable[[], Worker[T, R]], workers: int) -> None:
        super().__init__()
        check_count(workers)
        self._make, self._workers, self._lost = pickle.dumps(make), workers, 0
        try:
            self.start_workers()
        except BaseException:
            self.close()
            raise

    def start_workers(self) -> None:
        while len(self.handles) < self._workers:
            handle = _Handle()
            self.handles.append(handle)
            with _no_program():
                handle.process.start()
            handle.theirs.close()

    def assign(self, handle: _Handle, task: Any) -> None:
        # Not `send`, with which PyTorch would handle tensors over in shared memory.
        self._send(handle, pickle.dumps(task))

    @staticmethod
    def _send(handle: _Handle, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it died, as its next event says
            handle.pipe.send_bytes(data)

    def events(self) -> Iterator[tuple[_Handle, Outcome | Failure | Death]]:
        awaited = [
            handle for handle in self.handles if not handle.ready or handle.index is not None
        ]
        signs: list[Any] = [handle.pipe for handle in awaited]
        signs += [
            handle.process.sentinel for handle in awaited
        ]  # its own children may hold its pipe
        came = set(map(id, connection.wait(signs)))
        for handle in awaited:
            if id(handle.pipe) in came or not handle.process.is_alive():
                event = self._event(handle)
                if event is not None:
                    yield handle, event

    def _event(self, handle: _Handle) -> Outcome | Failure | Death | None:
        try:
            if not handle.pipe.poll():
                raise EOFError
            data = handle.pipe.recv_bytes()
        except (EOFError, OSError):
            return Death(_cause(handle.process))
        if not handle.here:
            handle.here = True
            self._send(handle, self._make)
            return None
        event: Outcome | Failure = pickle.loads(data)
        if handle.index is not None:
            self._lost = 0
        return event

    def count_loss(self, reason: str) -> None:
        self._lost += 1
        if self._lost > RETRIES:
            raise WorkerDiedError(f"{self._lost} worker processes died while they began ({reason})")

    def stop_worker(self, handle: _Handle) -> None:
        if handle.process.pid is not None:  # else it was interrupted before it began
            handle.process.kill()
            handle.process.join()
        handle.pipe.close()
        handle.theirs.close()

    def close(self) -> None:
        idle = [handle for handle in self.handles if handle.ready and handle.index is None]
        for handle in idle:
            handle.pipe.close()  # which ends it
        until = time.monotonic() + _PATIENCE_S
        for handle in idle:
            handle.process.join(max(0.0, until - time.monotonic()))
        while self.handles:
            self.stop_worker(self.handles.pop())


@contextmanager
def _no_program() -> Iterator[None]:
    """Hide the program's file from processes that are begun: they would run it again."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


def _cause(process: _Process) -> str:
    process.join(_PATIENCE_S)
    code = process.exitcode
    if code is None or code >= 0:
        return f"exit status {code}"
    return "killed, or out of memory" if code == -signal.SIGKILL else signal.strsignal(-code) or ""


def _serve(pipe: connection.Connection[bytes, bytes]) -> None:
    """A worker process: greet, build the worker, then run task after task until the pipe ends."""
    _begin()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # no longer needed
        pipe.send_bytes(b"")
        data = pipe.recv_bytes()
        try:
            worker = pickle.loads(data)()
        except BaseException as error:
            pipe.send_bytes(pickle.dumps(Failure(startup_error(error))))
            return
        pipe.send_bytes(pickle.dumps(Outcome()))
        with closing(worker):
            while True:
                pipe.send_bytes(_answer(worker, pipe.recv_bytes()))


def _answer(worker: Worker[Any, Any], data: bytes) -> bytes:
    try:
        return pickle.dumps(Outcome(worker.run(pickle.loads(data))))
    except BaseException as error:
        return pickle.dumps(Failure(portable(error)))
