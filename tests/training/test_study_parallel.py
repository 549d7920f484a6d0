"""Parts of a study made side by side: the same results, interrupted and with failures too."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.background import ROOT, wait_for
from tests.training.study_jobs import (
    CURVE,
    TINY,
    TWO_STAGES,
    checkpoints,
    conduct,
    figures,
    write_study,
)


@pytest.fixture(autouse=True)
def bars(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")  # what a study with processes sets is put back


def write(folder, parallel):
    return write_study(folder, stages=TWO_STAGES, curves=[CURVE], seeds=[0], parallel=parallel)


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """A study whose parts were made one after the other, in `out` of its folder."""
    folder = tmp_path_factory.mktemp("turn")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where a second stage began is in its checkpoint
        assert conduct(write(folder, 1), "out") == 0
    return folder / "out"


def started_and_stopped(path, kill, monkeypatch):
    """Start the study in `out` beside it, stop it once it has five checkpoints; its errors."""
    command = [sys.executable, "-m", "training.study", "--config", str(path), "--out", "out"]
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    wait_for(lambda: len(list(Path("out").glob("runs/*/checkpoints/*"))) >= 5, process, 90)
    process.send_signal(kill)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if kill == signal.SIGINT else -signal.SIGKILL)
    return errors


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_stopped_and_gone_on_with(tmp_path, monkeypatch, in_turn, kill):
    path = write(tmp_path, 2)
    errors = started_and_stopped(path, kill, monkeypatch)
    assert kill == signal.SIGKILL or "leaked" not in errors
    assert conduct(path, "out") == 0
    assert checkpoints(tmp_path / "out") == checkpoints(in_turn)
    assert figures(tmp_path / "out") == figures(in_turn)


def test_a_controller_of_one_s_own_goes_on_in_several_processes(tmp_path, monkeypatch):
    own = {**TINY["policy"], "controller": "tests.training.own_parts:Counting"}
    path = write_study(tmp_path, {"policy": own}, seeds=[0], parallel=2)
    started_and_stopped(path, signal.SIGKILL, monkeypatch)
    assert conduct(path, "out") == 0
    last = [max(run.glob("checkpoints/*")).stem for run in (tmp_path / "out" / "runs").iterdir()]
    assert [int(stem) for stem in last] == [6, 6]


@pytest.mark.parametrize(("setting", "parallel"), [("nan", 2), ("boom", 1), ("boom", 2)])
def test_a_failure_holds_up_nothing_else(tmp_path, capsys, setting, parallel):
    """What training refuses in a sentence, and an environment's own error, which is shown whole."""
    arms = [
        {"name": "good", "set": {"feature_map": "softmax"}},
        {"name": "bad", "set": {f"env.{setting}": True}},
    ]
    path = write_study(tmp_path, arms=arms, baseline="good", seeds=[0], parallel=parallel)
    assert conduct(path, tmp_path / "out") == 2
    printed = capsys.readouterr()
    assert "failed: train bad-s0" in printed.out
    assert ("Traceback" in printed.err) == (setting == "boom")
    assert set(figures(tmp_path / "out")) == {"good-s0.json", "oracle.json"}
    assert ("simulator exploded" in (tmp_path / "out" / "report.html").read_text()) == (
        setting == "boom"
    )
