"""The project: packaging, presets, and the commands and code of the documentation."""

import importlib
import re
import runpy
import shlex
import subprocess
import tomllib
from fnmatch import fnmatch
from functools import cache
from importlib import metadata
from itertools import dropwhile, takewhile
from pathlib import Path, PurePosixPath

import pytest
import yaml

import foveate
from policies.pretrained.not_shipped import NOT_SHIPPED
from training.io import checkpoint
from training.io.config import UserError

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCUMENTS = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CODE_OF_CONDUCT", "SECURITY")),
    *(ROOT / name / "README.md" for name in ("examples", "sim_assets")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
TOP_LEVEL = sorted({name.partition(".")[0] for name in PACKAGES})
PRESETS = sorted((ROOT / "configs").glob("*.yaml"))
DEFAULT_PRESETS = {
    "training.es": "configs/stepping_stones.yaml",
    "training.bc": "configs/stepping_stones_clone.yaml",
}


@cache
def tracked() -> tuple[str, ...]:
    """Files of the repository, those included that git does not know yet but does not ignore."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(name for name in output.splitlines() if (ROOT / name).is_file())


def blocks(language: str) -> list[str]:
    """Code blocks of all documents in a language."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [block for document in DOCUMENTS for block in fence.findall(document.read_text())]


def shell_lines() -> list[list[str]]:
    """Words of every command of the documents' shell blocks, without comments and variables."""
    whole = [re.sub(r"\\\n\s*", "", block) for block in blocks("bash")]
    found = []
    for line in "\n".join(whole).splitlines():
        words = iter(shlex.split(line, comments=True))
        while command := list(takewhile("&&".__ne__, words)):
            found.append(list(dropwhile(re.compile(r"[A-Z_]+=").match, command)))
    return found


def commands() -> list[list[str]]:
    """The documents' `python -m module argument...`, as lists that begin with the module."""
    ours = re.compile(r"(training|deploy|benchmarks|experiments)\b")
    lines = [line for line in shell_lines() if line[:2] == ["python", "-m"]]
    return [line[2:] for line in lines if ours.match(line[2])]


def options_after(words: list[str], option: str) -> list[str]:
    """The values that follow `option`, up to the next option."""
    if option not in words:
        return []
    rest = words[words.index(option) + 1 :]
    return rest[: next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))]


def test_the_changelog_knows_the_version():
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] in ("Unreleased", PROJECT["project"]["version"])


def test_the_installed_version_is_that_of_the_sources():
    try:
        installed = metadata.version("foveate")
    except metadata.PackageNotFoundError:
        pytest.skip("foveate is not installed: pip install -e .")
    assert installed == PROJECT["project"]["version"], "install again: pip install -e ."


def test_the_workflow_runs_the_checks_on_the_versions_that_are_declared():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert [
        name for name in used if not re.fullmatch(r"actions/[\w-]+@(v\d+|[0-9a-f]{40})", name)
    ] == []
    ran = "\n".join(step.get("run", "") for step in steps)
    for line in ("ruff check .", "ruff format --check .", "mypy", "pytest", "pip check"):
        assert re.search(rf"^{re.escape(line)}$", ran, re.MULTILINE), line
    versions = workflow["jobs"]["suite"]["strategy"]["matrix"]["python"]
    declared = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"]]
    assert versions == [name for name in declared if re.fullmatch(r"3\.\d+", name)]


def test_what_is_cited_is_this_project():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert foveate.__version__ == PROJECT["project"]["version"]
    for key in ("version", "license", "authors", "keywords"):
        assert cited[key] == PROJECT["project"][key], key
    assert cited["abstract"] == PROJECT["project"]["description"]


def test_security_names_tests_that_exist():
    text = (ROOT / "SECURITY.md").read_text()
    named = set(re.findall(r"`(?:[\w/]*/)?(\w+\.py)`", text))
    assert named
    assert named - {path.name for path in (ROOT / "tests").rglob("*.py")} == set()


@pytest.mark.parametrize("target", PROJECT["project"]["scripts"].values())
def test_every_console_script_has_its_function(target):
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_every_package_is_listed():
    found = {
        str(PurePosixPath(name).parent).replace("/", ".")
        for name in tracked()
        if name.endswith("/__init__.py") and name.partition("/")[0] in TOP_LEVEL
    }
    assert sorted(found) == PACKAGES


def test_every_data_file_in_a_package_is_listed():
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, names in PROJECT["tool"]["setuptools"]["package-data"].items()
        for pattern in names
    ]
    data = [
        name
        for name in tracked()
        if name.partition("/")[0] in TOP_LEVEL and not name.endswith(".py")
    ]
    assert [n for n in data if not any(fnmatch(n, pattern) for pattern in patterns)] == []
    assert [p for p in patterns if not any(fnmatch(n, p) for n in data)] == []


def test_no_dependency_brings_a_package_of_our_names():
    owners = metadata.packages_distributions()
    assert {name: set(owners.get(name, [])) - {"foveate"} for name in TOP_LEVEL} == {
        name: set() for name in TOP_LEVEL
    }


def test_imports_point_one_way():
    above = {"attention": ("policies", "envs", "training", "deploy")}
    above |= {"policies": ("envs", "training", "deploy")}
    above |= {"envs": ("policies", "training", "deploy"), "training": ("deploy",)}
    wrong = [
        f"{name}: {line.strip()}"
        for name in tracked()
        if name.endswith(".py") and (package := name.partition("/")[0]) in above
        for line in (ROOT / name).read_text().splitlines()
        if re.match(rf"\s*(from|import) ({'|'.join(above[package])})\b", line)
    ]
    assert wrong == []


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_every_preset_is_a_job(preset):
    """The comment at its top names the command that runs it, whose module loads it."""
    top = re.match(r"(#.*\n)*", preset.read_text())
    assert top is not None
    named = re.findall(r"python -m (training\.\w+)(.*)", top[0])
    runs = [module for module, rest in named if preset.name in rest or "--config" not in rest]
    assert runs, "the comment at its top must name its command: python -m training.X"
    importlib.import_module(runs[0]).load_config(preset, [])


def test_shipped_policies_are_small_and_complete():
    shipped = checkpoint.shipped()
    assert "stepping_stones" in shipped
    for path in shipped.values():
        assert path.stat().st_size < 2.5 * 2**20
        checkpoint.load_policy(path)


def test_no_file_names_a_place_of_one_machine():
    folders = "|".join(["work", "farm", "tmp", "home", "root", "opt", "mnt", "Users"])
    place = re.compile(rf"(^|[^\w.$}}\"-])/({folders})/\w")
    found = []
    for name in tracked():
        try:
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{name}:{i}: {line}" for i, line in enumerate(lines, 1) if place.search(line)]
    assert found == []


def test_every_page_is_listed():
    docs = ROOT / "docs"
    listed = re.findall(r"\]\(([\w/]+\.md)\)", (docs / "README.md").read_text())
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert {*listed, "README.md"} == pages


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#\s]+)\)", document.read_text())
    host = "../../actions/workflows/"  # relative to README's page on the repository's host
    local = [link.replace(host, ".github/workflows/").removesuffix("/badge.svg") for link in links]
    local = [link for link in local if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_lines_of_documents_are_one_command_each():
    programs = {
        ".", "cd", "docker", "git", "make", "mkdocs", "pip", "pytest", "python", "python3", "ray",
        "sbatch", "tensorboard", "torchrun",
    }  # fmt: skip
    lines = shell_lines()
    assert [
        line for line in lines if line[0] not in programs | set(PROJECT["project"]["scripts"])
    ] == []
    assert [line for line in lines if {"python", "pip"} & set(line[1:])] == []


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_documented_commands_exist(words, capsys, monkeypatch):
    """The module, each option, each preset, each `--set` and each policy are known."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "follow_light"))
    module = importlib.import_module(words[0])
    if hasattr(module, "__path__"):  # a package, whose command is beside it
        module = importlib.import_module(f"{words[0]}.__main__")
    with pytest.raises(SystemExit) as leaving:
        module.main(["--help"])
    assert leaving.value.code == 0
    known = re.findall(r"--[\w-]+", capsys.readouterr().out)
    assert [word for word in words if word.startswith("--") and word not in known] == []
    assert [word for word in words if word in NOT_SHIPPED] == []
    files = [word for word in words if word.startswith("configs/")]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    if words[0] in DEFAULT_PRESETS:
        preset, *_ = options_after(words, "--config") or [DEFAULT_PRESETS[words[0]]]
        module.load_config(ROOT / preset, options_after(words, "--set"))


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.split("\n")[1])
def test_documented_configurations_are_jobs(text, tmp_path):
    (tmp_path / "job.yaml").write_text(text)
    trainer = importlib.import_module(f"training.{yaml.safe_load(text)['trainer']}")
    try:
        trainer.load_config(tmp_path / "job.yaml", [])
    except UserError as error:  # of settings that are known and fit: those errors come first
        absent = "cannot make the environment .*: No module named|.*: there is no data/"
        if not re.match(absent, str(error)):
            raise


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.split("\n")[0])
def test_documented_python_runs(code, tmp_path, capsys):
    example = tmp_path / "example.py"
    example.write_text(code)
    names = runpy.run_path(str(example))
    if "env" in names:
        names["env"].close()
    error = re.search(r"relative error of the scores: ([\d.]+)", capsys.readouterr().out)
    assert error is None or float(error[1]) < 0.1
