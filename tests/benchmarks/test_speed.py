"""Quick runs of the benchmarks: what is counted is right, and nothing stays replaced."""

import importlib.util
import json
import math
import os
import statistics
from pathlib import Path

import pytest
import torch

import attention
from benchmarks import (
    attention_cost,
    attention_memory,
    attention_speed,
    before_after,
    camera_sizes,
    cloning_time,
    compiled_speed,
    es_scaling,
    generate_speed,
    gpu_table,
    memory_over_time,
    outer_products,
    sklearn_speed,
    sweep_time,
    throughput,
    throughput_against,
    timed_cases,
)
from benchmarks.live_memory import peak_bytes
from experiments.timing import in_turn
from training.algorithms import dagger

from .runs import quick

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "cameras" / "sizes.json"


def functions(*groups):
    return [getattr(o, name) for parts in groups for pairs in parts.values() for o, name in pairs]


def test_calls_are_timed_in_turn():
    made = []
    calls = {"slow": lambda: made.append("slow"), "fast": lambda: made.append("fast")}
    ticks = iter(range(100))
    times = in_turn(calls, lambda ms: 1 if len(made) == 2 else 3, lambda: next(ticks))
    assert made[:2] == ["slow", "fast"]  # to warm up
    assert times == {"slow": [1000.0], "fast": [1000.0]}
    assert {name: len(t) for name, t in in_turn(calls, 3).items()} == {"slow": 3, "fast": 3}
    assert made[-6:] == ["slow", "fast"] * 3


def test_attention_speed(tmp_path, capsys, monkeypatch):
    few = {name: attention_speed.ERROR_MAPS[name] for name in ("hyperbolic", "angular_hybrid")}
    monkeypatch.setattr(attention_speed, "ERROR_MAPS", few)
    results = quick(attention_speed, tmp_path, "--lengths", "32", "64")
    for kind in ("bidirectional", "causal"):
        assert [row["length"] for row in results[kind]] == [32, 64]
        for row in results[kind]:
            assert set(attention_speed.OURS) <= set(row["ms"])
            assert min(row["ms"].values()) > 0
            # At the least the output: 8 heads x length x 64 numbers.
            assert min(row["peak_mib"].values()) >= 8 * row["length"] * 64 * 4 / 2**20
    assert set(results["parts"]) == set(attention_speed.OURS)
    assert all(0 < row["relative_error"] < math.inf for row in results["errors"])
    assert "error against exact attention" in capsys.readouterr().out
    assert attention_speed.main(["--device", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("error: device nowhere cannot be used here")


@pytest.mark.records
def test_gpu_table(tmp_path, capsys):
    """On the CPU, where a bfloat16 tensor is computed in float32."""
    words = ["--device", "cpu", "--quick", "--backend", "eager", "--out", str(tmp_path)]
    assert gpu_table.main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed.count("| tokens | 64, float32 | 128 | 64, bfloat16 | 128 |") == 2
    rows = json.loads((tmp_path / "gpu_table.json").read_text())["results"]["rows"]
    for kind in ("bidirectional", "causal"):
        times = {row["method"]: row["ms"] for row in rows if row["kind"] == kind}
        assert {"FAVOR+ m = 256", "FAVOR+ m = 256, compiled"} < times.keys()
        assert all(len(ms) == 4 and min(ms) > 0 for ms in times.values())
        cells = [f"{ms:.1f}" for ms in times["FAVOR+ m = 256"]]
        assert f"| FAVOR+ m = 256 | {' | '.join(cells)} |" in printed


@pytest.mark.skipif(not RECORD.exists(), reason="docs are not part of a source distribution")
def test_gpu_table_has_the_form_of_its_page():
    page = (ROOT / "docs" / "guide" / "gpu.md").read_text()
    head, rule = gpu_table.table(gpu_table.LENGTHS, [])
    rows = page.split(f"{head}\n{rule}\n")[1].split("\n\n")[0].splitlines()
    methods = {row.split("|")[1].strip() for row in rows}
    assert {name.replace("=", " = ") for name in attention_speed.OURS} <= methods


def test_attention_cost(tmp_path, monkeypatch):
    monkeypatch.setattr(attention_cost, "SIZES", ((96, 4),))
    file = tmp_path / "cost.json"
    assert attention_cost.main(["--calls", "1", "--out", str(file)]) == 0
    rows = {row["map"]: row for row in json.loads(file.read_text())["results"]}
    assert list(rows) == list(attention_cost.MAPS)
    assert rows["exact softmax"]["relative_error_mean"] < 1e-5
    assert rows["angular_hybrid m=n=8"]["agreement_mean"] > 0.5


def test_generate_speed(tmp_path, capsys):
    file = tmp_path / "generate_speed.json"
    words = ["--lengths", "8", "--tokens", "4", "--num-features", "16", "--out", str(tmp_path)]
    if importlib.util.find_spec("transformers") is None:
        assert generate_speed.main(words) == 2
        assert "needs transformers: pip install transformers" in capsys.readouterr().err
        return
    assert generate_speed.main(words) == 0
    cache, sums = json.loads(file.read_text())["results"]["results"]
    # Keys and values of 4 layers and 11 tokens; sums of 16 features and 64 numbers, and a few more.
    assert cache["cache_mb"] == pytest.approx(4 * 11 * 2 * 256 * 4 / 1e6)
    assert sums["cache_mb"] == pytest.approx(4 * 4 * (16 * 65 + 5) * 4 / 1e6)


def test_sklearn_speed(tmp_path, monkeypatch):
    monkeypatch.setattr(sklearn_speed, "SIZES", ((10, 3, 8),))
    file = tmp_path / "sklearn_speed.json"
    assert sklearn_speed.main(["--calls", "3", "--out", str(tmp_path)]) == 0
    for row in json.loads(file.read_text())["results"]:
        assert row["ratio"] == pytest.approx(row["ours_ms"] / row["rbf_ms"], rel=1e-6)


def test_compiled_speed(tmp_path, monkeypatch):
    pytest.importorskip("numba", reason="extra fast")
    monkeypatch.setattr(compiled_speed, "IMAGES", 2)
    words = ["--quick", "--calls", "3", "--out", str(tmp_path)]
    assert compiled_speed.main(words) == 0
    rows = json.loads((tmp_path / "compiled_speed.json").read_text())["results"]
    kinds = [row["case"].partition(",")[0] for row in rows]
    attended = ["attention", "attention", "causal attention", "causal attention"]
    assert kinds == [*["decision"] * 4, "update", *attended]
    assert all(row["lower"] <= row["ratio"] <= row["upper"] for row in rows)
    assert "FOVEATE_NUMBA" not in os.environ


def test_peak_bytes_counts_what_is_alive():
    given = torch.ones(1000)

    def compute():
        a = given + 1  # 4,000 bytes
        b = a.view(10, 100).mT * 2  # 8,000: the view is no memory of its own
        del a
        c = b[:, :5].contiguous()  # b, and 200
        del b
        return c + given.sum()  # 200, 4 and 200 beside nothing else

    assert peak_bytes(compute) == 8000
    assert peak_bytes(lambda: given.view(-1)) == 0


@pytest.mark.parametrize("name", [compiled_speed.FAVOR, compiled_speed.HYBRID])
def test_causal_attention_takes_less_than_half_of_its_inputs_and_outputs(name, monkeypatch):
    """In plain PyTorch, whose tensors can be counted."""
    monkeypatch.setenv("FOVEATE_NUMBA", "0")
    features = attention.feature_map(dim=64, **compiled_speed.MAPS[name])
    x, y, v = torch.randn(3, 1, 2, 16384, 64) * 64**-0.25
    peak = peak_bytes(lambda: features.attend(x, y, v, causal=True))
    assert peak - v.nbytes < 0.5 * 4 * v.nbytes


@pytest.mark.slow
@pytest.mark.skipif(not attention_memory.CLEAR.exists(), reason="needs Linux")
def test_attention_memory(tmp_path):
    assert attention_memory.main(["--length", "16384", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "attention_memory.json").read_text())["results"]
    assert len(rows) == 8
    assert all(0 < row["share"] < 0.5 for row in rows)


@pytest.mark.slow
def test_two_checkouts_in_turn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(before_after, "ROUND_MS", 0.1)
    out = tmp_path / "found.json"
    words = ["--before", str(ROOT), "--only", "scores|hybrid m=n=8|96", "scores|FAVOR+ m=256|96"]
    assert before_after.main([*words, "--rounds", "2", "--out", str(out)]) == 0
    found = json.loads(out.read_text())["results"]
    assert set(found) == {"scores|hybrid m=n=8|96", "scores|FAVOR+ m=256|96"}
    for row in found.values():
        assert 0 < row["before_ms"] <= row["before_quartiles_ms"][0]
        assert row["after_quartiles_ms"] == sorted(row["after_quartiles_ms"])
    assert "scores, 96: FAVOR+ m=256 / hybrid m=n=8" in capsys.readouterr().out


def test_cases_of_two_checkouts_and_mistakes(tmp_path, capsys):
    assert len(set(before_after.CASES)) == len(before_after.CASES) >= 112
    assert {case.split("|")[0] for case in before_after.CASES} == set(timed_cases.CASES)
    for words, error in (
        ([str(tmp_path)], "--before must be a checkout"),
        ([str(ROOT), "--only", "nothing"], "--only must name a part of a case"),
    ):
        assert before_after.main(["--before", *words]) == 2
        assert error in capsys.readouterr().err


@pytest.mark.records
def test_camera_sizes(tmp_path, capsys):
    file = tmp_path / "sizes.json"
    assert camera_sizes.main(["--sizes", "24x32", "48x64", "--calls", "1", "--out", str(file)]) == 0
    results = json.loads(file.read_text())["results"]
    small, large = (results[size] for size in ("24x32", "48x64"))
    assert (small["tokens"], large["tokens"]) == (1536, 6144)
    for name in camera_sizes.POLICIES:
        least, most = (one["policies"][name]["attention_flops"] for one in (small, large))
        times = 16 if name == camera_sizes.EXACT else 4
        assert most == pytest.approx(times * least, rel=0.06)
        assert small["policies"][name]["cpu_ms"] > 0
    assert camera_sizes.table(results) in capsys.readouterr().out
    for size in ("24", "axb", "24x"):
        assert camera_sizes.main(["--sizes", size]) == 2
        error = f"--sizes must be HEIGHTxWIDTH in pixels, got '{size}'"
        assert error in capsys.readouterr().err


@pytest.mark.skipif(not RECORD.is_file(), reason="docs are not part of a source distribution")
def test_the_page_quotes_the_record_of_camera_sizes():
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


@pytest.mark.records
def test_cloning_time_leaves_the_size_of_parts_alone(capsys):
    usual = dagger.PART
    assert cloning_time.main(["--batch", "16", "--rounds", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [row[:22].strip() for row in table[1:]] == list(cloning_time.VARIANTS)
    assert all(float(cell) > 0 for row in table[1:] for cell in row[22:].split())
    assert usual == dagger.PART


@pytest.mark.slow
def test_es_scaling(tmp_path):
    file, few = tmp_path / "scaling.json", ["episode_s=0.3", "popsize=4", "terrains=1"]
    words = ["--iterations", "3", "--repeats", "1", "--json", str(file), "--set", *few]
    assert es_scaling.main(words) == 0
    found = json.loads(file.read_text())
    assert 0 < found["overhead_share_median"] < 1
    assert found["two_workers_speedup_median"] > 0
    assert len(found["resident_mib"][0]) == 3


@pytest.mark.records
def test_memory_over_time(tmp_path, capsys, monkeypatch):
    """Counts alone: no time is tested."""
    rows = quick(memory_over_time, tmp_path, "--growing", "2")
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
    monkeypatch.setattr(memory_over_time, "WINDOW", 21)  # decisions a second, where there are 20
    assert memory_over_time.main(["--quick"]) == 2
    assert "where it falls after 3.0 s" in capsys.readouterr().err


@pytest.mark.records
def test_outer_products(capsys):
    assert outer_products.main(["--quick"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[:5] for row in rows] == [
        ["16", "16", "1", "64", kind] for kind in ("training", "inference")
    ]
    for row in rows:
        made, not_made, ratio = (float(row.split()[i]) for i in (5, 6, 7))
        assert ratio == pytest.approx(made / not_made, rel=0.05)


@pytest.mark.records
def test_sweep_time(tmp_path, capsys):
    groups = sweep_time.STEP_PARTS, sweep_time.RESET_PARTS
    before = functions(*groups)
    results = quick(sweep_time, tmp_path, "--seed", "3")
    assert functions(*groups) == before
    drawn = {"drawing what moves", "copying the background", "drawing the background"}
    for name in sweep_time.COLUMNS:
        found = results[name]
        assert min(found["step_ms"], found["reset_ms"], found["expert_ms_mean"]) > 0
        for whole in ("step", "reset"):  # else other calls were timed
            assert 0.25 < sum(found[f"{whole}_ms_parts"].values()) / found[f"{whole}_ms"] < 4
        parts = {**found["step_ms_parts"], **found["reset_ms_parts"]}
        idle = {part for part, ms in parts.items() if ms == 0}
        assert idle == (drawn if name == "no images" else set())
    assert "inverse kinematics" in capsys.readouterr().out


def test_throughput(tmp_path, monkeypatch, capsys):
    before = functions(throughput.PARTS)
    measure, walk, walks = throughput.measure, throughput.walk, []
    monkeypatch.setattr(throughput, "measure", lambda seeds: measure(seeds, episode_s=1.0))
    monkeypatch.setattr(throughput, "walk", lambda *a: walks.append(walk(*a)) or walks[-1])
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
    assert functions(throughput.PARTS) == before


def test_files_that_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(throughput, "measure", lambda seeds: {})
    monkeypatch.setattr(throughput, "report", lambda figures: [])
    assert throughput.main(["--json", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: --json {tmp_path} cannot be written: ")
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setattr(outer_products, "SIZES", ())
    monkeypatch.setattr(sweep_time, "COLUMNS", {"no images": {"images": False}})
    real = sweep_time.times_of
    monkeypatch.setattr(sweep_time, "times_of", lambda env, seed, *_: real(env, seed, 2, 1))
    assert sweep_time.main(["--out", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"error: --out {file} cannot be written")


def test_throughput_against(tmp_path, capsys):
    figures = {
        "there": {"whole_ms": [60.0, 80.0, 70.0], "bare_physics_ms": [20.0, 20.0, 20.0]},
        "here": {"whole_ms": [40.0, 40.0, 35.0], "bare_physics_ms": [20.0, 20.0, 20.0]},
    }
    lines = list(throughput_against.report(figures))
    assert lines[1].split() == ["there", "70.0", "20.0", "0.29"]
    assert lines[2].split() == ["here", "40.0", "20.0", "0.50"]
    assert lines[3].startswith("here is 2.00 times as fast (1.50 to 2.00,")
    assert throughput_against.main([str(tmp_path)]) == 2
    expected = f"error: DIR {tmp_path} is no checkout to time: it has no benchmarks/throughput.py\n"
    assert capsys.readouterr().err == expected


@pytest.mark.slow
def test_a_checkout_is_as_fast_as_itself():
    """Fails by chance only on a machine that is half as fast for whole walks of one process."""
    figures = throughput_against.measure(throughput_against.HERE, 6)
    pairs = zip(figures["there"]["whole_ms"], figures["here"]["whole_ms"], strict=True)
    assert statistics.median(a / b for a, b in pairs) == pytest.approx(1, abs=0.5)
