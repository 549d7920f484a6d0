"""Run the notebooks of docs/notebooks without Jupyter, each in a separate process and folder.

    python -m tests.notebooks [--write] [FILE ...]

A code cell is Python, or begins with `%%bash` or `%%writefile NAME`. With --write the notebooks
keep what their cells print, and the images that they draw. Without it nothing is written.
"""

import argparse
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
DOTS_PER_INCH = 100
COLOURS = 64


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The cells that are run, each with its source."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            yield cell, "".join(cell["source"])


def run_bash(source: str) -> None:
    """Run commands; their output is printed. Raises CalledProcessError where one fails."""
    command = ["bash", "-euo", "pipefail", "-c", source]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, end="")


def run_cell(source: str, names: dict[str, Any]) -> None:
    """Run a cell among the names that the cells before have made."""
    first, _, rest = source.partition("\n")
    if first == "%%bash":
        run_bash(rest)
    elif first.startswith("%%writefile "):
        Path(first.split()[1]).write_text(rest, encoding="utf-8")
    else:
        exec(compile(source, "cell", "exec"), names)


def drawn() -> Iterator[dict[str, Any]]:
    """The figures of Matplotlib since the last call, as outputs of a cell."""
    from matplotlib import pyplot
    from PIL import Image

    for number in pyplot.get_fignums():
        drawing, picture = io.BytesIO(), io.BytesIO()
        figure = pyplot.figure(number)
        figure.savefig(drawing, dpi=DOTS_PER_INCH, bbox_inches="tight")
        pyplot.close(figure)
        Image.open(drawing).convert("RGB").quantize(COLOURS).save(picture, "png", optimize=True)
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        yield {"output_type": "display_data", "data": data, "metadata": {}}


def run(notebook: dict[str, Any]) -> None:
    """Run all cells in this process and store their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, (cell, source) in enumerate(code_cells(notebook), 1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run_cell(source, names)
        outputs: list[dict[str, Any]] = []
        if text := printed.getvalue():
            lines = text.splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
        cell.update(outputs=[*outputs, *drawn()], execution_count=number)


def run_apart(path: Path, folder: Path) -> dict[str, Any]:
    """A notebook after all its cells ran, in a fresh process whose folder is `folder`.

    Raises RuntimeError with the end of the traceback if a cell fails.
    """
    python = str(Path(sys.executable).parent)
    settings = {
        **os.environ,
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([python, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    code = (
        "import json, sys; sys.path.insert(0, ''); from pathlib import Path; "
        "from tests import notebooks; one = notebooks.read(Path(sys.argv[1])); "
        "notebooks.run(one); Path(sys.argv[2]).write_text(json.dumps(one))"
    )
    after = folder / "after.ipynb"
    command = [sys.executable, "-c", code, str(path), str(after)]
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{path.name}: {done.stderr[-3000:]}")
    return read(after)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="in place of all")
    parser.add_argument("--write", action="store_true", help="keep what the cells show")
    args = parser.parse_args(arguments)
    for path in args.files or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            after = run_apart(path.resolve(), Path(folder))
        if args.write:
            path.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
