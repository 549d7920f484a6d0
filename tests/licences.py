"""Licences of all packages that `foveate[all]` installs; run by `.ci/run` and by a test.

    python tests/licences.py

Fails if a package declares the GPL or AGPL in its metadata or is not installed.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COPYLEFT = re.compile(r"(?<!L)\bA?GPL|(?<!Lesser )(Affero )?General Public License", re.IGNORECASE)
EXCEPTION = re.compile(r"\S+ WITH \S+", re.IGNORECASE)
"""Such as GPL-3.0 WITH GCC-exception-3.1, of libraries that a compiler puts into a wheel."""


def required(lines: Iterable[str], extras: Iterable[str]) -> Iterator[Requirement]:
    """The requirements among a distribution's that hold here, with these of its extras."""
    for line in lines:
        requirement = Requirement(line)
        places = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, places)):
            yield requirement


def closure(name: str, extras: Iterable[str]) -> dict[str, metadata.Distribution | None]:
    """All distributions of an installation by name; None for those that are not installed here."""
    found: dict[str, metadata.Distribution | None] = {}
    seen, waiting = set(), [(canonicalize_name(name), frozenset(extras))]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            found[one[0]] = distribution = metadata.distribution(one[0])
        except metadata.PackageNotFoundError:
            found[one[0]] = None
            continue
        waiting += [
            (canonicalize_name(requirement.name), frozenset(requirement.extras))
            for requirement in required(distribution.requires or (), one[1])
        ]
    return found


def licences(distribution: metadata.Distribution) -> list[str]:
    """Licences in the metadata: an SPDX expression, else classifiers, else the first line."""
    about = distribution.metadata
    if expression := about.get("License-Expression"):
        return [expression]
    classified = [c for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    return classified or [(about.get("License") or "").strip().partition("\n")[0]]


def is_copyleft(licence: str) -> bool:
    """Whether a licence is the GPL or AGPL; not the LGPL, nor one with an exception."""
    return COPYLEFT.search(EXCEPTION.sub("", licence)) is not None


def main() -> int:
    found = closure("foveate", ["all"])
    missing = sorted(name for name, distribution in found.items() if distribution is None)
    wrong = {
        name: licences(distribution)
        for name, distribution in sorted(found.items())
        if distribution is not None and any(map(is_copyleft, licences(distribution)))
    }
    for name, distribution in sorted(found.items()):
        print(f"{name}: {'not installed' if distribution is None else licences(distribution)}")
    if missing or wrong:
        print(f"not installed: {missing}; GPL: {wrong}", file=sys.stderr)
    return 1 if missing or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
