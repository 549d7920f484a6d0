"""Is a run that is killed and resumed the same, bit for bit, as one that is left alone?

    python -m tests.trials.kills --kills 100 --out kills

Each job (evolution strategies at the default population, PPO, cloning with aggregation, cloning
from demonstrations, recording, a study) runs once undisturbed. Then it is killed with SIGKILL at
random moments, its workers with it or left to notice by themselves, and gone on with as its user
would: resumed where there is a run, else begun again. What it leaves must equal the undisturbed
one's: every tensor and counter of every checkpoint, every row of metrics.csv but its times, every
demonstration, every evaluated episode. Exit status 1 where something differs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]
KILLS_A_RUN = 5
_LONGEST_S = 600.0
_TIMES = ("wall_s", "data_share")  # columns of metrics.csv that measure the machine
_MEASURED = ("provenance", "checkpoint")  # of an evaluation in a study

ES = ["iterations=12", "terrains=1", "center_terrains=1", "env.episode_s=0.3"]
PPO = ["iterations=8", "steps=20", "episodes=4", "batch_size=16", "n_epochs=2", "episode_s=0.3"]
BC = ["iterations=3", "expert_episodes=2", "episodes=2", "updates=60", "episode_s=0.6"]
SWEEP = ["iterations=6", "updates=6", "batch_size=8", "evaluate_every=3", "episodes=1"]
DEMOS = ["--env", "BimanualSweep-v0", "--episodes", "8", "--valid-share", "0.25"]
STUDY = {
    "title": "A study to be killed",
    "stages": [{"trainer": "es", "config": "es.yaml"}],
    "arms": [
        {"name": "FAVOR+", "set": {"feature_map": "positive", "num_features": 16}},
        {"name": "exact", "set": {"feature_map": "softmax"}},
    ],
    "baseline": "FAVOR+", "seeds": [0], "references": ["blind"], "episodes": 3,
    "workers": 1, "env": {"episode_s": 0.5},
}  # fmt: skip


class Job(NamedTuple):
    """A command, and how it is gone on with in its directory."""

    name: str
    begin: Callable[[Path], list[str]]
    go_on: Callable[[Path], list[str]]


def jobs(materials: Path) -> list[Job]:
    """What is killed; `materials` has the demonstrations and files that some of them need."""

    def trainer(name: str, module: str, *words: str) -> Job:
        def begin(out: Path) -> list[str]:
            return [module, "--out", str(out), *words]

        def go_on(out: Path) -> list[str]:
            started = (out / "config.yaml").is_file()
            return [module, "--resume", str(out)] if started else begin(out)

        return Job(name, begin, go_on)

    def repeated(name: str, module: str, *words: str) -> Job:
        def begin(out: Path) -> list[str]:
            return [module, *words, "--out", str(out)]

        return Job(name, begin, begin)

    small = ["--config", "configs/bimanual_sweep_small.yaml"]
    sweep = [*SWEEP, f"demonstrations={materials / 'demos'}", "episode_s=1"]
    return [
        trainer("es", "training.es", "--set", *ES),
        trainer("ppo", "training.ppo", "--set", *PPO),
        trainer("bc", "training.bc", "--set", *BC),
        trainer("sweep", "training.bc", *small, "--set", *sweep),
        repeated("demos", "training.demos", *DEMOS, "--set", "episode_s=1.5", "image_px=250"),
        repeated("study", "training.study", "--config", str(materials / "study.yaml")),
    ]


def prepare(materials: Path) -> None:
    """Make what some jobs need: demonstrations, and a study with its stage."""
    materials.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = yaml.safe_load((ROOT / "configs/stepping_stones.yaml").read_text())
    values |= {"iterations": 4, "terrains": 1, "center_terrains": 1, "episode_s": 0.3, "workers": 1}
    (materials / "es.yaml").write_text(yaml.safe_dump(values))
    (materials / "study.yaml").write_text(yaml.safe_dump(STUDY))
    demos = [*DEMOS, "--set", "episode_s=1", "image_px=250", "--out", str(materials / "demos")]
    subprocess.run([sys.executable, "-m", "training.demos", *demos], cwd=ROOT, check=True)


def finish(words: list[str], log: Path, kill_after_s: float | None, group: bool) -> bool:
    """Run a command, or kill it after that time; whether it ended by itself, with status 0.

    Raises RuntimeError when it ends otherwise, or not at all.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=ROOT, stdout=out, stderr=out, start_new_session=True
        )
    try:
        status = process.wait(_LONGEST_S if kill_after_s is None else kill_after_s)
    except subprocess.TimeoutExpired:
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        if kill_after_s is not None:
            return False
        status = None
    if status != 0:
        raise RuntimeError(f"{' '.join(words)} ended with status {status}; see {log}")
    return True


def contents(directory: Path) -> dict[str, Any]:
    """What a job left that must be the same each time, by place and name."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                found[f"{name}: state"] = (file.metadata() or {}).get("state")
                for key in file.keys():  # noqa: SIM118
                    tensor = file.get_tensor(key)
                    facts = str((tensor.dtype, tuple(tensor.shape))).encode()
                    found[f"{name}: {key}"] = _digest(facts + tensor.numpy().tobytes())
        elif path.name == "metrics.csv":
            with path.open(newline="") as lines:
                for i, row in enumerate(csv.DictReader(lines), 1):
                    found[f"{name}: row {i}"] = {k: v for k, v in row.items() if k not in _TIMES}
        elif path.suffix == ".hdf5":
            found[name] = _digest(path.read_bytes())
        elif path.parent.name == "evaluations" and path.suffix == ".json":
            facts = json.loads(path.read_text())
            found[name] = {k: v for k, v in facts.items() if k not in _MEASURED}
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what only one of them has, or has otherwise."""
    return [k for k in sorted(one.keys() | other.keys()) if one.get(k) != other.get(k)]


def disturbed(job: Job, out: Path, chance: random.Random, span_s: float, kills: int) -> list[float]:
    """Run a job to its end, killed up to that often before; the moments of its kills."""
    moments: list[float] = []
    log = out.with_suffix(".log")
    words = job.begin(out)
    while len(moments) < kills:
        moment = chance.uniform(0, span_s)
        if finish(words, log, moment, chance.random() < 0.5):
            return moments
        moments.append(round(moment, 3))
        words = job.go_on(out)
    finish(words, log, None, False)
    return moments


def try_job(job: Job, out: Path, kills: int, chance: random.Random) -> tuple[int, list[str]]:
    """Kill a job that often in all; how many kills there were, and what was not the same."""
    began = time.monotonic()
    finish(job.begin(out / job.name), out / f"{job.name}.log", None, False)
    span_s = time.monotonic() - began
    expected = contents(out / job.name)
    assert expected, f"{job.name} left nothing to compare"
    print(f"{job.name}: {len(expected)} things to compare, {span_s:.1f} s undisturbed", flush=True)
    done, wrong = 0, []
    for number in range(3 * kills):  # a run that ends before its first kill counts none
        if done >= kills:
            break
        place = out / f"{job.name}-{number}"
        most = min(KILLS_A_RUN, kills - done)
        moments = disturbed(job, place, chance, 0.9 * span_s, most)
        done += len(moments)
        found = differences(expected, contents(place))
        wrong += [f"{place}: {name}" for name in found]
        verdict = f"{len(found)} differences, such as {found[:3]}" if found else "the same"
        print(f"  killed after {moments} s: {verdict}", flush=True)
        if not found:
            shutil.rmtree(place)
    return done, wrong


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials.kills")
    parser.add_argument("--kills", type=int, default=100, help="in all (default %(default)s)")
    parser.add_argument("--jobs", nargs="+", choices=[job.name for job in jobs(Path())])
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, required=True, help="a new folder to work in")
    args = parser.parse_args(argv)
    out = args.out.resolve()
    out.mkdir(parents=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    prepare(out / "materials")
    chosen = [job for job in jobs(out / "materials") if args.jobs is None or job.name in args.jobs]
    shares = [
        args.kills // len(chosen) + (i < args.kills % len(chosen)) for i in range(len(chosen))
    ]
    total, wrong = 0, list[str]()
    for job, share in zip(chosen, shares, strict=True):
        done, found = try_job(job, out, share, random.Random(f"{args.seed} {job.name}"))
        total, wrong = total + done, wrong + found
    print(f"{total} kills: " + ("all the same" if not wrong else f"{len(wrong)} things differ"))
    for line in wrong[:20]:
        print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
