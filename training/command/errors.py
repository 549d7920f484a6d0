"""UserError, which commands print without a traceback, and the parts of its sentence: values,
suggestions for misspelled names, and commands that can be pasted into a shell."""

import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

_WIDTH = 100
_MOST = 3


class UserError(ValueError):
    """An error that the user can fix: one sentence, printed without a traceback, exit status 2."""


class NotFiniteError(UserError):
    """Training produced numbers that are not finite, and would again after a restart."""


def shown(value: Any) -> str:
    """A value for an error message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ "; did you mean a or b?" to put after an error, or "" where nothing known is like `given`.

    Both are words or keys, dotted if nested. Keys with the same last part take precedence over keys
    with a similar spelling.
    """
    keys = [key for key in dict.fromkeys(known) if key != given]
    same = [key for key in keys if _last(key) == _last(given)]
    alike = _alike(_last(given), dict.fromkeys(map(_last, keys)))
    found = same or [key for name in alike for key in keys if _last(key) == name]
    whole = get_close_matches(given.lower(), {key.lower() for key in found}, len(found) or 1, 0)
    found.sort(key=lambda key: whole.index(key.lower()))
    return _question(found)


def like_files(given: Path, *folders: Path) -> str:
    """The same for a missing YAML file: suggests files with similar names beside it or in these
    folders."""
    files = {
        file.stem: file
        for folder in (*reversed(folders), given.parent)
        for file in [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    }
    return _question([str(files[name]) for name in _alike(given.stem, files)])


def _alike(given: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(given, list(known), _MOST, 0.65)


def _question(found: list[str]) -> str:
    return f"; did you mean {' or '.join(found[:_MOST])}?" if found else ""


def _last(key: str) -> str:
    return key.rpartition(".")[2].lower()


def command_line(module: str, *words: str | Path) -> str:
    """`python -m module words...`, with arguments quoted where a shell needs it."""
    return shlex.join(["python", "-m", module, *map(str, words)])


def option(name: str, value: str | Path) -> str:
    """An option and its value, for error messages."""
    return shlex.join([name, str(value)])


def preset(name: str) -> Path:
    """The path of a configuration of the package, relative if it is below the working directory."""
    path = Path(str(resources.files("configs"))) / name
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
