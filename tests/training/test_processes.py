"""Worker processes: they begin as asked, and none outlives the process that opened them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.background import wait_for
from training.collect.processes import open_processes

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from training.collect.processes import open_processes

if __name__ == "__main__":
    pool = open_processes(2)
    waiting = [pool.submit(time.sleep, 100) for _ in range(2)]
    print(*pool._processes, flush=True)
    time.sleep(100)
"""


def test_they_begin_as_asked():
    with open_processes(1, sys.setrecursionlimit, 4321) as pool:
        assert pool.submit(sys.getrecursionlimit).result() == 4321


@pytest.mark.records
def test_a_killed_parent_leaves_none_behind(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    parent = subprocess.Popen(
        [sys.executable, str(program), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    children = [Path("/proc") / pid for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    assert all(child.exists() for child in children)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not any(child.exists() for child in children), seconds=30)
