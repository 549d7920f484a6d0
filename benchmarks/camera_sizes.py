"""FLOPs and milliseconds of a decision by the size of the cameras' images, every pixel a token.

    python -m benchmarks.camera_sizes [--out sizes.json] [--sizes 24x32 48x64 96x128] [--calls 50]

Policies for SteppingStones-v0 with two cameras of that size, untrained, as what an operation costs
does not depend on what was learned: foothold votes over the images that attention masks, which
differ in attention alone; then other ways to the action. They act in turn on one thread. The times
are medians of CPU time, as other processes on the machine would lengthen wall time; of slow
policies over fewer calls. FLOPs are those of `training.analysis.op_counter`. The memory of exact
attention is the largest increase of the process's peak over its calls."""

import resource
import statistics
import sys
from collections.abc import Mapping
from typing import Any

import envs
import policies
from experiments import figure
from experiments.figure import Arguments
from experiments.timing import in_turn
from training.analysis.arguments import EVALUATION_SEED, positive
from training.analysis.step_cost import ATTENTION, count
from training.collect.environments import make_env
from training.io.config import UserError

DECISION_MS = 50.0
SIZES = ("24x32", "48x64", "96x128")
EXACT = "exact softmax"


def _map(name: str, m: int, n: int | None = None) -> dict[str, Any]:
    more = {} if n is None else {"num_lambda_features": n}
    return {"controller": "vote", "feature_map": name, "num_features": m, **more}


POLICIES: dict[str, dict[str, Any]] = {
    EXACT: {"controller": "vote", "feature_map": "softmax"},
    "FAVOR+ m = 256": _map("positive", 256),
    "FAVOR+ m = 64": _map("positive", 64),
    "FAVOR+ m = 16": _map("positive", 16),
    "angular hybrid m = n = 8": _map("angular_hybrid", 8, 8),
    "angular hybrid m = 4, n = 2": _map("angular_hybrid", 4, 2),
    "Gaussian hybrid m = n = 8": _map("gaussian_hybrid", 8, 8),
    "rank: the best 64 tokens, dense": {
        **_map("angular_hybrid", 8, 8), "controller": "mlp", "variant": "rank", "keep_tokens": 64,
    },
    "masked image, dense": {**_map("angular_hybrid", 8, 8), "controller": "mlp"},
    "no attention, votes": {"controller": "vote", "selection": "all"},
    "no attention, dense": {"controller": "mlp", "selection": "all"},
}  # fmt: skip
"""Settings of the policies; d = 4 and 32 hidden units, the defaults."""
COMMON = {"patch": (1, 1), "keep": 0.3}
LINEAR = tuple(name for name in POLICIES if name != EXACT and not name.startswith("no attention"))
"""Policies whose attention is linear in the number of tokens."""


def _sized(size: str) -> tuple[int, int]:
    height, _, width = size.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise UserError(f"--sizes must be HEIGHTxWIDTH in pixels, got {size!r}")
    return int(height), int(width)


def _policies(size: str) -> tuple[dict[str, Any], Any]:
    """The policies by name, and an observation."""
    height, width = _sized(size)
    camera = {"height_px": height, "width_px": width}
    with make_env(envs.STEPPING_STONES, {"front_camera": camera, "belly_camera": camera}) as env:
        made = {
            name: policies.build_for({**COMMON, **settings}, env).requires_grad_(False)
            for name, settings in POLICIES.items()
        }
        observation, _ = env.reset(seed=EVALUATION_SEED)
    return made, observation


def _rounds(ms: float, calls: int) -> int:
    """Number of timed calls of a step: as many as fit into the time of `calls` decisions, at least
    three."""
    return calls if ms <= 2 * DECISION_MS else max(3, round(calls * DECISION_MS / ms))


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def measure(size: str, calls: int) -> dict[str, Any]:
    """Costs of a decision of each policy with images of this size, by name."""
    made, observation = _policies(size)
    steps = {name: lambda policy=policy: policy.act(observation) for name, policy in made.items()}
    others = {name: step for name, step in steps.items() if name != EXACT}
    for step in others.values():
        step()
    before_mib = _peak_mib()
    steps[EXACT]()
    added_mib = _peak_mib() - before_mib
    times = in_turn(steps, lambda ms: _rounds(ms, calls))
    found = {}
    for name, step in steps.items():
        counter = count(step)
        found[name] = {
            "flops": counter.total,
            "attention_flops": sum(counter.by_component[part] for part in ATTENTION),
            "cpu_ms": statistics.median(times[name]),
            "cpu_ms_least": min(times[name]),
            "calls": len(times[name]),
            "parameters": sum(p.numel() for p in made[name].parameters()),
        }
    tokens = made[EXACT].tokens.count
    matrix_mib = 4 * tokens**2 / 2**20
    return {
        "tokens": tokens, "matrix_mib": matrix_mib, "exact_added_mib": added_mib, "policies": found,
    }  # fmt: skip


def _millions(flops: int) -> str:
    millions = flops / 1e6
    return "0" if not flops else f"{millions:,.{0 if millions >= 100 else 2}f}"


def rows(results: Mapping[str, Any]) -> list[str]:
    """The figures as lines of a table of Markdown, a policy each: FLOPs and milliseconds."""
    lines = []
    for name in POLICIES:
        cells = [name]
        for one in (of_size["policies"][name] for of_size in results.values()):
            cells += [_millions(one["attention_flops"]), _millions(one["flops"])]
            cells.append(f"{one['cpu_ms']:,.{0 if one['cpu_ms'] >= 100 else 1}f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table(results: Mapping[str, Any]) -> str:
    """The figures as a table of Markdown."""
    heads = [
        f"{size.replace('x', ' x ')}, {of_size['tokens']:,} tokens: attention, MFLOP | step | ms"
        for size, of_size in results.items()
    ]
    ruler = "|---" * (1 + 3 * len(heads)) + "|"
    return "\n".join(["| | " + " | ".join(heads) + " |", ruler, *rows(results)])


def run(arguments: Arguments) -> dict[str, Any]:
    """Measure every size and print the table. Raises UserError."""
    results = {size: measure(size, arguments.calls) for size in dict.fromkeys(arguments.sizes)}
    print(table(results))
    for size, found in results.items():
        print(
            f"{size}: the matrix of exact attention has {found['matrix_mib']:,.0f} MiB; computed "
            f"in blocks it adds {found['exact_added_mib']:.0f} MiB"
        )
    return {"benchmark": "camera_sizes", "results": results}


main = figure.file_command(
    run,
    figure.option(
        "--sizes", nargs="+", default=list(SIZES), metavar="HEIGHTxWIDTH",
        help=f"pixels (default: {' '.join(SIZES)})",
    ),
    figure.option("--calls", type=positive, default=50, help="a policy (default %(default)s)"),
    file="--out",
)  # fmt: skip
