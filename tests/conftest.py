"""Fixtures for all tests; one thread, so that sums do not depend on the number of cores."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script's background job begins so, and commands that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # So does what nohup starts: a handler that does nothing is not inherited.
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite takes the cores; tests that were named start at once, in one process."""
    if config.args_source is config.ArgsSource.ARGS:
        return 0
    return min(len(os.sched_getaffinity(0)), 4)


@pytest.fixture(scope="session")
def golden() -> dict[str, dict[str, Any]]:
    """Reference values by id, from a folder that is not part of the repository."""
    beside = Path(__file__).resolve().parents[1].parent / "shared"
    path = Path(os.environ.get("FOVEATE_SHARED", beside)) / "golden" / "golden.json"
    if not path.is_file():
        pytest.skip(f"reference values not found: set FOVEATE_SHARED to a folder with {path.name}")
    return {entry["id"]: entry for entry in json.loads(path.read_text())}


@pytest.fixture(autouse=True)
def seed() -> None:
    """Initial parameters that do not depend on which tests ran before."""
    torch.manual_seed(0)
