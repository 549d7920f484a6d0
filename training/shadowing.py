"""Whether our packages are the ones that Python finds: their names are common words.

`python -m` looks in the working directory first, so a folder or file of a user's own there called
`policies`, say, hides ours; and another distribution may install a package of the same name.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from training.commands import command_name

__all__ = ["check_own_packages"]

_MARKS = {
    "attention": "RandomFeatureAttention",
    "policies": "PolicyConfig",
    "envs": "SteppingStones",
    "configs": "",
    "sim_assets": "",
}
"""What the `__init__.py` of each of our packages speaks of, by which it is known as ours."""


def check_own_packages() -> None:
    """End a command, exit status 2, with a sentence where a package of another's hides one of ours;
    ImportError in a program that imports us."""
    problem = next(filter(None, (_problem(name, mark) for name, mark in _MARKS.items())), None)
    if problem is None:
        return
    if command_name() is None:
        raise ImportError(problem)
    print(f"error: {problem}", file=sys.stderr)
    raise SystemExit(2)


def _problem(name: str, mark: str) -> str | None:
    ours = Path(__file__).resolve().parents[1] / name / "__init__.py"
    found = _found(name)
    if found is None:  # importing it will tell
        return None
    if found.resolve() == ours:
        if mark in ours.read_text(encoding="utf-8", errors="replace"):
            return None
        return (
            f"{ours.parent} is not Foveate's package {name}, as another distribution was installed "
            "over it: install Foveate again, in an environment without that one"
        )
    place = found.parent if found.name == "__init__.py" else found
    command = command_name()
    if command is not None and found.resolve().is_relative_to(Path.cwd()):
        script = f"foveate-{command.rpartition('.')[2]}"
        return (
            f"{place} hides Foveate's package {name}: run the console script {script} in place of "
            "python -m, or start in another directory"
        )
    return f"{place} hides Foveate's package {name}: rename it, or keep it off Python's path"


def _found(name: str) -> Path | None:
    """The file that `import name` would run, or the folder of a package without one."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # ValueError: of a module that was made by hand
        return None
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin)
    return next((Path(folder) for folder in spec.submodule_search_locations or ()), None)
