"""Checks that Python finds Foveate's own packages and that their requirements are installed.

Their names are common words. `python -m` searches the working directory first, so a user's folder
or file there called `policies`, for example, hides ours; and another distribution may install a
package of the same name, as PyPI has an `attention`. A console script searches its own directory
first.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from foveate_extras import require, require_python
from training.command.signals import command_name

_MARKS = {"attention": "RandomFeatureAttention", "policies": "PolicyConfig"}
_MARKS |= {"envs": "SteppingStones", "configs": "", "sim_assets": ""}
"""A phrase in the `__init__.py` of each of Foveate's packages, which identifies it."""
_ROOT = Path(__file__).resolve().parents[2]


def check_own_packages() -> None:
    """Exit with status 2 and an error message if a foreign package hides one of ours; raise
    ImportError in a program that imports Foveate. A console script finds Foveate's packages."""
    if _hidden() is not None and command_name() is not None and sys.argv[:1] != ["-m"]:
        sys.path.insert(0, str(_ROOT))
    problem = _hidden()
    if problem is not None:
        _end(ImportError(problem))


def _hidden() -> str | None:
    return next(filter(None, (_problem(name, mark) for name, mark in _MARKS.items())), None)


def check_extras(extra: str) -> None:
    """Raise the same error if Python is too old, or the packages of an extra are not installed."""
    who = command_name() or "training"
    try:
        require_python(who)
        require(who, extra)
    except ImportError as error:
        _end(error)


def _end(problem: ImportError) -> NoReturn:
    if command_name() is None:
        raise problem
    print(f"error: {problem}", file=sys.stderr)
    raise SystemExit(2)


def _problem(name: str, mark: str) -> str | None:
    ours = _ROOT / name / "__init__.py"
    found = _found(name)
    if found is None:  # the import will raise the error
        return None
    if found.resolve() == ours:
        if mark in ours.read_text(encoding="utf-8", errors="replace"):
            return None
        return (
            f"{ours.parent} is not Foveate's package {name}, as another distribution was installed "
            "over it: install Foveate again, in an environment without that one"
        )
    place = found.parent if found.name == "__init__.py" else found
    package, _, command = (command_name() or "").partition(".")
    here = command and found.resolve().is_relative_to(Path.cwd())
    remedy = "start in another directory" if here else "rename it, or keep it off Python's path"
    if package == "training" and command:
        remedy = f"run the console script foveate-{command} in place of python -m, or {remedy}"
    return f"{place} hides Foveate's package {name}: {remedy}"


def _found(name: str) -> Path | None:
    """The file that `import name` would run, or the folder of a package without one."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module object created by hand
        return None
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin)
    return next((Path(folder) for folder in spec.submodule_search_locations or ()), None)
