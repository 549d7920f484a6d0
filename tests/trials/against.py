"""Do two checkouts train, search, compare and act alike, bit for bit?

    python -m tests.trials.against --other ../earlier --out against

Small jobs of every trainer, a study, a search and an experiment run once with the code of each
checkout. Every tensor and counter of every checkpoint, every row of metrics.csv but its times, each
demonstration, evaluated episode and table must be equal, and shipped policies must earn the same.
The exit status is 1 where something differs. `--other` is a folder with another commit, as made by
`git worktree add ../earlier COMMIT`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.trials import kills
from tests.trials.kills import Job, contents, differences, prepare

MEMORY = ["--config", "configs/stepping_stones_memory.yaml"]
LEARNED = ["--config", "configs/stepping_stones_memory_learned.yaml"]
SEARCH = [
    "--config", "configs/cartpole.yaml", "--trials", "3", "--search", "searcher.sigma=0.05:0.5",
    "--set", "iterations=2", "workers=1",
]  # fmt: skip
EVALUATE = ["--episodes", "2", "--set", "episode_s=3"]
EXPERIMENT = ["listops", "--quick", "--arms", "FAVOR+", "--set", "seeds=[0]"]
SHIPPED = sorted(path.stem for path in (kills.ROOT / "policies/pretrained").glob("*.safetensors"))
MEASURED = ("latency_ms_per_step", "provenance", "checkpoint", "seconds", "inputs")
"""Keys of results that name the machine or the place, or the settings under new names."""
FLOORS = "random", "constant"
"""Names of entries of an evaluation that earlier commits do not add by themselves."""


def more_jobs(materials: Path) -> list[Job]:
    """Jobs beside those that are killed: other searchers, policies with memory, and so on."""

    def once(name: str, module: str, *words: str) -> Job:
        def begin(out: Path) -> list[str]:
            return [module, *words, "--out", str(out)]

        return Job(name, begin, begin)

    searchers = [
        once(f"es_{name}", "training.es", "--set", *kills.ES, "popsize=4", f"searcher.name={name}")
        for name in ("pgpe", "ars")
    ]
    return [
        *searchers,
        once("recurrent", "training.es", "--config", "configs/cartpole.yaml", "--set",
             "iterations=3", "popsize=4", "policy.controller=gru",
            "policy.hidden=[4]", "workers=1"),
        once("memory", "training.bc", *MEMORY, "--set", *kills.BC),
        once("learned_keys", "training.bc", *LEARNED, "--set", *kills.BC),
        once("pooled", "training.es", "--set", *kills.ES,
             "searcher.name=pgpe",
             "policy.name=vision_performer", "policy.form=pooled"),
        *(
            once(f"evaluate_{name}", "training.evaluate", name, *EVALUATE)
            for name in SHIPPED
        ),
        once("search", "training.search", *SEARCH),
        once("experiment", "experiments", *EXPERIMENT),
    ]  # fmt: skip


def run(job: Job, root: Path, out: Path) -> dict[str, object]:
    """Return the results of a job that runs with the code of a checkout."""
    with out.with_suffix(".log").open("ab") as log:
        made = subprocess.run(
            [sys.executable, "-m", *job.begin(out)], cwd=root, stdout=log, stderr=log,
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
    found: dict[str, object] = {"status": made.returncode, **contents(out)}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.name in ("trials.csv", "table.csv"):
            found[name] = path.read_text()
        elif path.name in ("evaluation.json", "result.json"):
            facts = json.loads(path.read_text())
            entries = facts if isinstance(facts, list) else [facts]
            entries = [e for e in entries if e.get("name") not in FLOORS and not e.get("blind")]
            found[name] = [{k: v for k, v in e.items() if k not in MEASURED} for e in entries]
    return found


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials.against")
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--out", type=Path, required=True, help="a new folder to work in")
    parser.add_argument("--jobs", nargs="+", metavar="NAME", help="these alone")
    args = parser.parse_args(argv)
    out, other = args.out.resolve(), args.other.resolve()
    (out / "materials").mkdir(parents=True)
    prepare(out / "materials")
    every = [*kills.jobs(out / "materials"), *more_jobs(out / "materials")]
    wrong = 0
    for job in every:
        if args.jobs and job.name not in args.jobs:
            continue
        made = [
            run(job, root, out / f"{job.name}-{i}") for i, root in enumerate((other, kills.ROOT))
        ]
        found = differences(*made)
        wrong += len(found) or int(made[0]["status"] != 0)
        verdict = f"{len(found)} differences, such as {found[:3]}" if found else "equal"
        print(
            f"{job.name}: status {made[1]['status']}, {len(made[0])} compared: {verdict}",
            flush=True,
        )
    print("everything is equal" if not wrong else f"{wrong} things differ or failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
