"""`import foveate`: the packages under one name, each module once."""

import importlib
import os
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import foveate

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("attention", "deploy", "envs", "policies", "training")


def run(words, cwd):
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


PROGRAM = """
import sys, foveate
assert foveate.__version__ and not {"torch", "numpy", "attention"} & sys.modules.keys()
from foveate.attention import RandomFeatureAttention
import attention, pickle
assert foveate.attention is attention and RandomFeatureAttention is attention.RandomFeatureAttention
assert b"foveate" not in pickle.dumps(RandomFeatureAttention)
import foveate.deploy.runtime, deploy.runtime
assert foveate.deploy.runtime.Policy is deploy.runtime.Policy
"""


def test_the_name_is_light_and_leads_to_the_same_objects(tmp_path):
    done = run(["-c", PROGRAM], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


COMMANDS = ("es", "bc", "ppo", "demos", "lerobot", "rollout", "evaluate", "flops", "plots", "study",
            "search", "sight")  # fmt: skip


def test_help_is_shown_without_pytorch(tmp_path):
    """By every command that `pyproject.toml` installs, but that of export."""
    program = f"""
import contextlib, importlib, sys
for command in {COMMANDS}:
    module = importlib.import_module("training." + command)
    with contextlib.suppress(SystemExit):
        module.main(["--help"])
    assert "torch" not in sys.modules, command
"""
    done = run(["-c", program], tmp_path)
    assert done.stderr == ""
    assert done.stdout.count("usage: ") == len(COMMANDS)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    assert {*scripts} == {*(f"training.{one}:main" for one in COMMANDS), "deploy.export:main"}


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # of Box2D, when imported
@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_both_names_and_no_package_changes(package):
    """`attention.theory.relative_error`, say, stays the function, not the module of its name."""
    assert getattr(foveate, package) is importlib.import_module(package)
    folders = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(folders, f"{package}."):
        try:
            ours = importlib.import_module(module.name)
        except ImportError:  # of an extra that is not installed
            continue
        parent = sys.modules[module.name.rpartition(".")[0]]
        before = dict(vars(parent))
        assert importlib.import_module(f"foveate.{module.name}") is ours
        assert vars(parent) == before, module.name
        assert ours.__spec__.name == ours.__name__ == module.name


def test_what_is_not_there_is_missing():
    assert set(foveate.__all__) - {"__version__"} == {*PACKAGES} <= {*dir(foveate)}
    with pytest.raises(AttributeError, match="module 'foveate' has no attribute 'tests'"):
        _ = foveate.tests
    for name in ("foveate.tests", "foveate.attention.none"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            importlib.import_module(name)


def test_a_command_runs_by_either_name(tmp_path):
    done = run(["-m", "foveate.training.es", "--set", "iteration=1"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "unknown key iteration; the keys known there are " in done.stderr


def test_a_folder_that_hides_a_package_is_reported(tmp_path):
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention/__init__.py").write_text("print('not ours')\n")
    hides = f"{tmp_path}/attention hides Foveate's package attention: "
    done = run(["-c", "import foveate; foveate.attention"], tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"ImportError: {hides}rename it, or keep it off Python's path\n")
    done = run(["-m", "foveate.training.es"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {hides}run the console script foveate-es")
