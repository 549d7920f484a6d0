"""Files are written whole or not at all, and read only where they are files."""

import os
import stat
import subprocess

import pytest

from tests.training.limits import files_of_at_most
from training.command import files
from training.command.errors import UserError
from training.io.run_log import Board


def test_a_write_is_whole_or_nothing_and_names_its_file(tmp_path):
    path = tmp_path / "a.json"
    files.write_atomically(path, b"old")
    with files_of_at_most(100), pytest.raises(OSError, match="File too large") as caught:
        files.write_atomically(path, bytes(5000))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]
    assert files.refusal(caught.value) == f"{path}: File too large"


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    done = subprocess.Popen(["true"])
    done.wait()
    kept = [tmp_path / f".a.json.{os.getppid()}", tmp_path / ".a.json.old", tmp_path / ".b.json.7"]
    for path in (*kept, tmp_path / f".a.json.{done.pid}"):
        path.write_text("half")
    files.write_atomically(tmp_path / "a.json", b"{}")
    assert {*tmp_path.iterdir()} == {*kept, tmp_path / "a.json"}


def test_a_name_is_on_the_disk_when_its_file_is_written(tmp_path, monkeypatch):
    synced = []
    sync = os.fsync
    monkeypatch.setattr("os.fsync", lambda f: (synced.append(os.readlink(f"/proc/self/fd/{f}")),
                                               sync(f)))  # fmt: skip
    files.write_atomically(tmp_path / "a", b"x")
    assert synced[-1] == str(tmp_path)
    assert len(synced) == 2


def test_what_is_appended_is_written_or_an_error_names_the_file(tmp_path):
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as file:
        files.append(file, b"12")
        with files_of_at_most(4), pytest.raises(OSError, match="File too large") as caught:
            files.append(file, b"3456")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"1234"


def special(path):
    """Make what is no regular file; a name not known here is left absent."""
    kinds = {
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": lambda path: path.mkdir(),
        "circle": lambda path: path.symlink_to(path),
        "dangling": lambda path: path.symlink_to(path.with_name("nowhere")),
        "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
        "endless": lambda path: (path.touch(), os.truncate(path, 10**12)),
    }
    kinds.get(path.name, lambda path: None)(path)
    return path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("pipe", "not a regular file"),
        ("device", "not a regular file"),
        ("folder", "Is a directory"),
        ("circle", "Too many levels of symbolic links"),
        ("dangling", "No such file"),
        ("socket", "No such device or address"),
        ("endless", "it is larger than 64 MiB"),
        ("x" * 300, "File name too long"),
        ("a\0b", "the name is not a valid file name"),
    ],
)
def test_only_files_are_read(tmp_path, monkeypatch, kind, reason):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with pytest.raises(OSError, match=reason) as caught:
        files.read_bytes(special(tmp_path / kind))
    assert kind in caught.value.filename


def test_what_a_lock_leads_to_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("all of it")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot write the run directory"), files.lock(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "all of it"


def test_a_lock_that_is_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    refused = pytest.raises(UserError, match="another process is writing in")
    with files.lock(tmp_path), refused, files.lock(tmp_path):  # it is held as well as a file
        pass


def curves(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


def test_tensorboard_shows_what_was_logged_and_hides_what_is_done_again(tmp_path):
    board = Board(tmp_path, 0)
    for step in (1, 2, 3):
        board.add({"train/loss": step / 2, "train/level": float("nan")}, step)
    board.close()
    assert curves(tmp_path) == {"train/loss": [(1, 0.5), (2, 1.0), (3, 1.5)]}
    board = Board(tmp_path, 1)
    board.add({"train/loss": 7.0}, 2)
    board.close()
    assert curves(tmp_path) == {"train/loss": [(1, 0.5), (2, 7.0)]}


def test_a_full_disk_stops_the_curves_with_a_sentence(tmp_path):
    board = Board(tmp_path, 0)
    refused = pytest.raises(UserError, match=r"cannot write .*events\.out.*: File too large")
    with files_of_at_most(board.path.stat().st_size + 10), refused:
        board.add({"train/loss": 1.0}, 1)
    board.close()
    with files_of_at_most(0), pytest.raises(UserError, match=r"cannot write .*events\.out"):
        Board(tmp_path, 0)
