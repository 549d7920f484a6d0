"""Small jobs of every trainer, and what they leave: tensors, counters, rows and demonstrations."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]
_TIMES = ("wall_s", "data_share")  # columns of metrics.csv that measure the machine
_MEASURED = ("provenance", "checkpoint")  # of an evaluation in a study

ES = ["iterations=12", "terrains=1", "center_terrains=1", "env.episode_s=0.3"]
PPO = ["iterations=8", "steps=20", "episodes=4", "batch_size=16", "n_epochs=2", "episode_s=0.3"]
BC = ["iterations=3", "expert_episodes=2", "episodes=2", "updates=60", "episode_s=0.6"]
SWEEP = ["iterations=6", "updates=6", "batch_size=8", "evaluate_every=3", "episodes=1"]
DEMOS = ["--env", "BimanualSweep-v0", "--episodes", "8", "--valid-share", "0.25"]
STUDY = {
    "title": "A study of two maps",
    "stages": [{"trainer": "es", "config": "es.yaml"}],
    "arms": [
        {"name": "FAVOR+", "set": {"feature_map": "positive", "num_features": 16}},
        {"name": "exact", "set": {"feature_map": "softmax"}},
    ],
    "baseline": "FAVOR+", "seeds": [0], "references": ["blind"], "episodes": 3,
    "workers": 1, "env": {"episode_s": 0.5},
}  # fmt: skip


class Job(NamedTuple):
    """A command, and how it is resumed in its directory."""

    name: str
    begin: Callable[[Path], list[str]]
    go_on: Callable[[Path], list[str]]


def jobs(materials: Path) -> list[Job]:
    """The jobs; `materials` has the demonstrations and files that some of them need."""

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


def contents(directory: Path) -> dict[str, Any]:
    """Return results of a job that must not differ between runs, by place and name."""
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
