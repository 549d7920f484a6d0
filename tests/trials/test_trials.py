"""Malformed inputs against every command, and that the trials would notice what they look for."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.trials import forked, kills

ROOT = Path(__file__).resolve().parents[2]


def fuzz(inputs, seed, out):
    """What `python -m tests.trials.fuzz` prints, and its exit status."""
    words = ["-m", "tests.trials.fuzz", "--inputs", str(inputs), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, *words, "--out", str(out)],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.records
@pytest.mark.timeout(600)
def test_no_input_of_12_brings_a_traceback_a_hang_or_2_gb(tmp_path):
    status, said = fuzz(12, 1, tmp_path / "fuzz")
    assert status == 0, said


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_input_of_500_brings_a_traceback_a_hang_or_2_gb(tmp_path):
    status, said = fuzz(500, 0, tmp_path / "fuzz")
    assert status == 0, said


def fails(words):
    raise RuntimeError("broken")


def fills_memory(words):
    torch.ones(600_000_000)
    return 0


def says_nothing(words):
    return 2


def never_ends(words):
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(60)


@pytest.mark.parametrize(
    ("command", "fault"),
    [(fails, "a traceback"), (fills_memory, "GB of memory"), (says_nothing, "no sentence")],
)
def test_a_trial_notices(command, fault, tmp_path):
    found = forked.run(command, [], tmp_path).faults()
    assert any(fault in one for one in found), found


def test_a_trial_notices_a_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(forked, "LONGEST_S", 0.5)
    monkeypatch.setattr(forked, "INTERRUPT_S", 0.1)
    verdict = forked.run(never_ends, [], tmp_path)
    assert verdict.status == -9
    assert verdict.wall_s > 0.5
    assert verdict.faults()


def test_kills_notice_one_bit_one_row_and_one_file(tmp_path):
    def leave(folder, weight, reward, more=False):
        (folder / "checkpoints").mkdir(parents=True)
        tensors = {"w": torch.tensor([1.0, weight])}
        save_file(tensors, folder / "checkpoints" / "000001.safetensors", {"state": "{}"})
        rows = f"iteration,reward,wall_s\n1,{reward},{time.time()}\n"
        (folder / "metrics.csv").write_text(rows)
        if more:
            (folder / "episode.hdf5").write_bytes(b"x")
        return kills.contents(folder)

    first = leave(tmp_path / "a", 2.0, 0.5)
    assert kills.differences(first, leave(tmp_path / "b", 2.0, 0.5)) == []
    one_bit = torch.nextafter(torch.tensor(2.0), torch.tensor(3.0)).item()
    for name, left in (
        ("checkpoints/000001.safetensors: w", leave(tmp_path / "c", one_bit, 0.5)),
        ("metrics.csv: row 1", leave(tmp_path / "d", 2.0, 0.6)),
        ("episode.hdf5", leave(tmp_path / "e", 2.0, 0.5, more=True)),
    ):
        assert kills.differences(first, left) == [name]
