"""The throughput benchmark on a short episode: its parts add up, and nothing stays replaced."""

import json

import pytest

from benchmarks import throughput


def test_figures(tmp_path, monkeypatch, capsys):
    functions = [
        getattr(owner, name) for parts in throughput.PARTS.values() for owner, name in parts
    ]
    measure = throughput.measure
    monkeypatch.setattr(throughput, "measure", lambda seeds: measure(seeds, episode_s=1.0))
    walk, walks = throughput.walk, []

    def noted(*given):
        walks.append(walk(*given))
        return walks[-1]

    monkeypatch.setattr(throughput, "walk", noted)
    file = tmp_path / "speed.json"
    assert throughput.main(["--episodes", "2", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["seeds"] == [100_000, 100_001]
    spent = figures["ms_per_simulated_s"]
    assert list(spent) == list(throughput.PARTS)
    assert min(spent.values()) > 0
    simulated, inside = zip(*walks[-2:], strict=True)  # of the walks with a clock around each part
    assert sum(spent.values()) == pytest.approx(1e3 * sum(inside) / sum(simulated), rel=0.05)
    assert figures["bare_physics_ms_per_simulated_s"] < sum(spent.values())
    assert 0 < figures["bare_physics_share"] < 1
    assert figures["simulated_s_per_core_s"] > 0
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
