"""Comparison of memories of what was felt, at equal numbers carried, without physics.

    python -m experiments.felt_ground.felt_memories [--networks FOLDER] [--worlds NAME ...]

An episode is a stream of samples (appearance, gave way or held), whose meaning is new in each
(`worlds.py`); asked at its end is what gives way among 32 other appearances. Every memory may carry
256 or 512 numbers; its other settings are those of most right answers in 64 tuning episodes of the
same world and numbers, and are recorded. Tests are 256 other episodes in four batches, each with
its own random features. Unknown (0) counts as half right. Intervals are 95 %, over episodes.
`--networks` names the folder of `experiments.felt_ground.felt_networks`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import figure
from experiments.felt_ground import felt_networks
from experiments.felt_ground.worlds import Episodes, World, draw, right
from experiments.figure import Arguments, Lines, Row, Rows
from policies.felt_ground.memories import FeltMemory, felt_memory
from policies.felt_ground.memory_config import FeltMemoryConfig
from training.analysis.intervals import mean_interval
from training.analysis.op_counter import OpCounter
from training.io.config import UserError

BUDGETS = (256, 512)
TUNED, BATCH, BATCHES = 64, 64, 4
LINEAR = "linear, delta"
RIVALS = ("leader", "least squares", "grid", "gru")
MAPS = {
    "delta": ("trig", "quadratic", "oprf", "positive"),
    "sum": ("trig", "quadratic", "angular_hybrid"),
}
"""Feature maps by rule; `linear, delta` without a name chooses between the first two."""
_CHANGED = (1.0, 0.97, 0.9, 0.7)
"""Forgetting, where labels change."""
Configs = list[FeltMemoryConfig]


def worlds() -> dict[str, tuple[World, tuple[int, ...]]]:
    """The worlds by curve and place on it, and the numbers that memories carry there."""
    found: dict[str, tuple[World, tuple[int, ...]]] = {}
    for dim, kinds in itertools.product((16, 64), (4, 8, 16, 32, 64)):
        budgets = BUDGETS if kinds in (16, 64) else BUDGETS[:1]
        found[f"kinds {kinds}, d {dim}"] = World(kinds, dim), budgets
    for kinds, budgets in ((16, BUDGETS[:1]), (64, BUDGETS)):
        side = math.isqrt(kinds)
        found[f"conjunctions {side} x {side}"] = World(kinds, noise=0.3, pairs=True), budgets
    for factors in (3, 4, 6):
        smooth = World(0, samples=200, noise=0.2, factors=factors)
        found[f"smooth, {factors} factors"] = smooth, BUDGETS if factors == 4 else BUDGETS[:1]
    found["labels change"] = World(16, samples=4, later=2), BUDGETS
    for noise in (0.25, 1.0):
        found[f"noise {noise:g}"] = World(32, noise=noise), (256,)
    for samples in (1, 2, 8):
        found[f"samples {samples}"] = World(32, samples=samples), (256,)
    return found


def grid_of(**options: Iterable[Any]) -> Configs:
    """Settings for every combination of options."""
    combined = itertools.product(*options.values())
    return [FeltMemoryConfig(**dict(zip(options, values, strict=True))) for values in combined]


def linear(name: str, rule: str, dim: int, budget: int, forgetting: Iterable[float]) -> Configs:
    """Linear attention over a map, of F = budget at most, or half of that with sums."""
    length = budget if rule == "delta" else budget // 2
    options: dict[str, Iterable[Any]] = {
        "feature_map": (name,), "rule": (rule,), "forgetting": forgetting,
        "kappa": (1.0, 2.0, 4.0, 8.0) if name == "trig" else (2.0, 4.0),
    }  # fmt: skip
    if rule == "delta":
        options["rate"] = (0.3, 0.6, 1.0)
    if name != "quadratic":
        per = {"trig": 2, "angular_hybrid": 36}.get(name, 1)
        return grid_of(**options, num_features=(length // per,))
    options["kappa"] = (2.0, 8.0, 32.0)
    exact = dim * (dim + 1) // 2
    found = []
    if (products := min(length - 1 - dim, exact)) > 0:
        found += grid_of(**options, num_features=(products,))
    if products < exact:  # or the whole map of fewer directions
        fewer = max(p for p in range(1, dim) if 1 + p + p * (p + 1) // 2 <= length)
        found += grid_of(**options, num_features=(10_000,), project=(fewer,))
    return found


def projections(dim: int) -> list[int | None]:
    """Dimensions in which memories of samples may keep keys."""
    return [None, *(p for p in (32, 16, 8, 4) if p < dim)]


def slots(kind: str, dim: int, budget: int, beside: int, **options: Iterable[Any]) -> Configs:
    """Settings of a memory that keeps keys, and `beside` numbers with each, in fewer dimensions or
    all."""
    found = []
    for p in projections(dim):
        capacity = budget // ((p or dim) + beside)
        if capacity:
            found += grid_of(kind=(kind,), project=(p,), capacity=(capacity,), **options)
    return found


def candidates(world: World, budget: int) -> dict[str, Configs]:
    """Settings from which each memory's are chosen."""
    dim = world.dim
    forgetting = _CHANGED if world.later else (1.0,)
    for_delta = (1.0, 0.97) if world.later else (1.0,)
    found = {
        f"linear, {rule}, {name}": linear(name, rule, dim, budget, kept)
        for rule, kept in (("delta", for_delta), ("sum", forgetting))
        for name in MAPS[rule]
    }
    found[LINEAR] = [c for name in MAPS["delta"][:2] for c in found[f"{LINEAR}, {name}"]]
    everything = {"capacity": (world.count,)}
    found["exact, all samples"] = grid_of(
        kind=("exact",), kappa=(4.0, 8.0, 16.0, 32.0), forgetting=forgetting, **everything
    )
    found["exact, newest"] = slots("exact", dim, budget, 1, kappa=(4.0, 8.0, 16.0))
    found["nearest, all samples"] = grid_of(
        kind=("nearest",), kappa=(8.0,), forgetting=forgetting, **everything
    )
    found["leader"] = slots(
        "leader", dim, budget, 2, threshold=(0.5, 0.6, 0.7, 0.8, 0.9), forgetting=forgetting
    )
    found["leader, 32 prototypes"] = grid_of(
        kind=("leader",), capacity=(32,), threshold=(0.5, 0.6, 0.7, 0.8, 0.9), forgetting=forgetting
    )
    regression = {"kind": ("least_squares",), "ridge": (0.3, 3.0, 30.0), "forgetting": forgetting}
    raw = max(p for p in range(1, dim + 1) if (p + 1) * (p + 4) // 2 <= budget)
    found["least squares"] = grid_of(
        **regression,
        feature_map=("raw",),
        kappa=(1.0, 10.0),
        project=(None if raw == dim else raw,),
    )
    terms = [(p, (p + 1) * (p + 2) // 2) for p in range(1, dim + 1)]
    fits = max(p for p, size in terms if size * (size + 3) // 2 <= budget)
    found["least squares"] += grid_of(
        **regression, feature_map=("quadratic",), num_features=(10_000,), kappa=(1.0, 4.0),
        project=(fits,),
    )  # fmt: skip
    found["raw keys, delta"] = grid_of(
        feature_map=("raw",), kappa=(1.0, 4.0), rate=(0.1, 0.3, 0.7), forgetting=for_delta
    )
    found["grid"], half = [], budget // 2
    for along, bins in ((2, 8), (3, 5), (7, 2), (4, 4), (8, 2), (6, 3), (8, 4)):
        whole = bins**along <= half
        for tables in (1,) if whole else (1, 4, 8):
            found["grid"] += grid_of(
                kind=("grid",), directions=(along,), bins=(bins,), tables=(tables,),
                cells=(half // tables,), forgetting=forgetting,
            )  # fmt: skip
    found["none"] = grid_of(kind=("none",))
    return found


def answered(memory: FeltMemory, episodes: Episodes) -> Tensor:
    """Share of right answers of each episode."""
    state = memory.initial_state(len(episodes.keys))
    state = memory.write(state, episodes.keys, episodes.values)
    return right(memory.read(state, episodes.queries).squeeze(-1), episodes.truth)


def cost(memory: FeltMemory, episodes: Episodes) -> dict[str, int]:
    """Numbers that the memory carries, and FLOPs of a read of one appearance."""
    one = Episodes(*(part[:1] for part in episodes))
    state = memory.write(memory.initial_state(1), one.keys, one.values)
    with OpCounter() as counter:
        memory.read(state, one.queries[:, :1])
    return {"numbers": memory.numbers, "flops": counter.total}


def settings_of(config: FeltMemoryConfig) -> str:
    """The settings that are not defaults."""
    plain = FeltMemoryConfig()
    found = dataclasses.asdict(config)
    return ", ".join(f"{k}={v}" for k, v in found.items() if v != getattr(plain, k))


def row_of(memories: list[FeltMemory], tests: list[Episodes]) -> Row:
    """Figures of a memory whose draws of random features are tested on a batch each."""
    pairs = zip(memories, tests, strict=True)
    shares = torch.cat([answered(memory, batch) for memory, batch in pairs])
    low, high = mean_interval(np.asarray(shares.double())[None])
    found = {"right": float(shares.mean()), "low": low, "high": high}
    return {**found, **cost(memories[0], tests[0])}


@torch.no_grad()
def compared(
    name: str, world: World, budget: int, seed: int, batches: int, networks: dict[str, FeltMemory],
    wanted: Callable[[str], bool] = lambda label: True,
) -> Rows:  # fmt: skip
    """A row for each memory in a world."""
    first = 1_000 * (seed + 1) + sum(map(ord, name))
    tuning = draw(world, TUNED, torch.Generator().manual_seed(first))
    tests = [
        draw(world, BATCH, torch.Generator().manual_seed(first + 100_000 * (i + 1)))
        for i in range(batches)
    ]
    rows: Rows = []
    known: dict[FeltMemoryConfig, float] = {}
    for label, configs in candidates(world, budget).items():
        if not wanted(label):
            continue
        for config in configs:
            if config not in known:
                memory = felt_memory(config, world.dim)
                known[config] = float(answered(memory, tuning).mean())
        best = max(configs, key=lambda config: known[config])
        drawn = [
            felt_memory(dataclasses.replace(best, seed=i + 1), world.dim) for i in range(batches)
        ]
        facts = {"world": name, "carried": budget, "memory": label}
        found = row_of(drawn, tests)
        rows.append({**facts, **found, "tuned_of": len(configs), "settings": settings_of(best)})
    for kind, network in networks.items() if world.dim == felt_networks.DIM else ():
        network.config = dataclasses.replace(network.config, capacity=world.count)
        facts = {"world": name, "carried": budget, "memory": kind}
        found = row_of(batches * [network], tests)
        rows.append({**facts, **found, "tuned_of": 0, "settings": "meta-trained"})
    return rows


def measure(arguments: Arguments) -> Rows:
    """All worlds and numbers."""
    chosen, batches = worlds(), 1 if arguments.quick else BATCHES
    if arguments.quick:
        chosen = {"kinds 4, d 16": (World(4), (256,))}
    for name in arguments.worlds or ():
        if name not in worlds():
            raise UserError(f"--worlds must be of {'; '.join(worlds())}, got {name}")
    if arguments.worlds:
        chosen = {name: (worlds()[name][0], BUDGETS[:1]) for name in arguments.worlds}
    kinds = felt_networks.NETWORKS if arguments.networks else ()
    networks = {kind: felt_networks.load(kind, arguments.networks) for kind in kinds}
    rows: Rows = []
    for name, (world, budgets) in chosen.items():
        for budget in budgets:
            rows += compared(name, world, budget, arguments.seed, batches, networks)
    return rows


def beaten(rows: Rows) -> dict[str, bool]:
    """For each rival that was measured, whether its interval lies below that of linear attention
    with the delta rule, in rows of one world and number."""
    (ours,) = figure.select(rows, memory=LINEAR)
    return {row["memory"]: row["high"] < ours["low"] for row in rows if row["memory"] in RIVALS}


def show(results: Rows) -> Lines:
    """First the worlds where all rivals are below linear attention, then a table a world."""
    cases = [*dict.fromkeys((row["world"], row["carried"]) for row in results)]
    of = {case: figure.select(results, world=case[0], carried=case[1]) for case in cases}
    won = [f"{case[0]} ({case[1]})" for case in cases if all(beaten(of[case]).values())]
    yield f"Intervals of {', '.join(RIVALS)} are all below {LINEAR}: {', '.join(won) or 'nowhere'}"
    columns = {"memory": "{memory}", "right, %": "{share:.1f}", "interval": "{between}",
               "numbers": "{numbers}", "FLOP": "{flops}", "settings": "{settings}"}  # fmt: skip
    for (name, carried), rows in of.items():
        yield f"\n{name}, {carried} numbers"
        shown = [
            {**row, "share": 100 * row["right"],
             "between": f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"}
            for row in rows
        ]  # fmt: skip
        yield from figure.table(shown, columns, 30, 9, 14, 9, 12, -60)


def draw_curves(results: Rows) -> Any:
    """Right answers against the number of kinds."""
    labels = (LINEAR, *RIVALS, "exact, all samples", "leader, 32 prototypes")
    rows = []
    for row in results:
        kind, _, rest = row["world"].partition(", d ")
        if kind.startswith("kinds") and row["memory"] in labels:
            panel = f"d = {rest}, {row['carried']} numbers"
            rows.append({**row, "kinds": int(kind.split()[1]), "case": panel})
    return figure.plot(rows, "kinds", "right", "memory", "case", ("log", "linear"))


main = figure.command(
    measure, show, draw_curves,
    figure.option("--networks", metavar="FOLDER", help="weights of felt_networks"),
    figure.option("--worlds", nargs="+", metavar="NAME", help="only these, with 256 numbers"),
)  # fmt: skip
