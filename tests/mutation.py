"""Mutation testing: apply one small change at a time to a copy and run the tests.

    python -m tests.mutation attention/features attention/theory --sample 100 --seed 0

A mutant is the source with one number doubled or increased by one, + and -, or * and /, or `and`
and `or` exchanged, one comparison turned round or moved at its edge, one minus or `not` dropped, or
the first two arguments of one call swapped. Error messages, annotations and decorators stay. Each
mutant is tested by the quick tests that `TESTS` lists for its file, and is caught if one fails. The
reference values of `tests/conftest.py` are not used, since users do not have them; with `--golden
FOLDER` survivors are also tested by them and counted separately.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("attention", "tests", "pyproject.toml")

# The longest matching prefix decides; the quickest test comes first. `tests/attention/test_X.py`.
TESTS = {
    "attention/": "kernels refusals maps linear features_numerics theory scores precision module",
    "attention/compositional/": "compositional",
    "attention/estimators.py": "estimators_sklearn",
    "attention/features/": (
        "features_exact refusals features_fit features_numerics theory maps precision"
    ),
    "attention/hybrid/": "hybrid refusals hybrid_clustered hybrid_composition theory maps",
    "attention/decoding.py": "recurrent module",
    "attention/recurrent.py": "recurrent linear precision module",
    "attention/memory/": "memory",
    "attention/module.py": "module precision recurrent",
    "attention/streaming.py": "linear recurrent precision module",
    "attention/grouped.py": "packed",
    "attention/integrations/": "integrations",
    "attention/packed.py": "packed",
    "attention/linear.py": "linear precision maps module recurrent",
    "attention/projections/": "projections refusals hybrid_composition estimators",
    "attention/theory/": "theory theory_bounds theory_hybrids theory_maps features_fit",
}
# Compiling takes seconds and checks no numbers beyond those of the other tests.
DESELECTED = "not compile and not export"

BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}


class Mutant(NamedTuple):
    """`old` at `start:end` (bytes) of the file `path` becomes `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression may become; nothing where it has no number and no operator."""
    match node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() | float() | complex() as value):
            yield from (ast.Constant(new) for new in dict.fromkeys((2 * value, value + 1)))
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            yield ast.BinOp(left, BINARY[type(op)](), right)
        case ast.Compare(left, [op], [right]) if type(op) in COMPARISONS:
            yield from (ast.Compare(left, [new()], [right]) for new in COMPARISONS[type(op)])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield operand
        case ast.Call(function, [ast.Name() as first, ast.Name() as second, *rest], keywords):
            if ast.unparse(function) not in {"isinstance", "max", "min"}:
                yield ast.Call(function, [second, first, *rest], keywords)


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below that compute something: no message, annotation or decorator."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in {"annotation", "returns", "decorator_list"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from expressions(child)


def mutants(path: str) -> list[Mutant]:
    """Every mutant of one file, in the order of the source."""
    source = (ROOT / path).read_bytes()
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    found = []
    for node in expressions(ast.parse(source)):
        for new in replacements(node):
            start = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
            end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
            old, text = source[start:end].decode(), ast.unparse(new)
            if text != ast.unparse(node):
                found.append(Mutant(path, node.lineno, start, end, old, text))  # type: ignore[attr-defined]
    return found


def tests_of(path: str) -> list[str]:
    """The test files for a source file."""
    prefix = max((prefix for prefix in TESTS if path.startswith(prefix)), key=len)
    return [f"tests/attention/test_{name}.py" for name in TESTS[prefix].split()]


def failure(root: Path, files: Sequence[str], shared: Path) -> str:
    """What pytest prints where a test of `files` fails or hangs in the copy `root`; else ""."""
    environment = os.environ | {"FOVEATE_SHARED": str(shared), "OMP_NUM_THREADS": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout=60", "-k", DESELECTED]
    command = [sys.executable, "-m", "pytest", *options, *files]
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    return run.stdout + run.stderr if run.returncode else ""


def survives(mutant: Mutant, root: Path, files: Sequence[str], shared: Path) -> bool:
    """Write the mutant into the copy, run the tests and put the original back."""
    place = root / mutant.path
    source = place.read_bytes()
    changed = b"(" + mutant.new.encode() + b")"
    try:
        place.write_bytes(source[: mutant.start] + changed + source[mutant.end :])
        forget(place)
        return not failure(root, files, shared)
    finally:
        place.write_bytes(source)
        forget(place)


def forget(place: Path) -> None:
    """Delete the file's bytecode: Python takes it for fresh within the same second and size."""
    for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        compiled.unlink()


def main(argv: Sequence[str] | None = None) -> int:
    """Report each survivor and the share caught in each folder; 1 when the tests fail unchanged."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("paths", nargs="+", help="files or folders below the repository's root")
    parser.add_argument("--sample", type=int, help="this many mutants at random; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--golden", type=Path, help="the folder that holds golden/golden.json")
    parser.add_argument("--json", type=Path, help="write every mutant and its fate here")
    args = parser.parse_args(argv)
    places = [file for path in args.paths for file in sorted((ROOT / path).rglob("*.py"))]
    places += [ROOT / path for path in args.paths if path.endswith(".py")]
    pool = [m for place in places for m in mutants(place.relative_to(ROOT).as_posix())]
    if args.sample and args.sample < len(pool):
        pool = sorted(random.Random(args.seed).sample(pool, args.sample))
    fates: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        root, empty = Path(folder, "copy"), Path(folder, "empty")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pyc*"))
            else:
                shutil.copy(ROOT / name, root / name)
        wanted = sorted({file for m in pool for file in tests_of(m.path)})
        if unchanged := failure(root, wanted, empty):
            print(f"The tests fail without any change.\n{unchanged}")
            return 1
        for mutant in pool:
            fate = "caught"
            if survives(mutant, root, tests_of(mutant.path), empty):
                golden = ["tests/attention/test_golden.py"]
                alive = args.golden is None or survives(mutant, root, golden, args.golden)
                fate = "survived" if alive else "golden"
                change = " ".join(f"{mutant.old}  ->  {mutant.new}".split())
                print(f"{fate} {mutant.path}:{mutant.line}  {change}", flush=True)
            fates.append(mutant._asdict() | {"fate": fate})
    for package in sorted({str(Path(f["path"]).parent) for f in fates}):
        here = [f["fate"] for f in fates if str(Path(f["path"]).parent) == package]
        counts = ", ".join(f"{here.count(kind)} {kind}" for kind in sorted(set(here)))
        share = 100 * here.count("caught") / len(here)
        print(f"{package}: {counts} of {len(here)} ({share:.1f} % caught)")
    if args.json:
        args.json.write_text(json.dumps(fates, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
