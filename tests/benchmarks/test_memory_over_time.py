"""The command behind the plot of cost and memory over a walk, quick."""

import json

from benchmarks import memory_over_time


def test_what_grows_and_what_does_not(tmp_path, capsys):
    """Counts alone: no time is tested."""
    words = ["--quick", "--growing", "2", "--out", str(tmp_path)]
    assert memory_over_time.main(words) == 0
    assert (tmp_path / "memory_over_time.png").stat().st_size > 10_000
    rows = json.loads((tmp_path / "memory_over_time.json").read_text())["results"]
    assert list(rows) == list(memory_over_time.MEMORIES)
    assert {name: len(row["ms"]) for name, row in rows.items()} == {
        name: 2 if name == "exact over all" else 3 for name in rows
    }
    for name in ("none", "grid of 1 cm", "linear, F = 53"):
        assert len(set(rows[name]["carried"])) == 1
    assert rows["none"]["carried"][0] == 0
    assert rows["linear, F = 53"]["carried"][0] < rows["grid of 1 cm"]["carried"][0]
    endless, short = rows["exact over all"], rows["exact over 1 s"]
    assert endless["carried"][1] > 1.5 * endless["carried"][0]
    assert endless["flops"][1] > 1.5 * endless["flops"][0]
    assert short["carried"][2] < 1.5 * short["carried"][1]
    assert endless["carried"][0] == short["carried"][0]
    capsys.readouterr()


def test_a_walk_that_ends_early_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(memory_over_time, "WINDOW", 21)  # decisions a second, where there are 20
    assert memory_over_time.main(["--quick"]) == 2
    assert "where it falls after 3.0 s" in capsys.readouterr().err
