"""Resident memory over the life cycle of an environment, measured in separate processes."""

import json
import subprocess
import sys

import pytest

import envs

pytestmark = pytest.mark.records
LIVES = {
    envs.STEPPING_STONES: ({}, 110),  # its world is emptied every 100 resets
    # As cheap as its images allow: they are what leaked, 490 kB a reset whatever their size.
    envs.BIMANUAL_SWEEP: ({"image_px": 50, "balls": 1}, 20),
}
BOUND_KB = 6_000
"""Below what the smallest leak of old added, bowls of 30 environments: 13 MB. Above what an
allocator adds by itself: 0.1 to 3 MB."""
RESETS_BOUND_KB = 1_500
"""Of 100 resets, 15 kB each. An allocator adds 0.1 MB to them at the most."""


@pytest.fixture(scope="module")
def grown():
    """kB that each environment added, by name and by what was done; both are measured at once."""
    programs = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.envs.memory", name, json.dumps(settings), str(before)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, (settings, before) in LIVES.items()
    }
    found = {name: program.communicate()[0] for name, program in programs.items()}
    assert all(program.returncode == 0 for program in programs.values())
    return {name: json.loads(output) for name, output in found.items()}


@pytest.mark.parametrize("name", LIVES)
def test_memory_stays_flat_over_100_resets(grown, name):
    assert grown[name]["resets"] < RESETS_BOUND_KB


@pytest.mark.parametrize("name", LIVES)
def test_memory_stays_flat_over_30_environments_made_reset_and_closed(grown, name):
    assert grown[name]["cycles"] < BOUND_KB


@pytest.mark.parametrize("name", LIVES)
def test_environments_that_are_dropped_without_closing_are_freed(grown, name):
    assert grown[name]["drops"] < BOUND_KB
