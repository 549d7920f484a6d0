"""Control-C and other signals: at any moment of any command one line, and its exit status."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import yaml

from tests.training.background import ROOT, sockets, start, wait_for
from tests.training.study_jobs import WALK
from tests.training.test_es import SMALL as SMALL
from tests.training.test_full_disk import BC

COMMANDS = {
    "es": ["--set", "popsize=4", "terrains=1", "episode_s=2", "--out"],
    "bc": ["--set", "expert_episodes=4", "episodes=2", "workers=2", "episode_s=2", "--out"],
    "demos": ["--env", "BimanualSweep-v0", "--workers", "2", "--set", "image_px=250", "--out"],
    "study": ["--config", "configs/studies/stepping_stones.yaml", "--set", "parallel=2", "--out"],
    "rollout": ["stepping_stones", "--episodes", "20", "--video"],
    "evaluate": ["stepping_stones", "--workers", "2", "--out"],
}
LINE = re.compile("interrupted|terminated|stopped")


def answers_signals(process):
    """Whether our code has begun: Python itself leaves SIGTERM alone."""
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(caught[1], 16) >> (signal.SIGTERM - 1) & 1


@pytest.mark.parametrize(
    ("command", "after_s", "signals", "group"),
    [
        ("es", 0.0, [signal.SIGINT], False),
        pytest.param("evaluate", 0.5, [signal.SIGINT] * 2, True, marks=pytest.mark.records),
        pytest.param("rollout", 2.5, [signal.SIGHUP], False, marks=pytest.mark.records),
        pytest.param("demos", 3.0, [signal.SIGINT], True, marks=pytest.mark.records),
        pytest.param("bc", 4.5, [signal.SIGTERM], True, marks=pytest.mark.records),
        pytest.param("study", 1.5, [signal.SIGTERM], False, marks=pytest.mark.records),
    ],
)
def test_a_signal_at_any_moment_is_one_line(tmp_path, command, after_s, signals, group):
    """Sent to a command, or to its process group as a terminal does, some time after it began."""
    place = str(tmp_path / ("walk.mp4" if command == "rollout" else "out"))
    process = start(f"training.{command}", [*COMMANDS[command], place], start_new_session=True)
    wait_for(lambda: answers_signals(process), process)
    time.sleep(after_s)
    for each in signals:
        (os.killpg if group else os.kill)(process.pid, each)
        time.sleep(0.02)
    printed, _ = process.communicate(timeout=180)
    assert process.returncode == 128 + signals[0], printed
    assert "Traceback" not in printed
    assert "Exception" not in printed
    lines = [line for line in printed.splitlines() if LINE.search(line)]
    assert len(lines) == 1, printed


@pytest.mark.records
def test_training_listens_nowhere_and_sigterm_ends_it_as_control_c_does(job, tmp_path):
    """Two workers are processes, without Ray or a server's socket. The checkpoint is kept, it says
    how to go on, and no worker is left."""
    run = tmp_path / "run"
    words = ["--config", job(iterations=10**6), "--set", "workers=2", "--out", str(run)]
    process = start("training.es", words, start_new_session=True)
    rows = run / "metrics.csv"
    wait_for(lambda: rows.is_file() and rows.read_bytes().count(b"\n") > 1, process)
    found = sockets(process.pid)
    assert len(found) >= 3
    assert set().union(*found.values()) == set()
    names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in found]
    assert not any("raylet" in name or "ray::" in name for name in names)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=180)
    assert process.returncode == 143
    assert re.search(rf"iteration \d+ is saved; resume with: .*--resume {run}", printed)
    wait_for(lambda: not group_lives(process.pid))


@pytest.mark.records
def test_a_closed_terminal_ends_training(tmp_path):
    """As after a lost connection: status 129, also if the output is closed."""
    run, path = tmp_path / "run", tmp_path / "bc.yaml"
    path.write_text(yaml.safe_dump(BC | {"iterations": 10**6}))
    words = ["--config", str(path), "--set", "workers=2", "--out", str(run)]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "training.bc", *words], cwd=ROOT,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    rows = run / "metrics.csv"
    wait_for(lambda: rows.is_file() and rows.read_bytes().count(b"\n") > 1)
    os.close(ours)
    assert process.wait(180) == 129
    wait_for(lambda: not group_lives(process.pid))


def group_lives(group):
    """Whether a process of a group exists that is not a zombie."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(found) == group and state != "Z":
            return True
    return False


@pytest.mark.records
def test_a_command_that_was_started_to_ignore_control_c_does(tmp_path):
    """As a script's background job is."""
    process = start(
        "training.rollout", ["--policy", "blind", "--env", WALK, "--episodes", "20"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    wait_for(lambda: answers_signals(process), process)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=180)
    assert process.returncode == 0, printed
