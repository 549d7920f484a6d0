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
    # Background jobs of a script start with SIGINT ignored, and commands under test would inherit
    # it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # nohup ignores SIGHUP; a handler that does nothing is not inherited.
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run the whole suite in parallel; run named tests in one process, without start-up cost."""
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
    """Make initial parameters independent of the tests that ran before."""
    torch.manual_seed(0)
