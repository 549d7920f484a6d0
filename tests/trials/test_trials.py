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

from tests.trials import forked, kills, stops

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("forgetting", 12),
        ("onnx_fields", 10),
        pytest.param("odd_envs", 4, marks=pytest.mark.records),
        pytest.param("fuzz", 10, marks=pytest.mark.records),
        pytest.param("stops", 5, marks=pytest.mark.records),
    ],
)
def test_no_case_of_a_few_has_a_fault(name, count, tmp_path):
    """The full numbers are tried by hand; see CONTRIBUTING."""
    words = ["-m", f"tests.trials.{name}", "--count", str(count), "--seed", "1"]
    done = subprocess.run(
        [sys.executable, *words, "--out", str(tmp_path / "out")],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


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


def test_stops_notice_a_file_that_is_lost(tmp_path, monkeypatch):
    def loses(words):
        Path("made").mkdir(exist_ok=True)
        started = Path("made/started.json")
        if not started.exists():
            started.write_text("1")
            Path("made/made.json").write_text("2")
        return 0

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for here in (whole, cut):
        here.mkdir()
    monkeypatch.chdir(whole)
    command = stops.watched(loses, whole / "made", -1, 0, whole / "operations")
    assert forked.run(command, [], whole).status == 0
    operations = (whole / "operations").read_text().split()
    assert operations == ["os.mkdir", "open", "/started.json", "open", "/made.json"]
    monkeypatch.chdir(cut)
    for stop, status in ((2, -9), (-1, 0)):
        command = stops.watched(loses, cut / "made", stop, 0, cut / "operations")
        assert forked.run(command, [], cut).status == status
    lost = kills.differences(*(stops.seen(here / "made") for here in (whole, cut)))
    assert lost == ["made.json"]
