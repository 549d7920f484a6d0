"""Trackers: what they are given, once; that none stops or changes a run; names and extras."""

import math
import random
import socket
import subprocess
import sys
from contextlib import closing, nullcontext
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from tests.helpers import refused
from tests.training import custom_tracker, random_search, test_es, test_trainers
from tests.training.test_trainers import written
from training import es
from training.algorithms.command import main
from training.command.signals import Interrupted
from training.io import checkpoint, run_log, trackers
from training.io.config import UserError
from training.io.run_log import RunLog
from training.io.trackers import Tracking

PARTS = "tests.training.custom_tracker:Lines"
COLUMNS = ("iteration", "loss", "success", "wall_s")
CONFIG = {"seed": 3, "env": {"gap_m": [0.1, 0.2]}}


@pytest.fixture
def run(tmp_path):
    directory = tmp_path / "run"
    run_log.create(directory, CONFIG)
    trackers.admit(PARTS)
    return directory


def write(run, iterations, start=0, name=PARTS, closes=True):
    log = RunLog(run, COLUMNS, iteration=start, total=9, tracking=Tracking(name, run, CONFIG))
    with closing(log) if closes else nullcontext():
        for i in iterations:
            log.row({"iteration": i, "loss": i / 3, "success": math.nan, "wall_s": 0.5 * i}, "")


def steps(run):
    return [line["step"] for line in custom_tracker.read(run)]


def test_a_tracker_gets_each_row_once_with_what_it_missed_and_no_odd_numbers(run):
    write(run, [1, 2], name="none")
    write(run, [3], start=2)
    write(run, [2, 3, 4], start=1)
    assert steps(run) == [1, 2, 3, 4]
    first = {"step": 1, "seed": 3, "train/loss": 1 / 3, "train/wall_s": 0.5}
    assert custom_tracker.read(run)[0] == first


@pytest.mark.parametrize(
    ("method", "error"),
    [("__init__", SystemExit), ("last_step", RuntimeError), ("log", SystemExit),
     ("close", RuntimeError)],
)  # fmt: skip
def test_an_error_of_a_tracker_ends_the_tracking_alone(run, monkeypatch, capsys, method, error):
    def fail(*given):
        raise error("no such\nserver")

    monkeypatch.setattr(custom_tracker.Lines, method, fail)
    write(run, [1, 2])
    assert len((run / "metrics.csv").read_text().splitlines()) == 3
    assert capsys.readouterr().err.count("warning: ") == 1
    monkeypatch.undo()
    write(run, [3], start=2)
    assert steps(run) == [1, 2, 3]


def test_an_interrupt_within_a_tracker_is_no_error_of_it(run, monkeypatch):
    def interrupt(*given):
        raise Interrupted(15)

    monkeypatch.setattr(custom_tracker.Lines, "log", interrupt)
    with pytest.raises(Interrupted):
        write(run, [1])


def test_what_a_tracker_draws_is_put_back(run):
    def drawn(before):
        random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002
        before()
        return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    assert drawn(lambda: None) == drawn(lambda: write(run, [1]))


# --- runs ---


@pytest.mark.parametrize(
    "kind", ["own", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("es", "bc"))]
)
def test_a_tracked_run_is_the_same_bit_for_bit_and_tracked_once(tmp_path, monkeypatch, kind):
    """The first part ends after an iteration is tracked, and before its checkpoint is there."""
    job = {**(test_trainers.SEARCH if kind == "own" else test_trainers.JOBS[kind]), "workers": 1}
    command = partial(main, random_search.NAME if kind == "own" else kind)
    words = ["--config", str(written(tmp_path, {**job, "iterations": 2}))]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command([*words, "--out", str(whole)]) == 0

    def stop(log, values, summary, row=RunLog.row):
        row(log, values, summary)
        if values["iteration"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "row", stop)
        tracked = ["--out", str(parts), "--set", f"tracker={PARTS}"]
        assert command([*words, *tracked]) == 130
    assert steps(parts) == [1, 2]
    assert checkpoint.in_run(parts)[-1].name == "000001.safetensors"
    assert command(["--resume", str(parts), "--set", f"tracker={PARTS}"]) == 0
    assert steps(parts) == [1, 2]
    columns = [line.rsplit(",", 1)[0] for line in (parts / "metrics.csv").read_text().split()]
    assert columns == [
        line.rsplit(",", 1)[0] for line in (whole / "metrics.csv").read_text().split()
    ]
    last = [checkpoint.load(run / "checkpoints" / "000002.safetensors") for run in (whole, parts)]
    assert all(torch.equal(value, last[1].policy[name]) for name, value in last[0].policy.items())


def test_a_run_s_file_imports_no_tracker(tmp_path, capsys):
    """Somebody else may have written it; the command that resumes names it."""
    path, run = written(tmp_path, {**test_trainers.SEARCH, "iterations": 1}), tmp_path / "run"
    command = partial(main, random_search.NAME)
    assert command(["--config", str(path), "--out", str(run)]) == 0
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("tracker: none", "tracker: unimported_one:X"))
    assert command(["--resume", str(run), "--set", "iterations=2"]) == 2
    assert "to resume the run, add --set tracker=unimported_one:X" in capsys.readouterr().err
    assert "unimported_one" not in sys.modules
    assert command(["--resume", str(run), "--set", "iterations=2", "tracker=none"]) == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wandbb", r"tracker must be one of none, trackio, wandb, mlflow, got 'wandbb'; module:"
         r"Class names a custom tracker; did you mean wandb\?"),
        ("no_such_module:X", "tracker 'no_such_module:X' cannot be imported: ModuleNotFoundError"),
        ("tests.training.custom_tracker:FILE", "must be a subclass of Tracker or a function"),
    ],
)  # fmt: skip
def test_a_tracker_that_is_none_is_one_sentence(tmp_path, name, sentence):
    with pytest.raises(UserError, match=sentence):
        es.load_config(written(tmp_path, test_es.SMALL), [f"tracker={name}"])


@pytest.mark.parametrize("name", trackers.NAMES[1:])
def test_an_absent_tracker_is_reported_before_anything_is_there(
    tmp_path, monkeypatch, capsys, name
):
    monkeypatch.setitem(sys.modules, name, None)
    words = ["--config", written(tmp_path, test_es.SMALL), "--out", tmp_path / "run"]
    needs = f"tracker = {name} needs ", f': pip install "foveate[{name}]"'
    refused(capsys, es, [*words, "--set", f"tracker={name}"], *needs)
    assert not (tmp_path / "run").exists()


# --- the trackers of the package ---


def kept_by_wandb(run, folder):
    """Steps in its files: records in a log as LevelDB has them (crc 4, length 2, type 1 bytes)."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for path in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        data = path.read_bytes()
        assert len(data) < 32768, "one block"
        at = 7
        while at + 7 <= len(data):
            length = int.from_bytes(data[at + 4 : at + 6], "little")
            record = Record.FromString(data[at + 7 : at + 7 + length])
            at += 7 + length
            if record.HasField("history"):
                found.append(record.history.step.num)
    return found


def kept_by_mlflow(run, folder):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run.resolve() / 'mlflow' / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'foveate'")
    (one,) = client.search_runs([experiment.experiment_id])
    assert one.data.params["env.gap_m"] == "[0.1, 0.2]"
    assert one.info.status == "FINISHED"
    return [metric.step for metric in client.get_metric_history(one.info.run_id, "train/loss")]


def kept_by_trackio(run, folder):
    import sqlite3

    with closing(sqlite3.connect(folder / "foveate.db")) as database:
        return [step for (step,) in database.execute("SELECT step FROM metrics ORDER BY id")]


@pytest.mark.slow
@pytest.mark.parametrize("name", trackers.NAMES[1:])
def test_each_goes_on_in_one_run_after_a_kill_and_sends_nothing(run, tmp_path, monkeypatch, name):
    if find_spec(name) is None:
        pytest.skip(f"the extra `{name}` is not installed")
    folder = tmp_path / "trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    connect = socket.socket.connect

    def connects(this, address):
        local = this.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost")
        assert local, f"it would reach {address}"
        return connect(this, address)

    monkeypatch.setattr(socket.socket, "connect", connects)
    program = (
        "import os, sys; from pathlib import Path; from tests.training import test_trackers as t;"
        f"t.write(Path({str(run)!r}), [1, 2, 3], name={name!r}, closes=False); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=test_es.ROOT).returncode == 9
    write(run, [2, 3, 4], start=1, name=name)
    write(run, [5], start=4, name=name)
    kept = {"wandb": kept_by_wandb, "mlflow": kept_by_mlflow, "trackio": kept_by_trackio}
    assert kept[name](run, folder) == [1, 2, 3, 4, 5]


def test_the_tracker_of_the_page_tracks(run):
    page = (test_es.ROOT / "docs" / "guide" / "trackers.md").read_text()
    known = {}
    exec(page.partition("```py\n")[2].partition("```")[0], known)
    trackers._ADMITTED["page:Lines"] = known["Lines"]
    write(run, [1, 2], name="page:Lines")
    write(run, [2, 3], start=1, name="page:Lines")
    lines = (run / "lines.jsonl").read_text().splitlines()
    assert [line[:10] for line in lines] == [f'{{"step": {i}' for i in (1, 2, 3)]
