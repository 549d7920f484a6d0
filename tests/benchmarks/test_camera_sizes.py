"""The command of docs/results/cameras.md, and the record that this page quotes."""

import json
from pathlib import Path

import pytest

from benchmarks import camera_sizes

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "cameras" / "sizes.json"


def test_figures(tmp_path, capsys):
    file = tmp_path / "sizes.json"
    assert camera_sizes.main(["--sizes", "24x32", "48x64", "--calls", "3", "--out", str(file)]) == 0
    results = json.loads(file.read_text())["results"]
    small, large = (results[size] for size in ("24x32", "48x64"))
    assert (small["tokens"], large["tokens"]) == (1536, 6144)
    for name in camera_sizes.ARMS:
        least, most = (one["policies"][name]["attention_flops"] for one in (small, large))
        times = 16 if name == camera_sizes.EXACT else 4
        assert most == pytest.approx(times * least, rel=0.06)
        assert small["policies"][name]["cpu_ms"] > 0
    printed = capsys.readouterr().out
    assert all(row in printed for row in camera_sizes.rows(results))


@pytest.mark.parametrize("size", ["24", "axb", "24x"])
def test_a_size_that_is_none_is_one_sentence(size, capsys):
    assert camera_sizes.main(["--sizes", size]) == 2
    assert f"--sizes must be HEIGHTxWIDTH in pixels, got '{size}'" in capsys.readouterr().err


@pytest.mark.skipif(not RECORD.is_file(), reason="docs are not part of a source distribution")
def test_the_document_quotes_the_record():
    """Every linear map is inside a decision at 24,576 tokens, exact attention far outside."""
    results = json.loads(RECORD.read_text())["results"]
    assert list(results) == list(camera_sizes.SIZES)
    finest = results["96x128"]
    assert finest["tokens"] == 24_576
    for name in camera_sizes.LINEAR:
        assert finest["policies"][name]["cpu_ms"] < camera_sizes.DECISION_MS
    assert finest["policies"][camera_sizes.EXACT]["cpu_ms"] > 10 * camera_sizes.DECISION_MS
    text = (ROOT / "docs" / "results" / "cameras.md").read_text()
    assert camera_sizes.table(results) in text
    assert finest["exact_added_mib"] < 100 < 2000 < finest["matrix_mib"]
