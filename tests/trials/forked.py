"""A command in a separate process that already has every module: fast, and monitored."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

INTERRUPT_S, LONGEST_S = 6.0, 20.0
MOST_BYTES = 2 * 10**9
_CEILING_BYTES = 10 * 2**30  # of address space: the machine survives what the trial finds
CRASHED = 70
ERRORS = ("error: ", "deploy.loop: ")
"""Beginnings of the sentence on standard error."""


class Verdict(NamedTuple):
    """How a command ended."""

    status: int
    """Exit status; minus the signal where one ended it."""
    wall_s: float
    """Less the share that other processes of a busy machine took."""
    bytes: int
    """Most memory that it had at once."""
    out: str
    err: str

    def faults(self) -> list[str]:
        """Errors that no input may cause, in words; empty for a good command.

        A job that an input made long, and that is interrupted, has no fault.
        """
        found = []
        if self.status not in (0, 2, 130):
            found.append(f"exit status {self.status}")
        if "Traceback" in self.err + self.out:
            found.append("a traceback")
        if self.wall_s > LONGEST_S:
            found.append(f"{self.wall_s:.0f} s")
        if self.bytes > MOST_BYTES:
            found.append(f"{self.bytes / 1e9:.1f} GB of memory")
        if self.status == 2:
            errors = [line for line in self.err.splitlines() if line.startswith(ERRORS)]
            if len(errors) != 1 or not self.err.rstrip().endswith(errors[0]):
                found.append("no sentence at the end")
        return found


def run(
    command: Callable[[list[str]], int], words: Sequence[str], logs: Path, patience: float = 1
) -> Verdict:
    """Run `command(words)` in a forked process; interrupted after some seconds, then killed.

    `patience` prolongs both, and so does a machine with more processes than processors.
    """
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(command, list(words), logs)
    interrupted = False
    while True:
        ended, code, usage = os.wait4(child, os.WNOHANG)
        wall_s = (time.monotonic() - began) / busy
        if ended:
            break
        if wall_s > patience * INTERRUPT_S and not interrupted:
            os.kill(child, signal.SIGINT)
            interrupted = True
        if wall_s > patience * LONGEST_S + 2:
            _kill_all(child)
        time.sleep(0.01)
    _kill_all(child)  # its workers, where it left some
    return Verdict(
        os.waitstatus_to_exitcode(code), wall_s, 1024 * usage.ru_maxrss,
        *((logs / name).read_text(errors="replace") for name in ("out", "err")),
    )  # fmt: skip


def _kill_all(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _be_child(command: Callable[[list[str]], int], words: list[str], logs: Path) -> None:
    status = CRASHED
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_AS, (_CEILING_BYTES, _CEILING_BYTES))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (
            _redirected(n, logs / name) for n, name in ((1, "out"), (2, "err"))
        )
        status = command(words)
    except SystemExit as exit_:  # argparse's
        status = exit_.code if isinstance(exit_.code, int) else CRASHED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _redirected(number: int, path: Path) -> TextIO:
    """A stream into a file, under the descriptor that other processes of the command inherit."""
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    return os.fdopen(number, "w", closefd=False, errors="backslashreplace")
