"""A study's results in a few small files: a record, which can be kept beside the source.

A study's directory holds a file for every evaluation and several for every run, so that it can go
on after any interruption. A record holds the same results: every episode in one table, every
iteration of training in another, and what else those files say in a third. `unpack` gives back the
same files. Checkpoints, policies, films and TensorBoard's events are left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, StringConstraints
from pydantic.dataclasses import dataclass as checked_dataclass

from training.config import UserError
from training.files import read_bytes, reason, write_atomically
from training.state_files import check

__all__ = ["EPISODES", "FACTS", "ITERATIONS", "pack", "unpack"]

EPISODES, ITERATIONS, FACTS = "episodes.csv.gz", "iterations.csv.gz", "facts.json.gz"
_MOST_BYTES = 2**28
_WHOLE = ("study.yaml", "costs.json")
"""Files of a study that a record holds as they are."""
_OF_RUN = ("config.yaml", "provenance.json")
_METRICS = "metrics.csv"

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]*$", max_length=200)]


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Facts:
    """What the tables do not hold."""

    evaluations: dict[Name, dict[str, Any]]
    """By evaluation, what its file says; of `records`, the names of an episode's numbers."""
    runs: dict[Name, dict[str, str]]
    """By run, its configuration and provenance as text, and the head of its metrics."""
    gaze: dict[Name, str]
    """By run, where its policy looks, as text."""


Row = dict[str, str]
Told = Mapping[str, Mapping[str, Any]]


def pack(out: Path, record: Path, told: Told) -> None:
    """Write the record of a study's directory.

    Args:
        out: the study's directory.
        record: the directory of the record, made where it is not there.
        told: by evaluation and by run, columns for whoever reads the tables, as its arm.

    Raises UserError where a file is damaged or a number is named as such a column, OSError where
    nothing can be written.
    """
    episodes, iterations = list[Row](), list[Row]()
    evaluations: dict[str, dict[str, Any]] = {}
    for path in sorted((out / "evaluations").glob("*.json")):
        facts = json.loads(read_bytes(path))
        columns = {"evaluation": path.stem} | _cells(told.get(path.stem, {}))
        for one in facts["records"]:
            if same := columns.keys() & one.keys():
                raise UserError(f"{path}: an episode's number cannot be named {min(same)} here")
            episodes.append(columns | _cells(one))
        evaluations[path.stem] = facts | {"records": list(facts["records"][0]), "seeds": None}
    runs: dict[str, dict[str, str]] = {}
    for folder in sorted(path for path in (out / "runs").glob("*") if path.is_dir()):
        runs[folder.name] = {
            name: (folder / name).read_text("utf-8")
            for name in _OF_RUN
            if (folder / name).is_file()
        }
        if (folder / _METRICS).is_file():
            head, *rows = (folder / _METRICS).read_text("utf-8").splitlines()
            runs[folder.name][_METRICS] = head
            columns = {"run": folder.name} | _cells(told.get(folder.name, {}))
            iterations += [
                columns | dict(zip(head.split(","), row.split(","), strict=True)) for row in rows
            ]
    gaze = {path.stem: path.read_text("utf-8") for path in sorted((out / "gaze").glob("*.json"))}
    text = json.dumps({"evaluations": evaluations, "runs": runs, "gaze": gaze})
    record.mkdir(parents=True, exist_ok=True)
    for name in _WHOLE:
        if (out / name).is_file():
            write_atomically(record / name, read_bytes(out / name))
    for name, whole in (
        (EPISODES, _table(episodes)),
        (ITERATIONS, _table(iterations)),
        (FACTS, text),
    ):
        write_atomically(record / name, gzip.compress(whole.encode(), mtime=0))


def _cells(values: Mapping[str, Any]) -> Row:
    """As JSON, so that numbers come back to the bit; text as it is."""
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}


def _table(rows: list[Row]) -> str:
    columns = dict.fromkeys(key for row in rows for key in row)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def unpack(record: Path, out: Path) -> None:
    """Write a record's files into a study's directory, one that is not there or empty.

    Raises UserError where the record is damaged or the directory is not empty, OSError where
    nothing can be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            f"{out} must be empty to begin with the record {record}: give another --out"
        )
    facts = check(Facts, _json(_decompressed(record / FACTS), record / FACTS), record / FACTS)
    episodes = _grouped(record / EPISODES, "evaluation")
    iterations = _grouped(record / ITERATIONS, "run")
    files = {
        name: read_bytes(record / name).decode() for name in _WHOLE if (record / name).is_file()
    }
    for name, entry in facts.evaluations.items():
        keys, rows = entry.get("records"), episodes.get(name, [])
        if not isinstance(keys, list) or not rows:
            raise UserError(f"{record / EPISODES} is damaged: it has no episodes of {name}")
        records = [
            {key: _json(row[key], record / EPISODES) for key in keys if row.get(key)}
            for row in rows
        ]
        entry |= {"records": records, "seeds": [one.get("seed") for one in records]}
        files[f"evaluations/{name}.json"] = json.dumps(entry, indent=1) + "\n"
    for name, texts in facts.runs.items():
        for file, text in texts.items():
            if file == _METRICS:
                keys = text.split(",")
                lines = (",".join(row.get(k, "") for k in keys) for row in iterations.get(name, []))
                text = "\n".join((text, *lines)) + "\n"
            elif file not in _OF_RUN:
                raise UserError(f"{record / FACTS} is damaged: a run has no file {file}")
            files[f"runs/{name}/{file}"] = text
    files |= {f"gaze/{name}.json": text for name, text in facts.gaze.items()}
    for name, text in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="")


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: {text[:40]!r} is no JSON") from None


def _decompressed(path: Path) -> str:
    """UserError where it is damaged, or larger than any record of ours."""
    try:
        with gzip.open(io.BytesIO(read_bytes(path))) as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{path} holds more than {_MOST_BYTES / 2**20:.0f} MiB")
        return data.decode()
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def _grouped(path: Path, key: str) -> dict[str, list[Row]]:
    """Rows of a table by a column, in their order."""
    found: dict[str, list[Row]] = {}
    try:
        for row in csv.DictReader(io.StringIO(_decompressed(path), newline="")):
            found.setdefault(row.get(key) or "", []).append(row)
    except csv.Error as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return found
