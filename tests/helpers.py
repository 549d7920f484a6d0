"""Helpers for tests of commands: run a command, read its output, check its errors."""

import csv

import torch
import yaml

from training.io import checkpoint


def run_command(command, *words):
    """The exit status of a command (a module with `main`, or that function)."""
    return getattr(command, "main", command)([str(word) for word in words])


def refused(capsys, command, arguments, *sentences):
    """A command must exit with status 2 and one line of error that holds all `sentences`; returns
    that line. A progress bar may stand before it."""
    capsys.readouterr()
    status = run_command(command, *arguments)
    error = capsys.readouterr().err
    assert status == 2, error
    assert "Traceback" not in error
    last = error.splitlines()[-1]
    assert last.startswith("error: ")
    for sentence in sentences:
        assert str(sentence) in last, last
    return last


def train(command, job, run, *arguments):
    """Train from a configuration, a path or a dict (written beside `run`); returns `run`."""
    if isinstance(job, dict):
        run.parent.mkdir(parents=True, exist_ok=True)
        path = run.with_name(f"{run.name}.yaml")
        path.write_text(yaml.safe_dump(job))
        job = path
    assert run_command(command, "--config", job, "--out", run, *arguments) == 0
    return run


def metrics(run, without=("wall_s", "data_share")):
    """The rows of metrics.csv, without the columns that depend on the machine."""
    with open(run / "metrics.csv", newline="") as file:
        return [{k: v for k, v in row.items() if k not in without} for row in csv.DictReader(file)]


def checkpoints(run):
    """The bytes of every checkpoint of a run, by file name."""
    return {path.name: path.read_bytes() for path in checkpoint.in_run(run)}


def tensor_files(run):
    """The bytes of every safetensors file of a run (checkpoints and collected data), by its path in
    the run."""
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.glob("*/*.safetensors"))}


def same_results(run, other):
    """Every metric that does not depend on the machine, and every tensor and state of every
    checkpoint are equal, bit for bit."""
    assert metrics(run) == metrics(other)
    assert checkpoints(run).keys() == checkpoints(other).keys()
    for a, b in zip(checkpoint.in_run(run), checkpoint.in_run(other), strict=True):
        ours, theirs = checkpoint.load(a), checkpoint.load(b)
        assert ours.state == theirs.state
        for mine, its in ((ours.policy, theirs.policy), (ours.search, theirs.search)):
            assert mine.keys() == its.keys()
            assert all(torch.equal(mine[name], its[name]) for name in mine)
