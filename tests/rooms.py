"""The rooms of `training/` and the imports between them, read from the code; a picture of both.

python -m tests.rooms --out docs/images/rooms.png
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOORS = "doors"
"""What the files are together that stand in `training/` itself."""
FLOORS = (
    ("command",),
    ("settings",),
    ("episodes",),
    ("runs",),
    ("evaluation",),
    ("films", "pages", "recordings"),
    ("trainers",),
    ("interventions",),
    ("studies",),
    (DOORS,),
)
"""From the ground up: a room imports from rooms of lower floors alone."""
Arrows = dict[tuple[str, str], list[str]]


def files() -> dict[str, Path]:
    """The modules of `training`, by name."""
    found = sorted((ROOT / "training").rglob("*.py"))
    return {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in found}


def room_of(module: str) -> str | None:
    """The room of a module; None of the package itself, which every command loads first."""
    parts = module.removesuffix(".__init__").split(".")
    if len(parts) == 1:
        return None
    return parts[1] if (ROOT / "training" / parts[1]).is_dir() else DOORS


def imported(path: Path) -> set[str]:
    """The names of modules of `training`, or of what is in them, that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("training.")}


def arrows() -> Arrows:
    """(room, the room that it imports from) -> the files that do."""
    found: Arrows = {}
    for module, path in files().items():
        room = room_of(module)
        for name in imported(path) if room else ():
            other = room_of(name)
            if other is not None and other != room:
                found.setdefault((str(room), other), []).append(module)
    return found


def longest_chain(found: Arrows) -> list[str]:
    """The most rooms that import one from the next, from the top. RecursionError of a circle."""

    def chain(room: str) -> list[str]:
        below = [chain(other) for one, other in found if one == room]
        return [room, *max(below, key=len, default=[])]

    return max((chain(room) for room in {one for one, _ in found}), key=len)


def lines() -> dict[str, int]:
    """Lines of code in each room."""
    count: dict[str, int] = {}
    for module, path in files().items():
        room = room_of(module) or DOORS
        count[room] = count.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return count


GROUND = ("command", "settings")
"""Rooms that nearly all others import from."""


def draw(out: Path) -> None:
    """A box a room, its floor as height, an arrow to each room that it imports from.

    Ground rooms have one wide box each and no arrows. An arrow is faint where others lead there.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size, where = lines(), {}
    found = {pair: who for pair, who in arrows().items() if pair[1] not in GROUND}
    figure, axis = plt.subplots(figsize=(7.0, 7.4), layout="constrained")
    for height, floor in enumerate(FLOORS):
        for place, room in enumerate(floor):
            aside = 0.0 if room in GROUND else 0.55 * (-1) ** height
            middle = 2.6 * (place - (len(floor) - 1) / 2)
            where[room] = (middle if len(floor) > 1 else aside, height)
    for one, other in found:
        bend = 0.08 * (where[one][1] - where[other][1] - 1)
        others = any((one, room) in found and _leads(found, room, other) for room in where)
        axis.annotate(
            "", xy=where[other], xytext=where[one],
            arrowprops={"arrowstyle": "->", "color": "#b9c6d4" if others else "#1f3d5c",
                        "lw": 0.6 if others else 1.4, "shrinkA": 14, "shrinkB": 14,
                        "connectionstyle": f"arc3,rad={bend:.2f}"},
        )  # fmt: skip
    for room, (x, y) in where.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": "#eef3f8", "edgecolor": "#34526f"}
        label = f"{room}\n{size.get(room, 0):,} lines"
        if room in GROUND:
            label = f"{room}: {size[room]:,} lines, used on every floor".center(92)
        axis.text(x, y, label, ha="center", va="center", fontsize=9, bbox=box)
    axis.set(xlim=(-4.2, 4.2), ylim=(-0.4, len(FLOORS) - 0.5))
    axis.axis("off")
    figure.savefig(out, dpi=110)


def _leads(found: Arrows, one: str, other: str) -> bool:
    """Whether a room imports from another, by way of others or not."""
    if one == other:
        return False
    return any(b == other or _leads(found, b, other) for a, b in found if a == one)


def main() -> None:
    """Draw the picture and print the longest chain."""
    parser = argparse.ArgumentParser(prog="tests.rooms", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the picture, .png")
    draw(parser.parse_args().out)
    print(" -> ".join(longest_chain(arrows())))


if __name__ == "__main__":
    main()
