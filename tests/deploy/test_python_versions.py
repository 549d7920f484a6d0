"""What runs on a robot runs on Python 3.10; the rest says that it needs 3.11."""

import ast
import contextlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import foveate_extras

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OTHERS = {"numpy", "onnxruntime", "cv2", "rclpy", "sensor_msgs", "std_msgs"}
OTHERS |= {"frames", "ros2_messages"}
"""Modules beyond the standard library; the last two are the examples' own."""
NEWER = {
    "typing": "Self Never LiteralString Required NotRequired Unpack TypeVarTuple assert_never "
    "assert_type reveal_type dataclass_transform get_overloads override TypeAliasType TypeIs",
    "datetime": "UTC",
    "enum": "StrEnum ReprEnum EnumCheck FlagBoundary verify member nonmember property",
    "math": "cbrt exp2 sumprod fma",
    "hashlib": "file_digest",
    "contextlib": "chdir",
    "asyncio": "TaskGroup Runner Barrier timeout timeout_at",
    "operator": "call is_none is_not_none",
    "itertools": "batched",
    "logging": "getLevelNamesMapping getHandlerNames",
    "inspect": "getmembers_static ismethodwrapper",
    "sys": "exception activate_stack_trampoline monitoring",
    "threading": "setprofile_all_threads settrace_all_threads",
    "warnings": "deprecated",
    "copy": "replace",
    "tomllib": "*",
    "": "ExceptionGroup BaseExceptionGroup PythonFinalizationError",
    "methods": "add_note walk full_match from_uri readinto1",
}
"""Names that the standard library has since Python 3.11 or later, by module."""


def imported(tree):
    """The modules that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            yield node.module


def robots_files():
    """`deploy.loop`, all of Foveate that it imports, and what runs on the robot in the example."""
    found, waiting = [], ["deploy/__init__.py", "deploy/loop.py"]
    waiting += [
        f"examples/robot/{one}.py" for one in ("walk", "frames", "ros2_node", "ros2_messages")
    ]
    while waiting:
        name = waiting.pop()
        found.append(name)
        for module in imported(ast.parse((ROOT / name).read_text())):
            top = module.partition(".")[0]
            path = f"{module.replace('.', '/')}.py"
            if (ROOT / path).is_file() and path not in [*found, *waiting]:
                waiting.append(path)
            elif top not in OTHERS | {"deploy"}:
                assert top in sys.stdlib_module_names, (name, module)
    return sorted(found)


def newer(module):
    return NEWER.get(module, "").split()


def newer_names(text):
    """What a text uses that Python 3.10 does not have."""
    tree = ast.parse(text, feature_version=(3, 10))
    wrong = [name for name in imported(tree) if NEWER.get(name) == "*"]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            wrong += [one.name for one in node.names if one.name in newer(node.module)]
        if isinstance(node, ast.Name) and node.id in newer(""):
            wrong.append(node.id)
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in newer(owner) + newer("methods"):
                wrong.append(node.attr)
    return wrong


@pytest.mark.parametrize(
    "text",
    [
        "from typing import Self",
        "import datetime\ndatetime.UTC",
        "import tomllib",
        "error.add_note('x')",
        "raise ExceptionGroup('x', [])",
        "try:\n    pass\nexcept* ValueError:\n    pass",
        "def f[T](x: T) -> T: ...",
    ],
)
def test_newer_python_is_found(text):
    with contextlib.suppress(SyntaxError):
        assert newer_names(text)


def test_the_robots_part_is_written_in_python_3_10():
    files = robots_files()
    assert {"deploy/runtime.py", "deploy/frames.py", "deploy/model_file.py"} < {*files}
    assert {
        name: found for name in files if (found := newer_names((ROOT / name).read_text()))
    } == {}
    named = PROJECT["tool"]["ruff"]["per-file-target-version"]
    (braces,) = (key for key in named if "{" in key)
    targets = [f"deploy/{one}.py" for one in braces.partition("{")[2].partition("}")[0].split(",")]
    assert sorted(targets) == [name for name in files if name.startswith("deploy/")]


def test_its_types_are_those_of_python_3_10(tmp_path):
    pytest.importorskip("mypy")
    skipped = (
        "follow_imports = skip\nfollow_imports_for_stubs = True\nignore_missing_imports = True"
    )
    sections = "\n".join(f"[mypy-{name}.*]\n{skipped}" for name in ("numpy", "cv2", "onnxruntime"))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\npython_version = 3.10\n{sections}\n")
    files = [name for name in robots_files() if name.startswith("deploy/")]
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_wheel_installs_on_python_3_10_with_the_robots_requirements_alone():
    project = PROJECT["project"]
    assert project["requires-python"] == ">=3.10"
    for version, needs_torch in (("3.10", False), ("3.11", True), ("3.13", True)):
        (torch,) = map(Requirement, project["dependencies"])
        assert torch.marker.evaluate({"python_version": version}) is needs_torch
    robot = map(Requirement, project["optional-dependencies"]["robot"])
    assert [one.name for one in robot] == ["numpy", "onnxruntime"]


@pytest.mark.parametrize("module", ["attention", "policies", "envs", "training"])
def test_the_rest_says_that_it_needs_python_3_11(module):
    code = f"import sys; sys.version_info = (3, 10, 13); import {module}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert f"ImportError: {module} requires Python 3.11 or later, got" in done.stderr
    foveate_extras.require_python(module)
