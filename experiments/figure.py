"""Shared code of the papers' figures and the benchmarks: command line, tables, plots and records.

A figure's file has `measure(arguments)`, which returns results as JSON has them, `show(results)`,
which yields lines of text, and `draw(results)`, which returns a plot. It ends with

    main = figure.command(measure, show, draw)

which defines the file's command and, where `python -m` runs the file, starts it. The command
measures and prints; `--out DIR` writes NAME.json and NAME.png, `--record` writes the committed
record docs/records/NAME.json, and `--table` prints a record again without measuring.
"""

import json
import sys
from argparse import Namespace as Arguments
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.io.config import ArgumentParser, UserError, exit_status
from training.io.run_log import provenance
from training.reports.plots import png

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "records"
DIGITS = 6
"""Significant digits of a record's numbers."""

Row = dict[str, Any]
Rows = list[Row]
"""Results as a list of records with the same keys."""
Lines = Iterator[str]
Option = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **settings: Any) -> Option:
    """An option or argument of a command: what `ArgumentParser.add_argument` takes."""
    return names, settings


SET = option("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")


def command(
    measure: Callable[[Arguments], Any],
    show: Callable[[Any], Iterable[str]],
    draw: Callable[[Any], Any] | None = None,
    *options: Option,
    plotted: Sequence[str] = (),
) -> Callable[..., int]:
    """The `main(argv)` of a figure's file, which returns the exit status.

    Args:
        measure: takes the parsed arguments (`seed`, `quick` and those of `options`) and returns
            results that JSON can hold.
        show: yields the lines that are printed, from results or from a record's.
        draw: returns the plot of results.
        options: additional options of the command.
        plotted: keys of lists or mappings that only the plot needs; a record leaves them out.
    """
    name = _module(measure)[1]
    common = (
        option("--out", metavar="DIR", help="write results (JSON) and a plot here"),
        option("--seed", type=int, default=0, help="seed of all draws (default 0)"),
        option("--quick", action="store_true", help="a few seconds, rougher figures"),
        option("--record", nargs="?", const=name, metavar="NAME",
               help=f"write docs/records/NAME.json (default NAME: {name})"),
        option("--table", nargs="?", const=name, metavar="NAME",
               help="print that record's figures"),
    )  # fmt: skip

    def run(arguments: Arguments) -> int:
        results = read_record(arguments.table) if arguments.table else measure(arguments)
        for line in show(results):
            print(line, flush=True)
        if arguments.table:
            return 0
        made = provenance({"seed": arguments.seed})
        facts = {"benchmark": name, "provenance": made}
        if arguments.record:
            RECORDS.mkdir(parents=True, exist_ok=True)
            kept = {**made, "command": _without_out(made["command"])}
            record = {**facts, "provenance": kept, "results": _packed(results, frozenset(plotted))}
            write_json("--record", RECORDS / f"{arguments.record}.json", record)
        if arguments.out is not None:
            facts["results"] = results
            _save(arguments.out, name, facts, draw and draw(results))
        return 0

    return _started(measure, run, (*options, *common))


def file_command(
    run: Callable[[Arguments], Mapping[str, Any] | int | None],
    *options: Option,
    file: str | None = None,
) -> Callable[..., int]:
    """The `main(argv)` of a command without seed and plot, which prints its figures itself.

    Args:
        run: takes the parsed arguments; returns the figures to write, or an exit status.
        options: options of the command.
        file: the option that names a file for the figures, with provenance added.
    """
    if file is not None:
        options += (option(file, metavar="FILE", help="write the figures here (JSON)"),)

    def start(arguments: Arguments) -> int:
        found = run(arguments)
        path = file and getattr(arguments, file.strip("-"))
        if file and path and isinstance(found, Mapping):
            write_json(file, path, {**found, "provenance": provenance({"seed": found.get("seed")})})
        return found if isinstance(found, int) else 0

    return _started(run, start, options)


def _started(
    function: Callable[..., Any], run: Callable[[Arguments], int], options: Sequence[Option]
) -> Callable[..., int]:
    """`main` for a function's file; starts it if the file is the program that runs."""
    module, _ = _module(function)

    def start(argv: Sequence[str] | None) -> int:
        document = unwrap(function).__globals__.get("__doc__") or ""
        parser = ArgumentParser(prog=f"python -m {module}", description=document.split("\n")[0])
        for names, settings in options:
            parser.add_argument(*names, **settings)
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name.startswith("benchmarks.") and spec.name != module:
            print(f"python -m {spec.name} is now python -m {module}", file=sys.stderr)
        arguments = parser.parse_args(argv)
        with one_thread():
            return run(arguments)

    def main(argv: Sequence[str] | None = None) -> int:
        return exit_status(lambda: start(argv))

    if function.__module__ == "__main__":
        raise SystemExit(main())
    return main


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes on one thread inside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _module(function: Callable[..., Any]) -> tuple[str, str]:
    """The dotted and the short name of a function's module, also where it runs as __main__."""
    path = Path(unwrap(function).__code__.co_filename).resolve().with_suffix("")
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else path.parts[-1:]
    return ".".join(parts), path.name


def read_record(name: str) -> Any:
    """The results in docs/records/NAME.json. Raises UserError if there is no such record."""
    try:
        return _unpacked(json.loads((RECORDS / f"{name}.json").read_bytes())["results"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"--table needs the record docs/records/{name}.json: {error}") from None


def _without_out(command: Sequence[str]) -> list[str]:
    """The words of a command except `--out` and its directory, which exists on one machine only."""
    pairs = zip(("", *command), command, strict=False)
    return [
        word
        for before, word in pairs
        if "--out" not in (before, word) and not word.startswith("--out=")
    ]


def _packed(value: Any, dropped: frozenset[str]) -> Any:
    """A copy with fewer digits, without the keys that are dropped, rows of the same keys as a
    table of columns and data."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {
            k: _packed(v, dropped)
            for k, v in value.items()
            if not (k in dropped and isinstance(v, list | Mapping))
        }
    if isinstance(value, list | tuple):
        items = [_packed(v, dropped) for v in value]
        keys = [list(item) if isinstance(item, dict) else None for item in items]
        if keys and keys[0] and keys.count(keys[0]) == len(keys):
            return {"columns": keys[0], "data": [list(item.values()) for item in items]}
        return items
    return value


def _unpacked(value: Any) -> Any:
    """The rows that `_packed` made a table of."""
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"columns", "data"}:
        return [_unpacked(dict(zip(value["columns"], row, strict=True))) for row in value["data"]]
    return {key: _unpacked(item) for key, item in value.items()}


def write_json(option: str, file: str | Path, facts: Mapping[str, Any]) -> None:
    """Write figures into the file that an option names. Raises UserError if that fails."""
    try:
        text = json.dumps(facts, separators=(",", ":")) + "\n"
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{option} {file} cannot be written: {error.strerror}") from None


def _save(out: str, name: str, facts: Mapping[str, Any], plot: Any) -> None:
    try:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        write_json("--out", folder / f"{name}.json", facts)
        if plot is not None:
            (folder / f"{name}.png").write_bytes(png(plot, dpi=120))
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None
    print(f"wrote {folder / name}.json" + (" and .png" if plot is not None else ""))


def select(rows: Iterable[Row], **values: Any) -> Rows:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def column(rows: Iterable[Row], key: str) -> list[Any]:
    """The values of a key, row by row."""
    return [row[key] for row in rows]


def unique(rows: Iterable[Row], key: str) -> list[Any]:
    """The different values of a key, in the order of the rows."""
    return [*dict.fromkeys(column(rows, key))]


def new_figure(columns: int, rows: int = 1, size: tuple[float, float] = (4.5, 3.6)) -> Any:
    """(figure, axes as an array of rows x columns) that draws without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def curves(
    axis: Any, rows: Rows, x: str, y: str, by: str, error: str | None = None, **style: Any
) -> None:
    """A line for each value of `by`, with a legend and a grid: column `y` against column `x`, and a
    band of plus and minus column `error`. The columns hold numbers, or a list in each row.
    """
    for i, label in enumerate(unique(rows, by)):
        chosen = select(rows, **{by: label})
        places, values = (np.hstack(column(chosen, key)).astype(float) for key in (x, y))
        default = {"color": f"C{i}", "ls": "-" if i < 10 else "--"}  # ten colours in the cycle
        axis.plot(places, values, label=label, **{**default, **style})
        if error is not None:
            spread = np.array([row[error] or 0.0 for row in chosen])
            axis.fill_between(places, values - spread, values + spread, color=f"C{i}", alpha=0.2)
    finish(axis)


def plot(
    rows: Rows,
    x: str,
    y: str | Sequence[str],
    by: str,
    panel: str | None = None,
    scales: tuple[str, str] = ("linear", "linear"),
    **style: Any,
) -> Any:
    """A plot of `curves`: a panel for each column of `y` and, below each other, value of `panel`.

    Args:
        rows: the results.
        x: column of the horizontal axis.
        y: column or columns of the vertical axis.
        by: column of the lines' labels.
        panel: column that divides the rows; None: one part.
        scales: Matplotlib's scales of the two axes.
        style: options of `curves`.
    """
    keys = [y] if isinstance(y, str) else y
    parts = {"": rows} if panel is None else {
        f"{panel}: {value}": select(rows, **{panel: value}) for value in unique(rows, panel)
    }  # fmt: skip
    whole, axes = new_figure(len(keys), len(parts))
    for line, (title, part) in zip(axes, parts.items(), strict=True):
        for axis, key in zip(line, keys, strict=True):
            curves(axis, part, x, key, by, **{"marker": ".", **style})
            axis.set(title=title, xlabel=x.replace("_", " "), ylabel=key.replace("_", " "))
            axis.set(xscale=scales[0], yscale=scales[1])
    return whole


def bars(rows: Rows, label: str, values: Sequence[str], scale: str = "linear") -> Any:
    """A plot of horizontal bars: one for each row and column of `values`; None draws no bar."""
    whole, ((axis,),) = new_figure(1, size=(7, 1.2 + 0.35 * len(rows)))
    for i, key in enumerate(values):
        places = np.arange(len(rows)) + 0.4 * i
        axis.barh(places, [row[key] or 0.0 for row in rows], 0.35, label=key.replace("_", " "))
    axis.set_yticks(np.arange(len(rows)), column(rows, label))
    axis.set_xscale(scale)
    axis.invert_yaxis()
    finish(axis)
    return whole


def finish(*axes: Any, size: float = 7) -> None:
    """A legend and a grid for each of the axes."""
    for axis in axes:
        axis.legend(fontsize=size)
        axis.grid(alpha=0.3)


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *widths: int) -> Lines:
    """A text table of rows: `columns` has the format of each heading's cells, as "{error:.3f}"."""
    cells = ([form.format_map(row) for form in columns.values()] for row in rows)
    return lines(columns, cells, *widths)


def lines(head: Iterable[str], rows: Iterable[Iterable[Any]], *widths: int) -> Lines:
    """A text table with right-aligned columns, except the first one and those of negative width.

    The last width applies to all further columns.
    """
    for row in (head, *rows):
        cells = [str(cell) for cell in row]
        wide = [*widths, *[widths[-1]] * (len(cells) - len(widths))]
        first, *others = zip(cells, wide, strict=False)
        yield f"{first[0]:<{first[1]}}" + "".join(
            f"{cell:>{width}}" if width > 0 else f"  {cell:<{-width}}" for cell, width in others
        )
