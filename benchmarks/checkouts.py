"""A process that runs one checkout's code and is asked a line at a time, to time two in turn."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["Checkout"]


class Checkout:
    """A process with one thread, whose imports are those of a folder.

    Args:
        folder: the checkout.
        script: what it runs: a file that answers every line of its input by one line.
    """

    def __init__(self, folder: Path, script: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def ask(self, line: str) -> str:
        """The answer to a line; empty where the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """What it says next, such as before it is asked; empty where it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()
