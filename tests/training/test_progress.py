"""The progress bar shows something on every terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

PROGRAM = """
from training.command.progress import ProgressBar
bar = ProgressBar(total=3, unit="it", mininterval=0)
for _ in range(3):
    bar.set_postfix_str("reward 1.5", refresh=False)
    bar.update()
bar.close()
"""


def shown(rows, columns, **environment):
    """What a terminal of that size shows."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    usual = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stderr=follower, env={**usual, **environment}
    ) as process:
        os.close(follower)
        text = b""
        while chunk := _read(leader):
            text += chunk
    os.close(leader)
    assert process.returncode == 0
    return text.decode()


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # of a terminal that was closed
        return b""


@pytest.mark.parametrize("size", [(0, 0), (1, 1)])
def test_progress_is_shown_on_terminals_of_every_size(size):
    text = shown(*size)
    assert "3/3" in text
    assert "reward 1.5" in text


@pytest.mark.parametrize("columns", ["-5", "many"])
def test_an_odd_COLUMNS_hides_nothing(columns):
    assert "3/3" in shown(24, 0, COLUMNS=columns, LINES=columns)


def test_a_wide_terminal_is_filled_and_no_more():
    *_, last = shown(24, 100).rstrip().rpartition("\r")
    assert 90 < len(last) <= 100
