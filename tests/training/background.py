"""Commands that run beside a test, to be interrupted or killed."""

import os
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


def sockets(pid):
    """Listening TCP sockets of a process and of those that it began."""
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                listening.add(f"socket:[{words[9]}]")
    found = {}
    for each in family(pid):
        links = [os.readlink(link) for link in Path(f"/proc/{each}/fd").iterdir()]
        found[each] = listening & set(links)
    return found


def family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(descendant for child in children for descendant in family(int(child)))]
