"""The record of a study: its results in a few small files, which can be kept beside the source.

A study's directory holds a file for every evaluation and several for every run, so that it can
resume after any interruption. A record holds the same results: every episode in one table, every
iteration of training in another, and the rest of those files in a third. `unpack` restores files
with the same contents. Checkpoints, policies, videos and TensorBoard's events are left out. Older
records, whose files end in .gz beside a costs.json, are read as well.
"""

import csv
import gzip
import io
import json
import lzma
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, StringConstraints
from pydantic.dataclasses import dataclass as checked_dataclass

from training.command.files import read_bytes, reason, write_atomically
from training.io.config import UserError
from training.io.fingerprint import sha256_of
from training.io.state_files import check, plain_json

EPISODES, ITERATIONS, FACTS = "episodes.csv.xz", "iterations.csv.xz", "facts.json.xz"
_MOST_BYTES, _MOST_CELLS = 2**26, 2**23
_STUDY, _COSTS = "study.yaml", "costs.json"
"""Files of a study that a record holds unchanged, the second among the facts."""
_OF_RUN = ("config.yaml", "provenance.json", "stopped.json")
_METRICS = "metrics.csv"

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]*$", max_length=200)]


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Facts:
    """The contents of a study's files that are not in the tables."""

    tables: dict[str, str]
    """SHA-256 of each."""
    numbers: dict[Name, tuple[str, ...]]
    """Names of the episodes' numbers, by evaluation."""
    evaluations: dict[Name, dict[str, Any]]
    """Other contents of the file, by evaluation."""
    runs: dict[Name, dict[str, str]]
    """Configuration and provenance as text, and the head of the metrics, by run."""
    gaze: dict[Name, str]
    """Gaze statistics as text, by run."""
    costs: str | None = None
    """The file of the costs, as text."""


Row = dict[str, str]


Columns = Mapping[str, Mapping[str, Any]]
"""Columns that describe a file to readers of the tables, by file name."""


def pack(out: Path, record: Path, runs: Columns, evaluations: Columns) -> None:
    """Write the record of a study's directory.

    Args:
        out: the study's directory.
        record: the directory of the record, created if it does not exist. runs: columns of each run
        of the study, those that do not exist too. evaluations: the same of each evaluation.

    Raises UserError where a file is damaged, OSError where nothing can be written.
    """
    episodes: list[tuple[Row, Row]] = []
    numbers, others = dict[str, list[str]](), dict[str, Any]()
    for name, columns in evaluations.items():
        path = out / "evaluations" / f"{name}.json"
        if not path.is_file():
            continue
        facts = _json(_text(path), path)
        records = facts.get("records") if isinstance(facts, dict) else None
        if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
            raise UserError(f"{path} is damaged: it has no list of records")
        where = {"evaluation": name} | _cells(columns)
        episodes += [(where, _cells(one)) for one in records]
        numbers[name] = list(dict.fromkeys(key for one in records for key in one))
        others[name] = facts | {"records": None, "seeds": None}
    iterations: list[tuple[Row, Row]] = []
    texts = dict[str, dict[str, str]]()
    for name, columns in runs.items():
        folder = out / "runs" / name
        if not folder.is_dir():
            continue
        texts[name] = _texts({file: folder / file for file in _OF_RUN})
        head, *lines = _texts({_METRICS: folder / _METRICS}).get(_METRICS, "").splitlines() or [""]
        if head:
            texts[name][_METRICS] = head
            keys, where = head.split(","), {"run": name} | _cells(columns)
            cells = (line.split(",") for line in lines)  # one may be cut short by a kill
            iterations += [
                (where, dict(zip(keys, row, strict=True))) for row in cells if len(row) == len(keys)
            ]
    files = {k: text.encode() for k, text in _texts({_STUDY: out / _STUDY}).items()}
    files |= {EPISODES: compressed(_table(episodes)), ITERATIONS: compressed(_table(iterations))}
    text = json.dumps(
        {
            "tables": {name: sha256_of([files[name]]) for name in (EPISODES, ITERATIONS)},
            "numbers": numbers, "evaluations": others, "runs": texts,
            "gaze": _texts({name: out / "gaze" / f"{name}.json" for name in runs}),
            "costs": _texts({_COSTS: out / _COSTS}).get(_COSTS),
        }
    )  # fmt: skip
    text = text.replace(str(out.resolve()), f"studies/{record.name}")  # wherever it was run
    files[FACTS] = compressed(text)  # written last: they name the tables
    record.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(record / name, data)
    for name in (EPISODES, ITERATIONS, FACTS):  # of an older record in this place
        (record / _of_before(name)).unlink(missing_ok=True)
    (record / _COSTS).unlink(missing_ok=True)


def _texts(paths: Mapping[str, Path]) -> dict[str, str]:
    """The text of the files that exist."""
    return {name: _text(path) for name, path in paths.items() if path.is_file()}


def _of_before(name: str) -> str:
    """The name that a file of a record had when gzip compressed it."""
    return name.removesuffix(".xz") + ".gz"


def _cells(values: Mapping[str, Any]) -> Row:
    """Values as JSON, so that numbers come back to the bit; text unchanged."""
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}


def _table(rows: list[tuple[Row, Row]]) -> str:
    """Return a CSV with the columns that identify each row, then its values. An identifying column
    whose name is also that of a value gets the prefix "study_"."""
    first = dict.fromkeys(key for where, _ in rows for key in where)
    others = dict.fromkeys(key for _, own in rows for key in own)
    head = [*(f"study_{key}" if key in others else key for key in first), *others]
    cells = (
        [*(where.get(key, "") for key in first), *(own.get(key, "") for key in others)]
        for where, own in rows
    )
    return csv_text([head, *cells])


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def check_record(record: Path) -> None:
    """UserError where a directory holds no record of a study."""
    if not any((record / name).exists() for name in (FACTS, _of_before(FACTS))):
        raise UserError(f"{record} holds no record of a study: a record has a file {FACTS}")


def unpack(record: Path, out: Path) -> None:
    """Unpack a record into a study's directory, completely or not at all.

    Raises UserError where the record is damaged or the directory is there and not empty, OSError
    where nothing can be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} must be empty to start with {record}: give another --out")
    files = _files(record)
    partial = out.with_name(f".{out.name}.unpacking")
    if partial.is_symlink() or partial.is_file():
        partial.unlink()
    elif partial.exists():  # of an unpacking that was killed
        shutil.rmtree(partial)
    partial.mkdir(parents=True)  # new, so that nothing of it leads elsewhere
    for name, text in files.items():
        path = partial / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="")
    if out.exists():
        out.rmdir()
    partial.rename(out)


def _files(record: Path) -> dict[str, str]:
    """The text of a study's files, by their places in its directory."""
    names = [EPISODES, ITERATIONS, FACTS]
    if not (record / FACTS).exists() and (record / _of_before(FACTS)).exists():
        names = list(map(_of_before, names))
    episodes_path, iterations_path, facts_path = (record / name for name in names)
    facts = check(Facts, _json(decompressed(facts_path), facts_path), facts_path)
    for path in (episodes_path, iterations_path):
        if sha256_of([_bytes(path)]) != facts.tables.get(path.name):
            raise UserError(f"{path} is not the table that {facts_path} was written with")
    episodes, iterations = _grouped(episodes_path), _grouped(iterations_path)
    files = _texts({name: record / name for name in (_STUDY, _COSTS)})
    files |= {} if facts.costs is None else {_COSTS: facts.costs}
    for name, entry in facts.evaluations.items():
        keys, rows = facts.numbers.get(name, ()), episodes.get(name, [])
        records = [{k: _json(row[k], episodes_path) for k in keys if row.get(k)} for row in rows]
        if not records:
            raise UserError(f"{episodes_path} is damaged: it has no episodes of {name}")
        whole = entry | {"records": records, "seeds": [one.get("seed") for one in records]}
        try:
            files[f"evaluations/{name}.json"] = json.dumps(whole, indent=1) + "\n"
        except RecursionError:
            raise UserError(f"{facts_path} is damaged: {name} is nested too deep") from None
    for name, texts in facts.runs.items():
        for file, text in texts.items():
            if file not in (*_OF_RUN, _METRICS):
                raise UserError(f"{facts_path} is damaged: a run has no file {file}")
            lines: Iterable[str] = [text]
            if file == _METRICS:
                keys = tuple(text.split(","))
                found = iterations.get(name, [])
                lines = (text, *(",".join(row.get(k, "") for k in keys) for row in found), "")
            files[f"runs/{name}/{file}"] = "\n".join(lines)
    files |= {f"gaze/{name}.json": text for name, text in facts.gaze.items()}
    try:
        "".join(files.values()).encode()
    except UnicodeEncodeError:
        raise UserError(f"{facts_path} is damaged: it holds an incomplete character") from None
    return files


def _bytes(path: Path) -> bytes:
    """UserError where there is no such file of the record itself."""
    try:
        if path.is_symlink():
            raise UserError(f"{path} is a link, where a file is needed")
        return read_bytes(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError:
        raise UserError(f"{path} is damaged: it is no text in UTF-8") from None


def _json(text: str, path: Path) -> Any:
    try:
        return plain_json(text)
    except ValueError:
        raise UserError(f"{path} is damaged: {text[:40]!r} is no JSON") from None


def compressed(text: str) -> bytes:
    """The data of a record's file."""
    return lzma.compress(text.encode(), preset=lzma.PRESET_EXTREME | 6)


def decompressed(path: Path) -> str:
    """The text of a record's file. UserError where it is damaged, or exceeds the size limit."""
    reader = gzip.open if path.suffix == ".gz" else lzma.open
    try:
        with reader(io.BytesIO(_bytes(path))) as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{path} holds more than {_MOST_BYTES / 2**20:.0f} MiB")
        return data.decode()
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def _grouped(path: Path) -> dict[str, list[Row]]:
    """Rows of a table by its first column, in their order."""
    found: dict[str, list[Row]] = {}
    cells = 0
    try:
        lines = csv.reader(io.StringIO(decompressed(path), newline=""))
        head = next(lines, [])
        for row in lines:
            cells += len(row)
            if not row or len(row) != len(head) or cells > _MOST_CELLS:
                raise UserError(f"{path} is damaged, or too large: row {lines.line_num}")
            found.setdefault(row[0], []).append(dict(zip(head[1:], row[1:], strict=True)))
    except csv.Error as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return found
