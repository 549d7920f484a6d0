"""Worker processes on this machine, which end when the process that started them does."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import connection, context, resource_tracker
from typing import Any

from training.collect import pool
from training.collect.pool import Died, Event, R, T, Worker, WorkerHandle, WorkerPool
from training.command.errors import UserError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_S = 5.0
"""How long a worker may take to close its environment and end, before it is killed."""
_CHECK_S = 1.0
"""How often to check for workers that died while a child of theirs keeps the pipe open."""


@contextmanager
def _blocked() -> Iterator[None]:
    """Block signals: processes that are started meanwhile inherit this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process(context.SpawnProcess):
    """Ignores SIGINT from the start: Control-C is for the process that started it."""

    def start(self) -> None:
        resource_tracker.ensure_running()  # which unblocks signals
        with _blocked():
            super().start()


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

    Control-C is left to the process that opened them. Raises UserError for more than this machine
    can run.
    """
    check_count(count)
    resource_tracker.ensure_running()
    with _blocked():
        return ProcessPoolExecutor(
            count, _Context(), initializer=_prepare, initargs=(begin, arguments)
        )


def _prepare(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        _serve_parent(parent.join)
    if begin is not None:
        begin(*arguments)


def _serve_parent(wait_for_its_end: Callable[[], object]) -> None:
    """Ignore the signals of a terminal, and end when the parent process does."""
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def end() -> None:
        wait_for_its_end()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE_S)  # in which a worker closes its environment
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


class _Handle(WorkerHandle):
    """A worker process, and this end of its pipe.

    Its command is explicit because multiprocessing would run the program's main file again, which
    fails without `if __name__ == "__main__":`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connected, self.until_s = False, 0.0
        self.pipe, theirs = connection.Pipe()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from training.collect.processes import serve;"
            f" serve({theirs.fileno()})"
        )
        options = [f"-W{each}" for each in sys.warnoptions]
        with closing(theirs), _blocked():
            self.process = subprocess.Popen(
                [sys.executable, *options, "-c", program],
                stdin=subprocess.PIPE,  # which ends when this process does
                pass_fds=[theirs.fileno()],
            )

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it died; its next event reports that
            self.pipe.send_bytes(data)


class ProcessPool(WorkerPool[T, R, _Handle]):
    """Workers in processes of this machine.

    They do not run the program's main file again, as other spawned processes do.
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
            self.handles.append(_Handle())

    def assign(self, handle: _Handle, task: Any) -> None:
        # Not `send`, with which PyTorch would pass tensors in shared memory.
        handle.send(pickle.dumps(task))

    def events(self) -> Iterator[tuple[_Handle, Event]]:
        awaited = [h for h in self.handles if not h.ready or h.index is not None]
        came = set(map(id, connection.wait([h.pipe for h in awaited], _CHECK_S)))
        for handle in awaited:
            if id(handle.pipe) in came or handle.process.poll() is not None:
                event = self._event(handle)
                if event is not None:
                    yield handle, event

    def _event(self, handle: _Handle) -> Event | None:
        try:
            if not handle.pipe.poll():
                raise EOFError
            data = handle.pipe.recv_bytes()
        except (EOFError, OSError):
            return None, Died(_cause(handle.process))
        if not handle.connected:
            handle.connected = True
            handle.send(self._make)
            return None
        event: Event = pickle.loads(data)
        if handle.index is not None:
            self._lost = 0
        return event

    def count_loss(self, reason: str) -> None:
        self._lost += 1
        if self._lost > pool.RETRIES:
            raise pool.WorkerDiedError(
                f"{self._lost} worker processes died while starting ({reason})"
            )

    def name_of(self, handle: _Handle) -> str:
        return f"process {handle.process.pid}"

    def ask_to_stop(self, handle: _Handle) -> None:
        if handle.connected and not handle.until_s:  # else it has nothing to close
            handle.process.terminate()
            handle.until_s = time.monotonic() + _PATIENCE_S

    def stop_worker(self, handle: _Handle) -> None:
        self.ask_to_stop(handle)
        _wait(handle.process, max(0.0, handle.until_s - time.monotonic()))
        handle.process.kill()
        _wait(handle.process)
        handle.pipe.close()

    def close(self) -> None:
        idle = [h for h in self.handles if h.ready and h.index is None]
        for handle in idle:
            handle.pipe.close()  # which ends it
        until = time.monotonic() + _PATIENCE_S
        for handle in idle:
            _wait(handle.process, until - time.monotonic())
        for handle in self.handles:
            self.ask_to_stop(handle)
        while self.handles:
            self.stop_worker(self.handles.pop())


def _wait(process: subprocess.Popen[bytes], timeout_s: float | None = None) -> int | None:
    """Its exit status once it has ended or the timeout has passed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    if process.stdin is not None and process.poll() is not None:
        process.stdin.close()
    return process.poll()


def _cause(process: subprocess.Popen[bytes]) -> str:
    code = _wait(process, _PATIENCE_S)
    if code is None or code >= 0:
        return f"exit status {code}"
    return "killed, or out of memory" if code == -signal.SIGKILL else signal.strsignal(-code) or ""


def serve(descriptor: int) -> None:
    """A worker process: greet over a pipe, build the worker, then run task after task until the
    pipe ends or SIGTERM arrives; close the worker."""
    parent, nowhere = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    _serve_parent(lambda: os.read(parent, 1))
    os.set_inheritable(descriptor, False)
    pipe: connection.Connection[bytes, bytes] = connection.Connection(descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # no longer needed
        pipe.send_bytes(b"")
        data = pipe.recv_bytes()
        try:
            worker = pickle.loads(data)()
        except BaseException as error:
            pipe.send_bytes(pickle.dumps((None, pool.startup_error(error))))
            return

        def run(task: bytes) -> bytes:
            return pickle.dumps((worker.run(pickle.loads(task)), None))

        asked: list[int] = []

        def end(signum: int, frame: Any) -> None:
            signal.signal(signum, signal.SIG_IGN)
            asked.append(128 + signum)
            sys.exit(asked[0])

        signal.signal(signal.SIGTERM, end)
        try:
            pipe.send_bytes(pickle.dumps((None, None)))
            while True:
                data, failure = pool.answer(run, pipe.recv_bytes())
                if asked:  # a task answers whatever is raised in it
                    sys.exit(asked[0])
                pipe.send_bytes(data or pickle.dumps((None, failure)))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends already
            worker.close()
