"""Published figures of nonparametric classification: published.yaml, by data set and column."""

from pathlib import Path
from typing import Any

import yaml

Figure = tuple[float, float]
"""Accuracy and its standard error."""


def _rows(table: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    columns = table.pop("columns")
    return {name: dict(zip(columns, row, strict=True)) for name, row in table.items()}


def _figures(table: dict[str, list[Any]], unit: float) -> dict[str, dict[str, Figure]]:
    return {
        name: {column: (accuracy, error * unit) for column, (accuracy, error) in row.items()}
        for name, row in _rows(table).items()
    }


_FOUND = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
SIGMA: dict[str, float] = _FOUND["sigma"]
MEAN_V: dict[str, float] = _FOUND["mean_v"]
TABLE_2, TABLE_3 = _figures(_FOUND["table_2"], 1.0), _figures(_FOUND["table_3"], 1e-4)
CRT_TABLE_1: dict[str, dict[str, float]] = {
    name: {column: percent / 100 for column, percent in row.items()}
    for name, row in _rows(_FOUND["crt_table_1"]).items()
}
