"""Worker pools: in this process, in processes of this machine, or on a Ray cluster.

A worker is built once, by a function that can be pickled, and then runs one task at a time. The
outcome of a task must not depend on the worker that runs it.
"""

import os
import pickle
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from training.command.errors import UserError

RETRIES = 3
"""How often a task whose worker died is run again."""
QUIET_S = "FOVEATE_QUIET_S"
"""Environment variable: after how many seconds without an answer a worker is reported; 600."""
_QUIET_S = 600.0

T = TypeVar("T")
R = TypeVar("R")
T_in = TypeVar("T_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)


class Worker(Protocol[T_in, R_out]):
    """Runs one task at a time."""

    def run(self, task: T_in) -> R_out:
        """Run a task; error messages name it by `str(task)`."""

    def close(self) -> None:
        """Release its resources."""


class WorkerDiedError(UserError):
    """Workers keep dying."""


class Pool(ABC, Generic[T, R]):
    """Runs tasks. An exception of a worker is raised here, and the pool stays usable."""

    @abstractmethod
    def as_finished(self, tasks: Sequence[T]) -> Generator[tuple[int, R]]:
        """Yield each task's index and outcome as it finishes, in any order.

        Closing the iterator stops the running tasks. Raises WorkerDiedError.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the workers."""

    def in_order(self, tasks: Sequence[T]) -> Generator[R]:
        """Yield the outcomes in the order of the tasks, each as soon as it can be."""
        early: dict[int, R] = {}
        due = 0
        with closing(self.as_finished(tasks)) as finished:
            for index, outcome in finished:
                early[index] = outcome
                while due in early:
                    yield early.pop(due)
                    due += 1

    def run(self, tasks: Sequence[T]) -> list[R]:
        """The outcomes in the order of the tasks."""
        return list(self.in_order(tasks))


class InProcessPool(Pool[T, R]):
    """Runs the tasks in this process, one after the other."""

    def __init__(self, make: Callable[[], Worker[T, R]]) -> None:
        self._worker = make()

    def as_finished(self, tasks: Sequence[T]) -> Generator[tuple[int, R]]:
        for index, task in enumerate(tasks):
            yield index, self._worker.run(task)

    def close(self) -> None:
        self._worker.close()


class WorkerHandle:
    """A worker in another process, as its pool sees it."""

    ready = False
    """Whether it is built."""
    index: int | None = None
    """Index of the task that it runs."""
    since_s = 0.0
    """When it started its task, or was last reported; 0: not known yet."""


class Died(Exception):
    """A worker died; `by_task` is whether its task may be the cause."""

    def __init__(self, reason: str, by_task: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.by_task = reason, by_task


Event = tuple[Any, BaseException | None]
"""What a worker answers: the outcome of its task (None when it is built) and None, or None and its
exception: a UserError if the worker cannot be built, `Died` if it is no more."""
H = TypeVar("H", bound=WorkerHandle)


class WorkerPool(Pool[T, R], Generic[T, R, H]):
    """Workers in other processes. A worker that dies is replaced, and its task runs again.

    It is an error if workers die `RETRIES + 1` times over one task, or cannot start.
    """

    def __init__(self) -> None:
        self.handles: list[H] = []

    @abstractmethod
    def start_workers(self) -> None:
        """Start the missing workers. Raises WorkerDiedError if none can be started."""

    @abstractmethod
    def assign(self, handle: H, task: T) -> None:
        """Start a task."""

    @abstractmethod
    def events(self) -> Iterable[tuple[H, Event]]:
        """Wait for events of workers that start or run a task."""

    def ask_to_stop(self, handle: H) -> None:
        """Ask a worker to stop, which `stop_worker` then awaits, where that is possible."""

    @abstractmethod
    def stop_worker(self, handle: H) -> None:
        """Stop a worker: at once, or soon after a request."""

    @abstractmethod
    def count_loss(self, reason: str) -> None:
        """Count a worker that died without a task; WorkerDiedError after too many."""

    def as_finished(self, tasks: Sequence[T]) -> Generator[tuple[int, R]]:
        waiting, deaths = deque(range(len(tasks))), Counter[int]()
        unfinished = len(tasks)
        try:
            while unfinished:
                self.start_workers()
                for handle in self.handles:
                    if handle.ready and handle.index is None and waiting:
                        handle.index, handle.since_s = waiting.popleft(), time.monotonic()
                        self.assign(handle, tasks[handle.index])
                for handle, (value, error) in self.events():
                    index = handle.index
                    if isinstance(error, Died):
                        self._replace(handle, error, waiting, deaths, tasks)
                        continue
                    if error is not None:
                        if not handle.ready:
                            self._remove(handle)
                        handle.index = None
                        raise error
                    handle.ready, handle.index = True, None
                    if index is not None:
                        unfinished -= 1
                        yield index, value
                self._report_quiet(tasks)
        finally:
            busy = [handle for handle in self.handles if handle.index is not None]
            for handle in busy:
                self.ask_to_stop(handle)
            for handle in busy:
                self._remove(handle)

    def _report_quiet(self, tasks: Sequence[T]) -> None:
        """Report workers that have not answered for long: they may hang."""
        now, limit_s = time.monotonic(), _quiet_s()
        for handle in self.handles:
            if handle.ready and handle.index is None:
                continue
            handle.since_s = handle.since_s or now
            if now - handle.since_s > limit_s and sys.stderr is not None:
                what = "its start" if handle.index is None else str(tasks[handle.index])
                print(
                    f"note: a worker ({self.name_of(handle)}) has not answered for {limit_s:g} s, "
                    f"over {what}; {QUIET_S} sets this time",
                    file=sys.stderr,
                )
                handle.since_s = now

    def name_of(self, handle: H) -> str:
        """The name of a worker for a message."""
        return "in another process"

    def _replace(
        self, handle: H, death: Died, waiting: deque[int], deaths: Counter[int], tasks: Sequence[T]
    ) -> None:
        index = handle.index
        self._remove(handle)
        if index is not None:
            waiting.appendleft(index)
        if index is None or not death.by_task:
            self.count_loss(death.reason)
            return
        deaths[index] += 1
        if deaths[index] > RETRIES:
            raise WorkerDiedError(
                f"a worker process died ({death.reason}), {deaths[index]} times over {tasks[index]}"
            )

    def _remove(self, handle: H) -> None:
        self.handles.remove(handle)
        self.stop_worker(handle)


def _quiet_s() -> float:
    try:
        given = float(os.environ.get(QUIET_S, _QUIET_S))
    except ValueError:
        given = 0.0
    if not given > 0:
        raise UserError(f"{QUIET_S} must be a number above 0, got {os.environ[QUIET_S]!r}")
    return given


def startup_error(error: BaseException) -> UserError:
    """The UserError for an exception while a worker is built."""
    if isinstance(error, UserError):
        return error
    return UserError(f"a worker cannot start: {type(error).__name__}: {error}")


def answer(work: Callable[[Any], R], task: Any) -> Event:
    """Run a task in a worker process and return its event."""
    try:
        return work(task), None
    except BaseException as error:
        return None, portable(error)


def portable(error: BaseException) -> Exception:
    """The exception in a form that can be pickled, with its traceback as a note."""
    where = "".join(traceback.format_exception(error))
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    if not (same and isinstance(error, Exception)):
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in a worker:\n{where}")
    return error


def open_pool(
    make: Callable[[], Worker[T, R]], workers: int, ray_address: str | None = None
) -> Pool[T, R]:
    """A pool for `workers` tasks at the same time.

    Args:
        make: builds a worker; it must be picklable if workers run in other processes.
        workers: number of workers; one without `ray_address` runs in this process.
        ray_address: address of a Ray cluster; None: processes on this machine.
    """
    if ray_address is not None:
        from training.collect.ray_pool import RayPool

        return RayPool(make, workers, ray_address)
    if workers == 1:
        return InProcessPool(make)
    from training.collect.processes import ProcessPool

    return ProcessPool(make, workers)


@contextmanager
def temporary_pool(make: Callable[[], Worker[T, R]], workers: int) -> Iterator[Pool[T, R]]:
    """A pool for the duration of a block; afterwards PyTorch's number of threads is restored."""
    import torch

    threads = torch.get_num_threads()
    try:
        with closing(open_pool(make, workers)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
