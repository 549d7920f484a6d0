"""Two checkouts timed in turn, here twice the same."""

import json
from pathlib import Path

import pytest

from benchmarks import before_after, timed_cases

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(before_after, "ROUND_MS", 0.1)
    out = tmp_path / "found.json"
    words = ["--before", str(ROOT), "--only", "scores|hybrid m=n=8|96", "scores|FAVOR+ m=256|96"]
    assert before_after.main([*words, "--rounds", "2", "--out", str(out)]) == 0
    found = json.loads(out.read_text())["results"]
    assert set(found) == {"scores|hybrid m=n=8|96", "scores|FAVOR+ m=256|96"}
    assert all(min(row.values()) > 0 for row in found.values())
    assert "scores, 96: FAVOR+ m=256 / hybrid m=n=8" in capsys.readouterr().out


def test_every_case_is_one_that_is_timed():
    assert len(set(before_after.CASES)) == len(before_after.CASES)
    for case in before_after.CASES:
        assert case.split("|")[0] in timed_cases.CASES


def test_mistakes_are_one_sentence(tmp_path, capsys):
    assert before_after.main(["--before", str(tmp_path)]) == 2
    assert "--before must be a checkout" in capsys.readouterr().err
    assert before_after.main(["--before", str(ROOT), "--only", "nothing"]) == 2
    assert "--only must name a part of a case" in capsys.readouterr().err
