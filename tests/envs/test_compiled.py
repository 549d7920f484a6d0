"""Compiled functions behave as their source."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from envs.compiled import compiled
from tests.envs.episodes import expert, make

WALK = """
import json, sys
from tests.envs.test_compiled import walked
json.dump(walked(), sys.stdout)
"""


def walked() -> list[list[float]]:
    """Torques that would come next after each decision of a walk."""
    with make() as env:
        env.reset(seed=4)
        inner, torques = env.unwrapped, []
        for _ in range(12):
            command = inner._course.command(np.asarray(expert(env), float))
            env.step(expert(env))
            torques.append(inner._locomotion.torques(command).ravel().tolist())
    return torques


def test_a_walk_is_that_of_the_source_as_it_is():
    """Python adds in the same order; the last digit may be rounded differently."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", WALK]
    source = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = np.array(json.loads(source.stdout))
    assert np.abs(expected).max() > 10
    np.testing.assert_allclose(walked(), expected, rtol=0, atol=1e-9)


@pytest.mark.records
def test_what_was_kept_and_cannot_be_read_is_compiled_again(tmp_path):
    """A damaged cache index, here an empty file, is replaced for the next process."""
    module = tmp_path / "doubled.py"
    module.write_text(
        "import resource, sys\n"
        "if 'full' in sys.argv: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from envs.compiled import compiled\n@compiled\ndef twice(x):\n    return 2 * x\n"
        "print(twice(1.5), sum(twice.stats.cache_hits.values()))\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}

    def run(*disk: str) -> str:
        command = [sys.executable, str(module), *disk]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run() == "3.0 0"
    assert run() == "3.0 1"
    (index,) = (tmp_path / "kept").rglob("*.nbi")
    index.write_bytes(b"")
    assert run("full") == "3.0 0"
    assert run() == "3.0 0"
    assert run() == "3.0 1"
    for folder in {path.parent for path in (tmp_path / "kept").rglob("*.nbi")}:
        shutil.rmtree(folder)
        folder.write_text("a file where a folder is needed")
    assert run() == "3.0 0"


@pytest.mark.records
def test_a_change_of_a_function_that_another_file_uses_counts(tmp_path):
    """Directly, or through a third file."""
    head = "from envs.compiled import compiled\n"
    (tmp_path / "second.py").write_text(
        f"{head}from first import once\n@compiled\ndef twice(x):\n    return 2 * once(x)\n"
    )
    (tmp_path / "third.py").write_text(
        f"{head}from second import twice\n@compiled\ndef thrice(x):\n    return 3 * twice(x)\n"
        "print(thrice(1.0))\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for more in ("", " + 0.25"):
        (tmp_path / "first.py").write_text(f"{head}@compiled\ndef once(x):\n    return x{more}\n")
        command = [sys.executable, "-m", "third"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ("7.5" if more else "6.0")


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same():
    """A function without a source file has no cache directory."""
    names: dict = {}
    exec("def twice(x):\n    return 2 * x", names)
    twice = compiled(names["twice"])
    assert twice(1.5) == 3.0
    assert twice.signatures  # type: ignore[attr-defined]
