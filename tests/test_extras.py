"""Extras: their packages, errors for missing ones, and imports of commands."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import foveate_extras
from tests import licences
from training import es, rollout

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_DEVELOPMENT = {"all", "dev", "docs", "test"}
FORMER = {"es", "ray"}
TRACKERS = {"trackio", "wandb", "mlflow"}
"""Extras that are not part of `all`."""
BROUGHT_BY_OTHERS = {"llvmlite", "Box2D", "pygame", "threadpoolctl"}
"""Modules of requirements of our requirements: of Gymnasium's Box2D, and of scikit-learn."""
HEAVY = ("Box2D", "cv2", "matplotlib", "pandas", "pybullet", "pygame", "ray", "sklearn")
HEAVY += ("stable_baselines3", "tensorboard")


def requirements(extra: str) -> list[Requirement]:
    return [Requirement(line) for line in EXTRAS[extra]]


def test_all_brings_every_extra_and_the_documents_name_each() -> None:
    assert requirements("all")[0].extras == EXTRAS.keys() - FOR_DEVELOPMENT - TRACKERS - FORMER
    for document in ("README.md", "docs/guide/install.md"):
        text = (ROOT / document).read_text()
        named = EXTRAS.keys() - FOR_DEVELOPMENT - FORMER | {"all"}
        assert [extra for extra in named if f"`{extra}`" not in text] == []


def test_an_extra_brings_the_modules_that_are_asked_for_by_its_name() -> None:
    owners = metadata.packages_distributions()
    assert foveate_extras.EXTRAS.keys() == EXTRAS.keys() - FOR_DEVELOPMENT - FORMER
    for extra, modules in foveate_extras.EXTRAS.items():
        named = {canonicalize_name(r.name) for r in requirements(extra)} - {"foveate"}
        found = {}
        for module in set(modules) - BROUGHT_BY_OTHERS:
            found[module] = {canonicalize_name(name) for name in owners.get(module, [])}
            assert found[module] & named or not found[module], (extra, module)
        if all(found.values()) and extra != "box2d":  # everything of it is installed here
            assert named == set.union(*found.values()) & named, extra


def test_every_requirement_has_a_version_that_ci_tests_and_torch_alone_is_required() -> None:
    (torch,) = map(Requirement, PROJECT["dependencies"])
    assert (torch.name, [part.operator for part in torch.specifier]) == ("torch", [">="])
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    every = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
    for requirement in map(Requirement, every):
        name = canonicalize_name(requirement.name)
        if name != "foveate":
            assert requirement.specifier.contains(pinned[name]), requirement


def test_no_package_of_all_is_under_the_gpl() -> None:
    found = licences.closure("foveate", ["all"])
    assert {"torch", "daqp", "ray", "numpy"} <= found.keys()
    assert "quadprog" not in found
    there = {name: one for name, one in found.items() if one is not None}
    declared = {name: licences.licences(one) for name, one in there.items()}
    assert {n: d for n, d in declared.items() if any(map(licences.is_copyleft, d))} == {}
    assert licences.is_copyleft("GPLv2+")
    assert not licences.is_copyleft("GNU Lesser General Public License v2 (LGPLv2)")
    named = {requirement.name for extra in EXTRAS for requirement in requirements(extra)}
    assert not {n for n in named if "ffmpeg" in n or "imageio" in n}  # which bundles GPL undeclared


LOADED = """
import importlib, sys
for module in sys.argv[1].split(","):
    try:
        importlib.import_module(module).main(["--help"])
    except SystemExit as leaving:
        assert leaving.code == 0
print("\\nloaded", *(m for m in sys.argv[2].split(",") if m in sys.modules))
"""


def test_help_loads_nothing_that_takes_long() -> None:
    """Of training.es not even PyTorch, which takes a second or two by itself."""
    modules = [target.partition(":")[0] for target in PROJECT["scripts"].values()]
    cases = ((["training.es"], [*HEAVY, "torch", "h5py"]), (modules, list(HEAVY)))
    for commands, names in cases:
        words = [sys.executable, "-c", LOADED, ",".join(commands), ",".join(names)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.count("usage:") == len(commands)
        assert done.stdout.endswith("\nloaded\n"), done.stdout[-200:]


def run_without(
    modules: list[str], words: list[str], tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command as if these modules were not installed."""
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"
    (tmp_path / "sitecustomize.py").write_text(blocked)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    return subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("modules", "words", "sentence"),
    [
        (["pydantic", "yaml"], ["-m", "training.es"],
         'training.es needs pydantic and PyYAML: pip install "foveate[train]"'),
        (["daqp", "llvmlite", "numba", "pybullet"], ["-m", "training.rollout", "stepping_stones"],
         "cannot make the environment env_id = 'SteppingStones-v0': an environment in PyBullet "
         'needs DAQP: pip install "foveate[sim]"'),
    ],
)  # fmt: skip
def test_a_command_says_which_extra_is_missing(
    modules: list[str], words: list[str], sentence: str, tmp_path: Path
) -> None:
    done = run_without(modules, words, tmp_path)
    assert (done.returncode, done.stderr) == (2, f"error: {sentence}\n")


JOB = """
env_id: tests.training.toy_env:Toy-v0
iterations: 1
popsize: 4
terrains: 1
workers: 1
policy: {patch: [8, 8]}
"""


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    """Arguments of a short training run."""
    (tmp_path / "job.yaml").write_text(JOB)
    return ["--config", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "run")]


@pytest.mark.parametrize(
    ("module", "words", "sentence"),
    [
        ("ray", ["es", "ray_address=auto"],
         'ray_address needs Ray: pip install "foveate[cluster]"'),
        ("sklearn", ["es", "feature_map=clustered_hybrid"],
         'feature_map = clustered_hybrid needs scikit-learn: pip install "foveate[sklearn]"'),
        ("cv2", ["rollout"], '--video needs OpenCV: pip install "foveate[video]"'),
    ],
)  # fmt: skip
def test_an_error_names_the_extra_that_a_setting_needs(
    module: str, words: list[str], sentence: str, job: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in (module, *(name for name in sys.modules if name.startswith(f"{module}."))):
        monkeypatch.setitem(sys.modules, name, None)
    if words[0] == "rollout":
        status = rollout.main(["stepping_stones", "--video", str(tmp_path / "walk.mp4")])
    else:
        status = es.main([*job, *(["--set", *words[1:]] if words[1:] else [])])
    assert (status, capsys.readouterr().err) == (2, f"error: {sentence}\n")


@pytest.mark.records
@pytest.mark.parametrize(
    ("modules", "program", "sentence"),
    [
        (["gymnasium"], "import envs", 'envs needs Gymnasium: pip install "foveate[sim]"'),
        (["h5py"], "import training", 'training needs h5py: pip install "foveate[train]"'),
        (["Box2D"], "import gymnasium, envs; gymnasium.make('CarRacingRepeat-v0')",
         'CarRacingRepeat-v0 needs Box2D: pip install "foveate[box2d]"'),
        (["sklearn"], "import attention; attention.RandomFeatures",
         'RandomFeatures needs scikit-learn: pip install "foveate[sklearn]"'),
    ],
)  # fmt: skip
def test_a_program_gets_an_import_error(
    modules: list[str], program: str, sentence: str, tmp_path: Path
) -> None:
    done = run_without(modules, ["-c", program], tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"foveate_extras.MissingExtraError: {sentence}"


def test_an_environment_of_another_library_is_explained_too() -> None:
    try:
        try:
            raise ModuleNotFoundError("No module named 'Box2D'", name="Box2D")
        except ModuleNotFoundError as error:
            raise RuntimeError("Box2D is not installed, install swig first") from error
    except RuntimeError as error:
        explained = foveate_extras.explained("CarRacing-v3", error)
    assert str(explained) == 'CarRacing-v3 needs Box2D: pip install "foveate[box2d]"'
    assert foveate_extras.explained("x", ModuleNotFoundError("no", name="of_ones_own")) is None
