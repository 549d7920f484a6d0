"""Every figure that a page of docs/results prints is the one of its committed record."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.compiled_speed import FAVOR, HYBRID
from experiments.chefs_random_tables.oprf_gain import SHOWN
from experiments.chefs_random_tables.variance import CLAIMS
from experiments.felt_ground.felt_memories import beaten
from experiments.figure import _without_out, read_record, select
from experiments.hybrid_random_features.clustered import MAPS
from experiments.robots.felt_ground import FORGETTING, ON_CURVES, UNTOLD, WORLDS, summary
from experiments.robots.public_tasks import TASKS, TRAINERS
from experiments.simplex_random_features.bandwidths import best
from experiments.simplex_random_features.classification_published import SIGMA
from training.analysis.intervals import mean_interval

ROOT = Path(__file__).resolve().parents[2]
RESULTS, RECORDS = ROOT / "docs" / "results", ROOT / "docs" / "records"
PAGES = {
    "attention_before_after": "attention.md",
    "attention_memory": "attention.md",
    "place_memory": "memory.md",
    "place_memory_width": "place_memory.md",
    "same_keys": "place_memory.md",
    "felt_ground": "felt_ground.md",
    "memory_over_time": "place_memory.md",
    "coupling_costs": "../reference/attention.md",
    "generate_speed": "../guide/attention.md",
    "compiled_speed": "../guide/attention.md",
    "gpu_table": "../guide/gpu.md",
    "sklearn_speed": "../guide/attention.md",
    "felt_memories": "felt_ground.md",
    "felt_networks": "felt_ground.md",
    "felt_patches": "felt_ground.md",
    "public_tasks": "../guide/environments.md",
    "throughput_against": "../guide/stepping_stones.md",
}
"""Pages of records that attention.md does not print."""
NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
Rows = Iterator[tuple[tuple[str, ...], Sequence[float]]]
"""First cells of a row of the page, and the figures of its other cells in order."""

pytestmark = [
    pytest.mark.records,
    pytest.mark.skipif(not RECORDS.is_dir(), reason="docs are not part of a source distribution"),
]


def flat(parts: Iterable[Iterable[float]]) -> list[float]:
    return [*chain.from_iterable(parts)]


def oprf_gain(results: Any) -> Rows:
    for square in (1, 10, 100):
        yield (str(square),), [r["shown"][SHOWN.index(square)] for r in results]


def variance(results: Any) -> Rows:
    at_one = {(r["regime"], r["map"]): r["mean"] for r in results if r["scale"] == 1}
    for (regime, better, worse), claim in CLAIMS.items():
        ours = at_one[regime, worse] - at_one[regime, better]
        yield (f"{regime}: {worse} / {better}",), [claim, ours]


def quasi_monte_carlo(results: Any) -> Rows:
    yield ("ours",), [r["mean_1e-3"] for r in results if r["set"] == "wine"][:6]


def clustered(results: Any) -> Rows:
    for name in ("s1, sigma=1", "s4, sigma=20"):
        found = {r["map"]: r for r in results if (r["data"], r["m"]) == (name, 200)}
        values = [[found[m]["mse"], *(found[m]["published"] or ())] for m in MAPS]
        yield (name.replace("=", " "),), flat(values)


def far_from_zero(results: Any) -> Rows:
    errors = {(r["map"], r["way"], r["length"]): r["error"] for r in results}
    labels = {"trig": "", "positive": " (FAVOR+)", "poisson": ""}
    labels |= {"oprf": " (FAVOR++), `gerf`"}
    for name, more in labels.items():
        moved = [errors[name, "as it is", length] for length in (0, 2, 50)]
        yield (f"`{name}`{more}",), [*moved, errors[name, "centred", 50]]


def pointwise(results: Any) -> Rows:
    for label in dict.fromkeys(r["map"] for r in results):
        of = [r for r in results if r["map"] == label]
        both = [[max(r["relative_error_theory"]), max(r["relative_error"])] for r in of]
        if label != "angular hybrid, shared":
            name = label.replace("hybrid, shared", "hybrid, shared projections")
            yield (name, str(of[0]["m"])), flat(both)


def error_surface(results: Any) -> Rows:
    for r in results["slices"]:
        if "errors" in r and r["length"] == 1:
            yield (r["map"],), r["errors"]


def resultants(results: Any) -> Rows:
    keys = ("mean", "mean_drawn", "share_long", "share_long_drawn", "conformity")
    for r in results:
        if r["dim"] == 6:
            yield (r["coupling"],), [r[key] for key in keys]


def couplings(results: Any) -> Rows:
    names = ("iid", "orthogonal", "simplex", "simplex_plus")
    found = results["conformity"]
    yield ("conformity at d = 6, abs(x + y) = 1",), [found[n] for n in (*names, "optimised")]
    gram = {r["coupling"]: r["mean"] for r in results["gram"] if r["m"] == 64}
    yield ("squared Gram error at m = 64",), [gram[name] for name in names]


def max_error(results: Any) -> Rows:
    for name, label in (("phi", "phi (`trig`)"), ("psi", "psi (`trig_phase`)")):
        yield (label,), [r["mean_largest_error"][-1] for r in results if r["features"] == name]


def bandwidths(results: Any) -> Rows:
    for name, curve in results.items():
        figures = [SIGMA[name]]
        for key in ("accuracy", "exact"):
            sigma = best(curve, key)
            figures += [sigma, next(r[key] for r in curve if r["sigma"] == sigma)]
        yield (name,), figures


def cooccurrence(results: Any) -> Rows:
    for layers in range(4):
        yield (str(layers),), [r["mean"] for r in results if r["layers"] == layers]


def classification(results: Any) -> Rows:
    sets = results["sets"]
    for coupling in ("iid", "orthogonal", "simplex"):
        yield (coupling,), _with_errors(sets["banknote"]["figure_8"][coupling].values())
    for method in ("trig", "positive", "geometric", "oprf"):
        columns = (sets[name]["crt_table_1"][method] for name in
                   ("banknote", "car", "cmc", "chess", "abalone"))  # fmt: skip
        yield (f"`{method}`",), flat([r["accuracy"], r["published"]] for r in columns)
    yield ("chess",), _with_published(sets["chess"]["table_3"].values())


def classification_10000(results: Any) -> Rows:
    for name in ("banknote", "abalone"):
        yield (name,), _with_published(results["sets"][name]["table_3"].values())


def _with_published(rows: Any) -> list[float]:
    return flat([r["accuracy"], r["published"]] for r in rows)


def _with_errors(rows: Any) -> list[float]:
    """Accuracy, and its standard error in units of the fourth decimal."""
    return flat([r["accuracy"], 1e4 * r["error"]] for r in rows)


def hybrid_bases(results: Any) -> Rows:
    def errors(label: str, dv: int) -> list[float]:
        return [r["attention_error_median"] for r in results
                if (r["map"], r["d"], r["dv"]) == (label, 64, dv)]  # fmt: skip

    yield ("`trig`, m = 170",), errors("trig", 64)
    yield ("`oprf`, simplex, m = 256",), errors("oprf, simplex", 64)
    yield ("`oprf`, orthogonal",), errors("oprf", 64)
    yield ("`positive`, simplex",), errors("positive, simplex", 64)
    yield ("`trig`, m = 250",), errors("trig", 1)


def error_per_flop(results: Any) -> Rows:
    labels = {"`trig`": "trig", "`oprf`, simplex": "oprf, simplex",
              "`positive`, simplex": "positive, simplex",
              "`positive`, orthogonal (FAVOR+)": "positive",
              "`clustered_hybrid`, complex A": "clustered_hybrid, complex A",
              "`poisson_plus`": "poisson_plus", "`geometric_plus`": "geometric_plus"}  # fmt: skip
    for label, name in labels.items():
        rows = {
            (kind, r["F_allowed"]): r
            for kind in ("unit", "clustered")
            for r in results[kind]["maps"]
            if r["map"] == name
        }
        errors = [
            rows[key, size]["attention_error"]
            for key, size in product(("unit", "clustered"), (256, 1024))
        ]
        yield (label,), [rows["unit", 256]["flops_a_token"] / 1e3, *errors]


def compositional(results: Any) -> Rows:
    for kernel, method, label in (
        ("shallow", "RFS", "shallow, RFS"), ("shallow", "RR", "shallow, RR"),
        ("shallow", "RFS, every draw kept", "shallow, RFS, every draw kept"),
        ("deep", "RFS", "deep, RFS"), ("deep", "RFS+RR", "deep, RFS+RR"),
        ("deep ReLU", "RFS", "deep ReLU, RFS"),
    ):  # fmt: skip
        rows = [r for r in results["results"] if (r["kernel"], r["method"]) == (kernel, method)]
        rows = [r for r in rows if r["columns"] in (256, 4096)]
        figures = [r["root_mean_square"] for r in rows] + [100 * r["accuracy"] for r in rows]
        exact = [100 * results["exact"][kernel]["accuracy"]] if method == "RFS" else []
        yield (label,), figures + exact


def place_memory(results: Any) -> Rows:
    for r in results["memories"]:
        label = re.sub(r"(\w+)(?= \(|, m)", r"`\1`", r["map"]).replace("that was seen", "values")
        row = [r["F"], r["state"], r["flops"] / 1e3, r["kappa"], r["error"], r["to_exact"]]
        yield (label,), [*(figure for figure in row if figure), 100 * r["wrong"]]
    for r in results["sizes"]:
        label = (f"{r['bandwidth_cm']:.1f}", f"{100 * r['tail']:g}")
        yield label, [r["circle"], r["torus"], r["product"]]


def place_memory_width(results: Any) -> Rows:
    for r in results:
        label = re.sub(" (?=[mF] =)", ", ", r["arm"].removeprefix("linear "))
        label = label.replace("angular hybrid", "angular").replace("rule, harmonic", "rule")
        yield (label,), [100 * r["chosen_m"]]


def same_keys(results: Any) -> Rows:
    ratio = [results["reward_ratio"], *results["reward_ratio_interval_95"]]
    for name, more in (("linear", ratio), ("exact", [])):
        success = 100 * results[name]["success"]
        yield (f"{name}, same keys",), [success, results[name]["reward"], *more]


def memory_over_time(results: Any) -> Rows:
    for name, label, seconds in (
        ("none", "none", (60,)), ("grid of 1 cm", "grid", (60,)),
        ("linear, F = 53", "linear", (60,)),
        ("exact over 1 s", "exact over 1 s", (60,)), ("exact over all", "exact", (10, 20)),
    ):  # fmt: skip
        for second in seconds:
            keys = ("flops", "attention_flops", "carried", "ms")
            yield (f"{label}, {second} s",), [results[name][key][second - 1] for key in keys]


def coupling_costs(results: Any) -> Rows:
    for name, last in results["1024"].items():
        power = math.log2(last["draw_ms"] / results["512"][name]["draw_ms"])
        yield (f"`{name}`",), [last["draw_ms"], power, last["apply_ms"], last["kept"]]


def attention_speed(results: Any) -> Rows:
    names = {
        "FAVOR+ m=256": "FAVOR+ 256",
        "performer-pytorch m=256": "performer-pytorch 256",
        "fast-transformers m=256": "fast-transformers 256",
    }
    for name, label in names.items():
        yield (
            (label,),
            [r["ms"][name] for kind in ("bidirectional", "causal") for r in results[kind]],
        )


def attention_memory(results: Any) -> Rows:
    names = {FAVOR: "FAVOR+ 256", HYBRID: "angular 8x8"}
    for plain, compiled in zip(results[::2], results[1::2], strict=True):
        label = f"{names[plain['map']]}, {plain['kind']}"
        yield (label,), [plain["peak_mib"], compiled["peak_mib"]]


def attention_before_after(results: Any) -> Rows:
    """Medians before and after, by length."""
    names = {
        "FAVOR+ m=256": "FAVOR+ 256", "hybrid m=n=8": "angular 8x8",
        "exact, fused": "exact (fused)", "performer_pytorch": "performer-pytorch 256",
    }  # fmt: skip
    for kind in ("bidirectional", "causal"):
        for name, label in names.items():
            cases = [results.get(f"attends|{kind}|{name}|{n}") for n in (512, 2048, 8192, 16384)]
            keys = ("before_quartiles_ms", "after_quartiles_ms")
            yield (label, kind), [case[key][1] for case in cases if case for key in keys]


def generate_speed(results: Any) -> Rows:
    found = results["results"]
    for cache, sums in zip(found[::2], found[1::2], strict=True):
        keys = ("tokens_per_s", "cache_mb", "prompt_s")
        yield (f"{cache['length']:,}",), flat([cache[key], sums[key]] for key in keys)


def throughput_against(results: Any) -> Rows:
    """Medians over rollouts of both checkouts, and what share of a step is bare physics."""
    for name, label in (("there", "earlier"), ("here", "now")):
        whole, bare = (np.array(results[name][key]) for key in ("whole_ms", "bare_physics_ms"))
        yield (label,), [np.median(whole), np.median(bare), np.median(bare / whole)]


def sklearn_speed(results: Any) -> Rows:
    for double, single in zip(results[::2], results[1::2], strict=True):
        label = tuple(f"{double[key]:,}" for key in ("rows", "dim", "columns"))
        yield label, [double["ratio"], single["ratio"]]


def compiled_speed(results: Any) -> Rows:
    for row in results:
        name, _, size = row["map"].partition(",")
        label = row["case"], f"`{name}`,{size}"
        printed = "attention" not in row["case"] or "2048" in row["case"]
        if name != "trig" and printed:
            yield label, [row["plain_ms"], row["compiled_ms"], row["ratio"]]


def felt_ground(results: Any) -> Rows:
    rows = summary(results)
    shown = {
        (row["world"], row["memory"]): [100 * row[f"success{e}"] for e in ("", "_low", "_high")]
        for row in rows
    }
    walked = [row for row in rows if row["world"] in WORLDS]
    for memory in dict.fromkeys(row["memory"] for row in walked):
        own = [row for row in walked if row["memory"] == memory]
        figures = flat(shown[row["world"], memory] for row in own)
        figures += [row["reward"] for row in own]
        cost = next(row for row in own if row["world"] == "conjunctions")
        if cost["numbers"] is not None:
            figures += [cost[key] for key in ("numbers", "flops", "ms")]
        yield (memory,), figures
    for memory in ("linear, delta, trig", "leader"):
        yield (f"{memory}, {UNTOLD}",), flat(shown[f"{w}, {UNTOLD}", memory] for w in WORLDS)
    for world in dict.fromkeys(world for world, _ in shown if world not in WORLDS):
        _, _, point = world.partition(", ")
        if point == UNTOLD:
            continue
        if point:
            yield (point,), flat(shown[world, memory] for memory in ON_CURVES)
            continue
        for memory in dict.fromkeys(memory for w, memory in shown if w == world):
            if memory not in FORGETTING:
                both = [shown.get((world, name), []) for name in (memory, f"{memory}, forgetting")]
                yield (memory,), flat(both)


def felt_memories(results: Any) -> Rows:
    columns = (
        ("kinds 64, d 16", 256), ("kinds 16, d 16", 256), ("conjunctions 8 x 8", 256),
        ("smooth, 4 factors", 256), ("labels change", 256),
    )  # fmt: skip
    of = {(r["memory"], (r["world"], r["carried"])): r for r in results}
    shown_of = (
        "linear, delta, quadratic", "linear, delta, trig", "linear, sum, trig", "leader",
        "leader, 32 prototypes", "least squares", "grid", "gru", "transformer",
        "exact, all samples",
    )  # fmt: skip
    for label in shown_of:
        first, *others = (of[label, case] for case in columns)
        shown = [100 * first[key] for key in ("right", "low", "high")]
        shown += [100 * row["right"] for row in others]
        yield (label,), [*shown, first["numbers"], first["flops"]]
    kinds = [(f"kinds {k}, d 64", 256) for k in (4, 8, 16, 32, 64)] + [("kinds 64, d 64", 512)]
    for label in ("linear, delta", "leader", "least squares", "exact, all samples"):
        yield (label,), [100 * of[label, case]["right"] for case in kinds]
    cases = dict.fromkeys(case for _, case in of)
    ahead = [all(beaten(select(results, world=w, carried=n)).values()) for w, n in cases]
    assert (sum(ahead), len(ahead)) == (20, 28)


def felt_networks(results: Any) -> Rows:
    for kind, row in results.items():
        yield (kind, "loss"), [row["losses"][tenth] for tenth in (0, 5, 6, 7, 8, 9)]


def felt_patches(results: Any) -> Rows:
    of = {(r["keys"], r["memory"]): r for r in results["rows"]}
    for keys in dict.fromkeys(keys for keys, _ in of):
        rows = [
            of.get((keys, memory)) for memory in ("linear, delta", "exact", "leader", "nearest")
        ]
        yield (keys,), [100 * r["right"] for r in rows if r]


def gpu_table(results: Any) -> Rows:
    for row in select(results["rows"], kind="bidirectional"):
        yield (row["method"],), row["ms"]


def public_tasks(results: Any) -> Rows:
    for name, of_task in results.items():
        runs = [of_task[trainer] for trainer in TRAINERS]
        rewards = [np.array([run["rewards"] for run in each]) for each in runs]
        steps = [np.mean([run["env_steps"] for run in each]) for each in runs]
        shown = [(each.mean(), *mean_interval(each)) for each in rewards]
        yield (TASKS[name]["title"],), flat([[np.mean(of_task["random"])], *shown, steps])


PRINTED = {
    f.__name__: f
    for f in (
        oprf_gain, variance, quasi_monte_carlo, clustered, far_from_zero, pointwise, error_surface,
        resultants, couplings, max_error, bandwidths, cooccurrence, classification,
        classification_10000, hybrid_bases, error_per_flop, compositional, place_memory,
        place_memory_width, same_keys, memory_over_time, coupling_costs, attention_speed,
        attention_before_after, attention_memory, generate_speed, compiled_speed, sklearn_speed,
        felt_ground, felt_memories, felt_networks, felt_patches, public_tasks, throughput_against,
        gpu_table,
    )
}  # fmt: skip


def section(name: str) -> str:
    """The page from the name of a figure's module to the next heading; all of it for couplings."""
    text = (RESULTS / PAGES.get(name, "attention.md")).read_text()
    module = name.removesuffix("_10000")
    if module in ("couplings", *PAGES):
        return text
    start = max(text.find(f".{module}{end}") for end in ("`", " "))
    end = text.find("\n##", start)
    return text[start:end]


@pytest.mark.parametrize("name", sorted(p.stem for p in RECORDS.glob("*.json")))
def test_the_page_prints_the_record(name: str) -> None:
    lines = [line.strip("|").split("|") for line in section(name).splitlines() if line[:1] == "|"]
    table = [[cell.strip() for cell in line] for line in lines]
    for label, figures in PRINTED[name](read_record(name)):
        rows = [row[len(label) :] for row in table if tuple(row[: len(label)]) == label]
        assert rows, f"the page has no row {label}"
        plain = [re.sub(r"(?<=\d),(?=\d{3})", "", " ".join(row)) for row in rows]
        shown = [NUMBER.findall(row) for row in plain]
        assert any(agree(words, figures) for words in shown), (label, shown, figures)


def agree(words: Sequence[str], figures: Sequence[float]) -> bool:
    """Whether printed numbers are the figures, rounded to the digits that are printed."""
    units = (
        10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
        for digits, _, power in (word.partition("e") for word in words)
    )
    return len(words) == len(figures) and all(
        abs(float(word) - figure) <= 0.501 * unit
        for word, figure, unit in zip(words, figures, units, strict=True)
    )


@pytest.mark.parametrize("name", ["classification", "classification_10000"])
def test_accuracies_are_within_three_standard_errors_of_the_published_ones(name: str) -> None:
    """Seven figures of each set: with 500 draws all 35 of five sets."""
    sets = read_record(name)["sets"]
    assert len(sets) == 5 or name == "classification_10000"
    rows = [r for s in sets.values() for t in ("table_2", "table_3") for r in s[t].values()]
    assert [row["within"] for row in rows] == [True] * (7 * len(sets))


def test_commands_of_records_name_no_place_of_one_machine():
    for path in RECORDS.glob("*.json"):
        command = json.loads(path.read_bytes())["provenance"]["command"]
        assert not [word for word in command if "/" in word], path


def test_the_command_of_a_record_leaves_out_where_else_results_went():
    command = ["python", "-m", "figure", "--out", "folder", "--seed", "1", "--out=other", "--quick"]
    assert _without_out(command) == ["python", "-m", "figure", "--seed", "1", "--quick"]
