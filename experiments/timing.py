"""Interleaved timings: computations in turn, parts of a call, two checkouts in turn.

The speed of a shared machine varies for seconds at a time. So computations that are compared run in
turn, round by round, and figures are medians or least times over rounds."""

import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], Any]
Parts = Mapping[str, Sequence[tuple[Any, str]]]
"""Part -> functions, as (class or module, name)."""


def spent_ms(call: Call, clock: Callable[[], float] = time.process_time) -> float:
    """Milliseconds of a call by a clock of seconds."""
    start = clock()
    call()
    return 1e3 * (clock() - start)


def in_turn(
    calls: Mapping[Key, Call],
    rounds: int | Callable[[float], int],
    clock: Callable[[], float] = time.process_time,
) -> dict[Key, list[float]]:
    """Milliseconds of each call in every round, all calls in turn, after one call each to warm up.

    Args:
        calls: computations by name.
        rounds: how often each is timed, or a function of the milliseconds of its first call.
        clock: returns seconds.
    """
    first = {name: spent_ms(call, clock) for name, call in calls.items()}
    often = {name: rounds if isinstance(rounds, int) else rounds(ms) for name, ms in first.items()}
    times: dict[Key, list[float]] = {name: [] for name in calls}
    for turn in range(max(often.values())):
        for name, call in calls.items():
            if turn < often[name]:
                times[name].append(spent_ms(call, clock))
    return times


def medians(times: Mapping[Key, Sequence[float]]) -> dict[Key, float]:
    """The median of each."""
    return {name: statistics.median(found) for name, found in times.items()}


class Clock:
    """CPU seconds by part of each call of the outermost function.

    Time in a function inside another one counts for the inner one only.
    """

    def __init__(self, outermost: str) -> None:
        self.calls: list[defaultdict[str, float]] = []
        self._outermost, self._inner = outermost, list[float]()

    def around(self, part: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed where it runs inside the outermost one."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._inner:
                if name != self._outermost:
                    return function(*args, **kwargs)
                self.calls.append(defaultdict(float))
            self._inner.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.calls[-1][part] += spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        return timed


@contextmanager
def clocked(parts: Parts, outermost: str) -> Iterator[Clock]:
    """A clock around each part's functions, which are restored at the end."""
    clock = Clock(outermost)
    with ExitStack() as stack:
        for part, functions in parts.items():
            for owner, name in functions:
                timed = clock.around(part, name, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, timed))
        yield clock


class Checkout:
    """A process with one thread that runs a script with the packages of one checkout.

    Args:
        folder: the checkout.
        script: answers every line of its input by one line.
    """

    def __init__(self, folder: Path, script: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def ask(self, line: str) -> str:
        """The answer to a line; empty if the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """The next line of output; empty if the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """Close the input and wait until the process ends."""
        self._process.communicate()
