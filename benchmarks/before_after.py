"""Attention and decisions of two checkouts on one core, in turn: CPU time before and after.

    python -m benchmarks.before_after --before ../earlier [--only WORD ...] [--out FILE]

One process for each checkout; every round asks both for each case, one right after the other, so
that both see the same machine. Figures are least times over rounds, of CPU time of one thread:
other work on the machine counts least there. The file of --out also has their quartiles. A round
goes through all cases before the next begins, so that a case's times are minutes apart: a
neighbour's work may last for seconds. --before is a folder with an earlier commit, such as one made
by `git worktree add ../earlier COMMIT`.
"""

import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.timed_cases import EXACT, FAVOR, HYBRID, MAPS, PEER
from experiments import figure
from experiments.figure import Arguments, Lines
from experiments.timing import Checkout
from training.analysis.arguments import positive
from training.io.config import UserError

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
OTHERS = tuple(name for name in MAPS if name not in (FAVOR, HYBRID))
PEER_LENGTHS = {"bidirectional": (512, 2048, 8192, 16384), "causal": (512, 2048)}
"""Of performer-pytorch, if it is installed; its causal form takes seconds for more tokens."""
SCORED = (96, 384, 1536, 4096, 16384)
KINDS = ("bidirectional", "causal")
SHIPPED = (
    "stepping_stones_angular_8x8", "stepping_stones", "stepping_stones_favor_256",
    "stepping_stones_no_attention", "stepping_stones_memory", "stepping_stones_memory_grid",
    "stepping_stones_memory_learned", "bimanual_sweep_angular_8x2",
)  # fmt: skip
CASES: tuple[str, ...] = (
    *(f"attends|{kind}|{name}|{n}" for kind in KINDS for name in (FAVOR, HYBRID) for n in LENGTHS),
    *(f"attends|{kind}|{EXACT}|{n}" for kind in KINDS for n in LENGTHS),
    *(f"attends|{k}|{PEER}|{n}" for k in KINDS for n in PEER_LENGTHS[k] if find_spec(PEER)),
    *(f"attends|{kind}|{name}|{n}" for kind in KINDS for name in OTHERS for n in (128, 2048)),
    *(f"trains|{kind}|{name}|512" for kind in KINDS for name in MAPS),
    *(f"heads|{kind}|angular_hybrid|{n}" for kind in ("training", "inference") for n in (1, 8)),
    *(f"batch|{name}" for name in MAPS),
    *(f"scores|{name}|{length}" for length in SCORED for name in MAPS),
    *(f"acts|{name}" for name in SHIPPED),
)
TIMED = Path(__file__).with_name("timed_cases.py")
ROUND_MS = 40.0
"""About how long a case is timed in a round."""
RATIOS = (
    ("attends|bidirectional", FAVOR, HYBRID),
    ("attends|causal", EXACT, FAVOR),
    ("scores", FAVOR, HYBRID),
)


def _ms(checkout: Checkout, case: str, calls: int) -> float:
    """CPU milliseconds of a call."""
    answer = checkout.ask(f"{case} {calls}")
    if not answer:
        raise UserError(f"case {case} ended its process, see above")
    return float(answer)


def measure(before: Path, after: Path, cases: Sequence[str], rounds: int) -> dict[str, Any]:
    """Return the fastest times of each case and their quartiles, before and after, milliseconds."""
    both = Checkout(before, TIMED), Checkout(after, TIMED)
    times: dict[str, dict[str, list[float]]] = {}
    try:
        first = {case: max(_ms(checkout, case, 1) for checkout in both) for case in cases}
        calls = {case: max(1, round(ROUND_MS / max(first[case], 1e-3))) for case in cases}
        for _ in tqdm(range(rounds), unit="round"):
            for case in cases:
                for checkout, key in zip(both, ("before_ms", "after_ms"), strict=True):
                    row = times.setdefault(case, {})
                    row.setdefault(key, []).append(_ms(checkout, case, calls[case]))
    finally:
        for checkout in both:
            checkout.close()
    return {
        case: {key: min(each) for key, each in row.items()}
        | {key.replace("_ms", "_quartiles_ms"): _quartiles(each) for key, each in row.items()}
        for case, row in times.items()
    }


def _quartiles(times: Sequence[float]) -> list[float]:
    return statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [*times] * 3


def report(found: dict[str, Any]) -> Lines:
    """The times of every case, then ratios of two methods' times, before and after."""
    yield f"{'CPU ms on one core':56} {'before':>9} {'after':>9}  ratio"
    for case, row in found.items():
        before, after = row["before_ms"], row["after_ms"]
        yield f"{case:56} {before:9.3f} {after:9.3f} {after / before:6.2f}"
    for kind, slow, fast in RATIOS:
        for case in (case for case in found if case.startswith(f"{kind}|{slow}|")):
            other = found.get(case.replace(f"|{slow}|", f"|{fast}|"))
            if other:
                ratios = (found[case][key] / other[key] for key in ("before_ms", "after_ms"))
                words = f"{kind.replace('|', ', ')}, {case.rsplit('|', 1)[1]}: {slow} / {fast}"
                yield f"{words:56}" + "".join(f" {ratio:9.2f}" for ratio in ratios)


def run(arguments: Arguments) -> dict[str, Any]:
    """Time the cases of both checkouts and print them. Raises UserError."""
    before = arguments.before.resolve()
    if not (before / "attention" / "__init__.py").is_file():
        raise UserError(f"--before must be a checkout, which holds attention/, got {before}")
    words = arguments.only or [""]
    cases = [case for case in CASES if any(word in case for word in words)]
    if not cases:
        raise UserError(f"--only must name a part of a case, such as scores, got {words}")
    found = measure(before, Path(__file__).resolve().parents[1], cases, arguments.rounds)
    print("\n".join(report(found)))
    return {"results": found}


main = figure.file_command(
    run,
    figure.option("--before", metavar="DIR", type=Path, required=True, help="a checkout"),
    figure.option("--only", nargs="+", metavar="WORD", help="cases whose names hold one of these"),
    figure.option(
        "--rounds", type=positive, default=9, help="rounds of every case (default %(default)s)"
    ),
    file="--out",
)
