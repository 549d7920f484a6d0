"""Fingerprints of inputs, and the differences between two of them.

Every output records its inputs: a run in config.yaml and its checkpoints, an evaluation and
the costs of a study in their JSON, demonstrations in an attribute of their files.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

_MOST = 80  # characters of a value in an error message


class Difference(NamedTuple):
    """An input that has changed; None stands for an absent one."""

    key: str
    """Its name, dotted where nested."""
    before: Any
    now: Any

    def describe(self, now: str = "here it is") -> str:
        """The change for an error message: "seed = 0, but here it is 7"."""
        return f"{self.key} = {_shown(self.before)}, but {now} {_shown(self.now)}"


def fingerprint(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by name as JSON data; files (given by path) and tensors become SHA-256 digests.

    Raises OSError if a file cannot be read, TypeError for data that JSON cannot represent.
    """
    plain: dict[str, Any] = json.loads(json.dumps(inputs, default=_plain))
    return plain


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()
) -> list[Difference]:
    """Every input that differs between two fingerprints, except those that are `free`."""
    found: list[Difference] = []
    for name in {**before, **now}:
        was, value = before.get(name), now.get(name)
        if name in free or was == value:
            continue
        below = []
        if isinstance(was, Mapping) and isinstance(value, Mapping):
            below = [Difference(f"{name}.{key}", *both) for key, *both in differences(was, value)]
        found += below or [Difference(name, was, value)]
    return found


def sha256_of(source: Path | Iterable[bytes]) -> str:
    """The SHA-256 of a file or of these bytes, hexadecimal. OSError of a file."""
    digest = hashlib.sha256()
    for part in [source.read_bytes()] if isinstance(source, Path) else source:
        digest.update(part)
    return digest.hexdigest()


def version_of(package: str) -> str | None:
    """None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, range):
        return list(value)
    if isinstance(value, Path):
        return sha256_of(value)
    if callable(getattr(value, "numpy", None)):
        return f"{tuple(value.shape)} {sha256_of([value.numpy().tobytes()])}"
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be part of a fingerprint")


def _shown(value: Any) -> str:
    """A long value is shortened to both ends, as lists of seeds may differ only at the end."""
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[: _MOST // 2]} ... {text[-_MOST // 2 :]}"
