"""Malformed configurations, checkpoints, demonstrations and studies against every command.

    python -m tests.trials.fuzz --inputs 500 --seed 0 --out fuzz

Each input is a good file, made anew bad from the seed and its number. Whatever it is, a command
ends with status 0, 2 and one sentence, or 130 where the input asks for a long job and it is
interrupted: never with a traceback, after more than 20 s, or with more than 2 GB of memory. What
breaks this is printed with its number, and its files are kept; exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.trials import forked, malform

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "iterations=1", "popsize=4", "terrains=1", "center_terrains=1", "workers=1",
    "env.episode_s=0.1", "policy.patch=[8,8]",
]  # fmt: skip
SWEEP = [
    "iterations=1", "updates=1", "batch_size=2", "episodes=1", "episode_s=0.2",
    "policy.embed_dim=8", "policy.heads=2", "policy.depth=1", "policy.context_dim=8",
    "policy.hidden=[8]", "policy.negatives=4", "policy.patch=[50,50]",
]  # fmt: skip
STUDY = {
    "title": "A study of bad files",
    "stages": [{"trainer": "es", "config": "es.yaml"}],
    "arms": [
        {"name": "FAVOR+", "set": {"feature_map": "positive"}},
        {"name": "exact", "set": {"feature_map": "softmax"}},
    ],
    "baseline": "FAVOR+", "seeds": [0], "references": [], "episodes": 2, "videos": False,
    "env": {"episode_s": 0.1},
}  # fmt: skip
PRESETS = ("stepping_stones", "stepping_stones_clone", "stepping_stones_finetune",
           "bimanual_sweep", "bimanual_sweep_small", "studies/stepping_stones")  # fmt: skip

COMMANDS = ("es", "bc", "demos", "study", "rollout", "evaluate", "flops", "plots")
LATE = ("torch.utils.tensorboard", "tqdm", "matplotlib.pyplot",
        "pybullet", "sklearn.cluster")  # fmt: skip
"""What commands import when they need it."""


class Case(NamedTuple):
    """A command with its arguments."""

    module: str
    words: list[str]


def command(module: str) -> Callable[[list[str]], int]:
    """The command line of `python -m training.<module>`."""
    main: Callable[[list[str]], int] = import_module(f"training.{module}").main
    return main


def make_materials(folder: Path) -> None:
    """Good files to begin from: a run, demonstrations, a clone of them, and a study."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    preset = yaml.safe_load((ROOT / "configs/stepping_stones.yaml").read_text())
    small = {"iterations": 1, "popsize": 4, "terrains": 1, "center_terrains": 1, "workers": 1}
    preset |= small | {"episode_s": 0.1, "policy": {"patch": [8, 8]}}
    Path("es.yaml").write_text(yaml.safe_dump(preset))
    Path("study.yaml").write_text(yaml.safe_dump(STUDY))
    sweep = ["--set", "demonstrations=demos", *SWEEP, "env.image_px=100"]
    recorded = ["--episodes", "2", "--valid-share", "0.5", "--workers", "1"]
    for module, words in (
        ("es", ["--config", "es.yaml", "--out", "run"]),
        ("demos", ["--env", "BimanualSweep-v0", *recorded, "--out", "demos",
                   "--set", "episode_s=0.3", "image_px=100"]),
        ("bc", ["--config", str(ROOT / "configs/bimanual_sweep_small.yaml"), *sweep,
                "--out", "clone"]),
        ("study", ["--config", "study.yaml", "--out", "study"]),
    ):  # fmt: skip
        verdict = forked.run(command(module), words, Path(), patience=10)
        assert verdict.status == 0, f"{module} {words}: {verdict}"


def configuration(chance: random.Random) -> Case:
    """A bad YAML file, or bad `--set` words, for a trainer, `flops` or a study."""
    module = chance.choice(("es", "es", "bc", "flops", "study"))
    name = {"es": "es.yaml", "study": "study.yaml"}.get(module)
    text = Path(name or ROOT / f"configs/{chance.choice(PRESETS)}.yaml").read_text()
    if chance.random() < 0.6:
        text = yaml.safe_dump(malform.spoiled(yaml.safe_load(text), chance), sort_keys=False)
    else:
        text = malform.spoil_text(text, chance)
    Path("bad.yaml").write_text(text)
    if module == "flops":
        return Case(module, ["bad.yaml", "--calls", "1"])
    return Case(module, ["--config", "bad.yaml", "--out", "made"])


def overrides(chance: random.Random) -> Case:
    """Bad `--set` words for a command that takes them."""
    known = list(malform.places(yaml.safe_load(Path("run/config.yaml").read_text())))
    words = []
    for _ in range(chance.randrange(1, 3)):
        key = ".".join(str(part) for part in chance.choice(known))
        value = json.dumps(chance.choice(malform.BAD_VALUES), ensure_ascii=chance.random() < 0.5)
        words.append(chance.choice((f"{key}={value}", f"{key}={value}", f"{key[1:]}={value}",
                                    f"{key}", f"{key}.x={value}", f"{key}=[{value}"))
                     .replace("\0", "?"))  # fmt: skip
    module = chance.choice(("es", "rollout", "evaluate", "flops"))
    if module == "es":
        return Case(module, ["--config", "es.yaml", "--out", "made", "--set", *words])
    end = {"rollout": [], "evaluate": ["--episodes", "1"], "flops": ["--calls", "1"]}[module]
    return Case(module, ["run", *end, "--set", "episode_s=0.1", *words])


def a_checkpoint(chance: random.Random) -> Case:
    """A bad checkpoint, walked with, measured, begun from or gone on with."""
    folder = chance.choice(("run", "run", "clone"))
    path = Path(folder, "checkpoints", "000001.safetensors")
    path.write_bytes(malform.spoil_safetensors(path.read_bytes(), chance))
    module = chance.choice(("rollout", "evaluate", "flops", "resume", "init"))
    if module == "resume":
        trainer = "es" if folder == "run" else "bc"
        return Case(trainer, ["--resume", folder, "--set", "iterations=2"])
    if module == "init":
        return Case("es", ["--config", "es.yaml", "--out", "made", "--set", f"init_from={path}"])
    more = {"flops": ["--calls", "1"], "evaluate": ["--episodes", "1", "--out", "made"]}
    return Case(module, [str(path), *more.get(module, []), "--set", "episode_s=0.1"])


def a_run(chance: random.Random) -> Case:
    """A run directory of which one text file is bad, gone on with or drawn."""
    path = Path("run", chance.choice(("config.yaml", "metrics.csv", "provenance.json")))
    path.write_text(malform.spoil_text(path.read_text(), chance))
    if chance.random() < 0.2:
        return Case("plots", ["run", "--out", "curves.png"])
    return Case("es", ["--resume", "run", "--set", "iterations=2"])


def demonstrations(chance: random.Random) -> Case:
    """A bad file of demonstrations, checked, gone on with or learned from."""
    malform.spoil_hdf5(chance.choice(sorted(Path("demos").rglob("*.hdf5"))), chance)
    module = chance.choice(("verify", "demos", "bc"))
    if module == "verify":
        return Case("demos", ["--verify", "demos", "--workers", "1"])
    if module == "demos":
        return Case("demos", ["--env", "BimanualSweep-v0", "--episodes", "2", "--workers", "1",
                              "--valid-share", "0.5", "--out", "demos",
                              "--set", "episode_s=0.3", "image_px=100"])  # fmt: skip
    return Case("bc", ["--config", str(ROOT / "configs/bimanual_sweep_small.yaml"), "--out",
                       "made", "--set", "demonstrations=demos", *SWEEP,
                       "env.image_px=100"])  # fmt: skip


def a_study(chance: random.Random) -> Case:
    """A finished study of which one file is bad, gone on with or written anew."""
    kinds = ("*.json", "*.json", "*.json", "*.yaml", "*.csv", "*.safetensors")
    path = chance.choice(sorted(Path("study").rglob(chance.choice(kinds))))
    if path.suffix == ".safetensors":
        path.write_bytes(malform.spoil_safetensors(path.read_bytes(), chance))
    elif path.suffix == ".json" and chance.random() < 0.7:
        path.write_text(json.dumps(malform.spoiled(json.loads(path.read_text()), chance)))
    else:
        path.write_text(malform.spoil_text(path.read_text(), chance))
    page = ["--page"] if chance.random() < 0.4 else []
    return Case("study", ["--config", "study.yaml", "--out", "study", *page])


KINDS = (configuration, overrides, a_checkpoint, a_run, demonstrations, a_study)


def try_input(number: int, seed: int, materials: Path, folder: Path) -> dict[str, Any]:
    """Make an input in a copy of the materials and try it; what came of it, with its faults."""
    chance = random.Random(f"{seed} {number}")
    shutil.copytree(materials, folder)
    os.chdir(folder)
    kind = KINDS[number % len(KINDS)]
    case = kind(chance)
    verdict = forked.run(command(case.module), case.words, folder)
    os.chdir(ROOT)
    return {"number": number, "kind": kind.__name__, "command": [case.module, *case.words],
            "faults": verdict.faults(), **verdict._asdict()}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where an input broke a command."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials.fuzz")
    parser.add_argument("--inputs", type=int, default=500, help="how many (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="a new folder to work in")
    args = parser.parse_args(argv)
    out = args.out.resolve()
    out.mkdir(parents=True)
    for module in (*(f"training.{name}" for name in COMMANDS), *LATE):
        import_module(module)  # once, here, for all inputs
    make_materials(out / "materials")
    bad, slowest, largest = 0, 0.0, 0
    statuses: dict[int, int] = {}
    for number in range(args.first, args.first + args.inputs):
        folder = out / f"{number:05d}"
        found = try_input(number, args.seed, out / "materials", folder)
        slowest, largest = max(slowest, found["wall_s"]), max(largest, found["bytes"])
        statuses[found["status"]] = statuses.get(found["status"], 0) + 1
        if not found["faults"]:
            shutil.rmtree(folder)
            continue
        bad += 1
        words = " ".join(found["command"])
        print(f"{number} {found['kind']}: {', '.join(found['faults'])}: {words[:200]}")
        print("   ", found["err"].strip()[-300:].replace("\n", "\n    "), flush=True)
    ended = ", ".join(f"{n} with status {status}" for status, n in sorted(statuses.items()))
    print(f"{args.inputs} inputs, {bad} with a fault; {ended}; at most {slowest:.1f} s and "
          f"{largest / 1e9:.2f} GB")  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
