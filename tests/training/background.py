"""Commands that run beside a test, to be interrupted or killed."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(module, arguments, **extra):
    """`python -m module arguments` in the project's root, what it prints in one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **extra,
    )  # fmt: skip


def wait_for(condition, process=None, seconds=120):
    """Return when `condition()` holds; fail after `seconds`, or when `process` ends before."""
    until = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until, "timed out"
        time.sleep(0.005)
