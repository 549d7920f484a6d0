"""What the benchmarks of `attention` share: command line, and results as JSON and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.io.config import ArgumentParser, UserError
from training.io.run_log import provenance


def make_parser(module: str, doc: str | None) -> ArgumentParser:
    """A parser with --out DIR, --seed and --quick; the first line of `doc` is its description."""
    parser = ArgumentParser(prog=f"python -m {module}", description=(doc or "").split("\n")[0])
    parser.add_argument("--out", metavar="DIR", help="write results (JSON) and a picture here")
    parser.add_argument("--seed", type=int, default=0, help="of every draw (default 0)")
    parser.add_argument("--quick", action="store_true", help="a few seconds, rougher figures")
    return parser


def new_figure(columns: int, rows: int = 1, size: tuple[float, float] = (4.5, 3.6)) -> Any:
    """(figure, axes as an array of rows x columns) that draws without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def write_json(option: str, file: str | Path, facts: Mapping[str, Any]) -> None:
    """Write figures into the file that an option names. Raises UserError where it cannot be."""
    try:
        Path(file).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{option} {file} cannot be written: {error.strerror}") from None


def save(
    out: str | None, name: str, seed: int, results: Sequence[Any] | dict[str, Any], figure: Any
) -> None:
    """Write `name`.json (results, seed, hardware, versions) and `name`.png into directory `out`.

    Nothing is written where `out` is None. Raises UserError where `out` cannot be written.
    """
    if out is None:
        return
    facts = {"benchmark": name, "provenance": provenance({"seed": seed}), "results": results}
    try:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
        figure.savefig(folder / f"{name}.png", dpi=120)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None
    print(f"wrote {folder / name}.json and .png")
