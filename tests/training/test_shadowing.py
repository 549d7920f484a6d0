"""Packages of a user's own that have our names: a sentence, and the command that works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(words, cwd, **environment):
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Our packages as a wheel installs them, side by side, without what they hold."""
    place = tmp_path_factory.mktemp("site")
    for name in ("training", "attention", "policies", "envs", "configs", "sim_assets"):
        (place / name).mkdir()
        shutil.copy(ROOT / name / "__init__.py", place / name)
    shutil.copy(ROOT / "foveate_extras.py", place)
    shutil.copytree(ROOT / "training/command", place / "training/command")
    (place / "training/es.py").write_text("import policies.config\n")
    (place / "policies/config.py").write_text("print('ours')\n")
    (place / "policies/__init__.py").write_text("PolicyConfig = None\n")
    return place


@pytest.mark.parametrize(
    ("name", "kind"),
    [("attention", "package"), ("policies", "module"), ("envs", "package"), ("configs", "package")],
)
def test_a_package_of_the_users_own_is_reported(installed, tmp_path, name, kind):
    own = tmp_path / (f"{name}.py" if kind == "module" else name)
    if kind == "package":
        own.mkdir()
    (own if kind == "module" else own / "__init__.py").touch()
    done = run(["-m", "training.es", "--help"], tmp_path, PYTHONPATH=str(installed))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {own} hides Foveate's package {name}: run the console script foveate-es in place "
        "of python -m, or start in another directory\n"
    )


def test_a_folder_without_python_files_hides_nothing(installed, tmp_path):
    (tmp_path / "policies").mkdir()
    done = run(["-m", "training.es"], tmp_path, PYTHONPATH=str(installed))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ours\n", "")


def test_our_own_packages_are_found_through_a_link_and_from_elsewhere(tmp_path):
    (tmp_path / "link").symlink_to(ROOT)
    for cwd, path in ((tmp_path / "link", ""), (tmp_path, str(ROOT))):
        done = run(["-c", "import training"], cwd, PYTHONPATH=path)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_distribution_that_was_installed_over_ours_is_reported(installed, tmp_path):
    place = tmp_path / "site"
    shutil.copytree(installed, place)
    (place / "attention/__init__.py").write_text("def attend(): ...\n")
    done = run(["-m", "training.es"], tmp_path, PYTHONPATH=str(place))
    assert done.returncode == 2
    assert f"error: {place}/attention is not Foveate's package attention, as another" in done.stderr
    assert done.stderr.count("\n") == 1


def test_one_that_is_found_before_ours_is_reported(installed, tmp_path):
    (tmp_path / "other/attention").mkdir(parents=True)
    (tmp_path / "other/attention/__init__.py").touch()
    path = os.pathsep.join([str(tmp_path / "other"), str(installed)])
    (tmp_path / "cwd").mkdir()
    done = run(["-m", "training.es"], tmp_path / "cwd", PYTHONPATH=path)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {tmp_path}/other/attention hides Foveate's package attention: run the console "
        "script foveate-es in place of python -m, or rename it, or keep it off Python's path\n"
    )


@pytest.mark.parametrize("name", ["policies", "sim_assets"])
def test_a_console_script_finds_ours_first(installed, tmp_path, name):
    (tmp_path / "other" / name).mkdir(parents=True)
    (tmp_path / "other" / name / "__init__.py").touch()
    script = tmp_path / "foveate-es"
    script.write_text("import training.es, sys\nprint(sys.modules['policies'].__file__)\n")
    path = os.pathsep.join([str(tmp_path / "other"), str(installed)])
    done = run([str(script)], tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"ours\n{installed}/policies/__init__.py\n"


def test_a_program_of_the_users_own_gets_an_exception(installed, tmp_path):
    (tmp_path / "policies.py").touch()
    program = "try:\n    import training\nexcept ImportError as error:\n    print(error)"
    done = run(["-c", program], tmp_path, PYTHONPATH=str(installed))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path}/policies.py hides Foveate's package policies")
