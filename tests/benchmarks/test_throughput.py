"""The throughput benchmark on a short episode: all figures are there, nothing stays replaced."""

import json

from benchmarks import throughput


def test_figures(tmp_path, monkeypatch, capsys):
    functions = [
        getattr(owner, name) for parts in throughput.PARTS.values() for owner, name in parts
    ]
    measure = throughput.measure
    monkeypatch.setattr(throughput, "measure", lambda seeds: measure(seeds, episode_s=1.0))
    file = tmp_path / "speed.json"
    assert throughput.main(["--episodes", "2", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["seeds"] == [100_000, 100_001]
    spent = figures["ms_per_simulated_s"]
    assert list(spent) == list(throughput.PARTS)
    assert min(spent.values()) > 0
    for figure in (
        "simulated_s_per_core_s", "bare_physics_ms_per_simulated_s", "bare_physics_share"
    ):  # fmt: skip
        assert figures[figure] > 0
    assert figures["provenance"]["hardware"]["cores"] >= 1
    assert "bare physics" in capsys.readouterr().out
    assert functions == [
        getattr(owner, name) for parts in throughput.PARTS.values() for owner, name in parts
    ]


def test_an_unwritable_file_is_one_sentence(tmp_path, monkeypatch, capsys):
    measure = throughput.measure
    monkeypatch.setattr(throughput, "measure", lambda seeds: measure(seeds, episode_s=0.1))
    assert throughput.main(["--episodes", "1", "--json", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: --json {tmp_path} cannot be written: ")
