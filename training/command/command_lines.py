"""Printed commands, quoted for a shell so that they can be pasted."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

__all__ = ["command_line", "option", "preset"]


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
