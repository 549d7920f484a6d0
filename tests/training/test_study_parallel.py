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

PARTS = {"policy": {**TINY["policy"], "controller": "tests.training.custom_parts:Counting"}}


@pytest.fixture(autouse=True)
def bars(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")  # what a study with processes sets is put back


def write(folder, parallel):
    """A study of two stages with a curve, of policies with a custom controller."""
    changes = {"stages": TWO_STAGES, "curves": [CURVE], "seeds": [0], "parallel": parallel}
    return write_study(folder, PARTS, **changes)


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
    wait_for(lambda: len(list(Path("out").glob("runs/*/checkpoints/*"))) >= 5, process)
    process.send_signal(kill)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == (130 if kill == signal.SIGINT else -signal.SIGKILL)
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_stopped_and_resumed_though_a_controller_is_one_s_own(tmp_path, monkeypatch, in_turn, kill):
    path = write(tmp_path, 2)
    errors = started_and_stopped(path, kill, monkeypatch)
    assert kill == signal.SIGKILL or "leaked" not in errors
    more = ["--set", "parallel=1"] if kill == signal.SIGINT else []  # in processes, or in one
    assert conduct(path, "out", *more) == 0
    assert checkpoints(tmp_path / "out") == checkpoints(in_turn)
    assert figures(tmp_path / "out") == figures(in_turn)


@pytest.mark.parametrize("parallel", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failure_blocks_only_what_needs_it(tmp_path, capsys, parallel):
    """What training refuses in a sentence, and an environment's own error; a rerun tries both."""
    arms = [
        {"name": "good", "set": {"feature_map": "softmax"}},
        *({"name": setting, "set": {f"env.{setting}": True}} for setting in ("nan", "boom")),
    ]
    changes = {"arms": arms, "baseline": "good", "stages": TWO_STAGES, "seeds": [0]}
    path, out = write_study(tmp_path, parallel=parallel, **changes), tmp_path / "out"
    assert conduct(path, out) == 2
    printed = capsys.readouterr()
    page = (out / "report.html").read_text()
    for said in (printed.err, page):
        assert "the reward is nan" in said
        assert "simulator exploded" in said
    refused = [line for line in printed.err.splitlines() if "the reward is nan" in line]
    assert all(line.startswith("error: training stopped: ") for line in refused)
    assert "Traceback" not in printed.err
    assert f"8 parts failed, {out / 'report.html'} lists them; try them again with:" in printed.out
    assert "not finished: 8 of its parts" in page
    for setting in ("nan", "boom"):
        first = out / "runs" / f"{setting}-s0-1"
        assert f"failed: train {first.name}" in printed.out
        assert (
            f"evaluate {setting}-s0: not possible without {first.with_name(f'{setting}-s0')}"
            in page
        )
    assert set(figures(out)) == {"good-s0.json", "oracle.json"}
    assert conduct(path, out) == 2
    assert "error: training stopped" in capsys.readouterr().err
