"""Tasks for workers: in this process, in processes of this machine, or on a Ray cluster.

A worker is built once, by a function that can be pickled, and then runs one task at a time. Which
worker runs a task must not matter, so that outcomes do not depend on where or by how many.
"""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from training.command.errors import UserError

__all__ = [
    "RETRIES",
    "Crew",
    "Death",
    "Failure",
    "Hand",
    "InProcessPool",
    "Outcome",
    "Pool",
    "Worker",
    "WorkerDiedError",
    "beginning",
    "portable",
]

RETRIES = 3
"""How often a task is run again whose worker died of it."""

T = TypeVar("T")
R = TypeVar("R")
T_in = TypeVar("T_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)


class Worker(Protocol[T_in, R_out]):
    """What runs tasks, one at a time."""

    def run(self, task: T_in) -> R_out:
        """Run a task, which `str()` names in error messages."""

    def close(self) -> None:
        """Release what it holds."""


class WorkerDiedError(UserError):
    """Workers died, and go on dying."""


class Pool(ABC, Generic[T, R]):
    """Something that runs tasks. What a worker raises is raised here; the pool can go on."""

    @abstractmethod
    def as_finished(self, tasks: Sequence[T]) -> Generator[tuple[int, R]]:
        """Yield each task's index and outcome as it is finished, in any order.

        To close the iterator stops the tasks that run. Raises WorkerDiedError.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the workers."""

    def in_order(self, tasks: Sequence[T]) -> Generator[R]:
        """Yield the outcomes in the order of the tasks, each as soon as those before are there."""
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
    """Runs the tasks here, one after the other."""

    def __init__(self, make: Callable[[], Worker[T, R]]) -> None:
        self._worker = make()

    def as_finished(self, tasks: Sequence[T]) -> Generator[tuple[int, R]]:
        for index, task in enumerate(tasks):
            yield index, self._worker.run(task)

    def close(self) -> None:
        self._worker.close()


class Hand:
    """A worker elsewhere, seen from here."""

    ready = False
    """Whether it is built."""
    index: int | None = None
    """The task that it runs."""


@dataclass(frozen=True)
class Outcome:
    """A worker is built (None), or has finished its task."""

    value: Any = None


@dataclass(frozen=True)
class Failure:
    """A worker's own exception; of one that cannot be built, a UserError."""

    error: BaseException


@dataclass(frozen=True)
class Death:
    """A worker is no more."""

    reason: str
    by_task: bool = True
    """Whether what it did may be why."""


H = TypeVar("H", bound=Hand)


class Crew(Pool[T, R], Generic[T, R, H]):
    """Workers elsewhere, each of which may die: another takes its place, and its task runs again.

    A task that workers die of `RETRIES + 1` times ends all; so do workers that cannot begin.
    """

    def __init__(self) -> None:
        self.hands: list[H] = []

    @abstractmethod
    def hire(self) -> None:
        """Have as many workers as can be had; WorkerDiedError when that is hopeless."""

    @abstractmethod
    def give(self, hand: H, task: T) -> None:
        """Begin a task."""

    @abstractmethod
    def events(self) -> Iterable[tuple[H, Outcome | Failure | Death]]:
        """Wait a little for news of workers that begin or work."""

    @abstractmethod
    def dismiss(self, hand: H) -> None:
        """End a worker at once."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """Count a worker that ended without a task; WorkerDiedError when it is one too many."""

    def as_finished(self, tasks: Sequence[T]) -> Generator[tuple[int, R]]:
        waiting, deaths = deque(range(len(tasks))), Counter[int]()
        unfinished = len(tasks)
        try:
            while unfinished:
                self.hire()
                for hand in self.hands:
                    if hand.ready and hand.index is None and waiting:
                        hand.index = waiting.popleft()
                        self.give(hand, tasks[hand.index])
                for hand, event in self.events():
                    index = hand.index
                    if isinstance(event, Death):
                        self._replace(hand, event, waiting, deaths, tasks)
                        continue
                    if isinstance(event, Failure):
                        if not hand.ready:
                            self._remove(hand)
                        hand.index = None
                        raise event.error
                    hand.ready, hand.index = True, None
                    if index is not None:
                        unfinished -= 1
                        yield index, event.value
        finally:
            for hand in [hand for hand in self.hands if hand.index is not None]:
                self._remove(hand)

    def _replace(
        self, hand: H, death: Death, waiting: deque[int], deaths: Counter[int], tasks: Sequence[T]
    ) -> None:
        index = hand.index
        self._remove(hand)
        if index is not None:
            waiting.appendleft(index)
        if index is None or not death.by_task:
            self.lost(death.reason)
            return
        deaths[index] += 1
        if deaths[index] > RETRIES:
            raise WorkerDiedError(
                f"a worker process died ({death.reason}), {deaths[index]} times over {tasks[index]}"
            )

    def _remove(self, hand: H) -> None:
        self.hands.remove(hand)
        self.dismiss(hand)


def beginning(error: BaseException) -> UserError:
    """What becomes of an exception in building a worker."""
    if isinstance(error, UserError):
        return error
    return UserError(f"a worker cannot begin: {type(error).__name__}: {error}")


def portable(error: BaseException) -> Exception:
    """An exception as another process can raise it; where it was raised is its note."""
    where = "".join(traceback.format_exception(error))
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    if not (same and isinstance(error, Exception)):
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in a worker:\n{where}")
    return error
