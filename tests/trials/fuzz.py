"""Malformed configurations, checkpoints, demonstrations and studies against every command.

    python -m tests.trials.fuzz --inputs 500 --seed 0 --out fuzz

Each input is a good file, made anew bad from the seed and its number. Whatever it is, a command
ends with status 0, 2 and one sentence, or 130 where the input asks for a long job and it is
interrupted: never with a traceback, after more than 20 s, or with more than 2 GB of memory. What
breaks this is printed with its number, and its files are kept; exit status 1.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.experiments.small_data import write_clothes
from tests.training import dataset_files
from tests.trials import forked, malform
from tests.trials.many import Found, many

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

CLONE = {
    "trainer": "bc", "env_id": "RecordedSpaces-v0", "iterations": 1, "updates": 1,
    "batch_size": 4, "policy": {"patch": [8, 8], "controller": "mlp", "hidden": [4]},
}  # fmt: skip
DATASETS = {
    "robomimic": ["demonstrations=datasets/robomimic"],
    "npz": ["demonstrations=datasets/npz"],
}
"""What is learned from, in `make_materials`; more if PyArrow and PyAV are there."""
if find_spec("pyarrow"):
    DATASETS["images"] = ["demonstrations=datasets/images"]
    DATASETS["v2"] = ["demonstrations=datasets/v2"]
    if find_spec("av"):
        DATASETS["videos"] = ["demonstrations=datasets/videos"]
COMMANDS = ("es", "bc", "demos", "study", "rollout", "evaluate", "flops", "plots", "search")
MODULES = {name: f"training.{name}" for name in COMMANDS} | {
    "export": "deploy.export", "loop": "deploy.loop", "experiments": "experiments.__main__",
}  # fmt: skip
SEARCH = ["--config", "es.yaml", "--trials", "2", "--search", "searcher.sigma=0.05:0.5"]
IMAGES = ["images", "--quick", "--variants", "exact", "--data", "data", "--set", "seeds=[0]"]
LATE = ("torch.utils.tensorboard", "tqdm", "matplotlib.pyplot",
        "pybullet", "sklearn.cluster", "optuna", "onnxruntime", "torch.onnx", "onnxscript",
        "experiments.images")  # fmt: skip
"""What commands import when they need it."""


class Case(NamedTuple):
    """A command with its arguments."""

    module: str
    words: list[str]


def command(module: str) -> Callable[[list[str]], int]:
    """The command line of a module, by its last name."""
    main: Callable[[list[str]], int] = import_module(MODULES[module]).main
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
    write_clothes(Path("data"), 300, 100)
    Path("clone.yaml").write_text(yaml.safe_dump(CLONE))
    _write_datasets(Path("datasets"))
    for module, words in (
        ("es", ["--config", "es.yaml", "--out", "run"]),
        ("demos", ["--env", "BimanualSweep-v0", *recorded, "--out", "demos",
                   "--set", "episode_s=0.3", "image_px=100"]),
        ("bc", ["--config", str(ROOT / "configs/bimanual_sweep_small.yaml"), *sweep,
                "--out", "clone"]),
        ("study", ["--config", "study.yaml", "--out", "study"]),
        ("study", ["--config", "study.yaml", "--out", "study", "--record", "record"]),
        ("export", ["run", "--out", "exported", "--observations", "4", "--recorded", "2"]),
        ("search", [*SEARCH, "--out", "search"]),
        ("experiments", [*IMAGES, "--out", "experiment"]),
    ):  # fmt: skip
        verdict = forked.run(command(module), words, Path(), patience=10)
        assert verdict.status == 0, f"{module} {words}: {verdict}"


def _write_datasets(folder: Path) -> None:
    episodes = dataset_files.made_episodes(2)
    dataset_files.write_robomimic(
        folder / "robomimic/a.hdf5", episodes, {"train": [0], "valid": [1]}
    )
    dataset_files.write_npz(folder / "npz", episodes)
    for name, options in (
        ("images", {}),
        ("v2", {"version": "v2.1"}),
        ("videos", {"videos": True, "codec": "libx264"}),
    ):
        if name in DATASETS:
            dataset_files.write_lerobot(folder / name, episodes, **options)


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
    """A bad checkpoint, evaluated, measured, started from or resumed."""
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
    """A run directory with one bad text file, resumed or plotted."""
    path = Path("run", chance.choice(("config.yaml", "metrics.csv", "provenance.json")))
    path.write_text(malform.spoil_text(path.read_text(), chance))
    if chance.random() < 0.2:
        return Case("plots", ["run", "--out", "curves.png"])
    return Case("es", ["--resume", "run", "--set", "iterations=2"])


def demonstrations(chance: random.Random) -> Case:
    """A bad file of demonstrations, verified, resumed or cloned."""
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


def a_dataset(chance: random.Random) -> Case:
    """A dataset of another program's of which one file is bad, learned from."""
    name = chance.choice(sorted(DATASETS))
    path = chosen(f"datasets/{name}", chance)
    if path.suffix == ".hdf5" and chance.random() < 0.7:
        malform.spoil_hdf5(path, chance)
    else:
        spoil(path, chance)
    return Case("bc", ["--config", "clone.yaml", "--out", "made", "--set", *DATASETS[name]])


def a_study(chance: random.Random) -> Case:
    """A finished study with one bad file, resumed or recorded."""
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


def spoil(path: Path, chance: random.Random) -> None:
    """Make a file of any format bad; one that is packed also within."""
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        data = malform.spoil_safetensors(data, chance)
    elif path.suffix in (".xz", ".gz") and chance.random() < 0.7:
        packing = lzma if path.suffix == ".xz" else gzip
        text = packing.decompress(data)
        data = packing.compress(_spoiled(Path(path.stem), text, chance))
    else:
        data = _spoiled(path, data, chance)
    path.write_bytes(data)


def _spoiled(path: Path, data: bytes, chance: random.Random) -> bytes:
    if path.suffix == ".json" and chance.random() < 0.7:
        return json.dumps(malform.spoiled(json.loads(data), chance)).encode()
    if path.suffix in (".json", ".csv", ".yaml", ".md") and chance.random() < 0.8:
        return malform.spoil_text(data.decode(), chance).encode(errors="surrogatepass")
    return malform.spoil_bytes(data, chance)


def chosen(folder: str, chance: random.Random) -> Path:
    """A file of a folder, of a format drawn first."""
    files = [
        path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name != ".lock"
    ]
    kind = chance.choice(sorted({path.suffix for path in files}))
    return chance.choice([path for path in files if path.suffix == kind])


def a_deployment(chance: random.Random) -> Case:
    """An exported folder with one bad file, run or exported again."""
    spoil(chosen("exported", chance), chance)
    if chance.random() < 0.2:
        return Case("export", ["run", "--out", "exported", "--observations", "4"])
    recorded = ["--recorded", "exported/recorded.npz"] if chance.random() < 0.6 else []
    return Case("loop", ["exported", "--rate", "0", "--steps", "4", *recorded])


def a_record(chance: random.Random) -> Case:
    """A bad record of a study, unpacked."""
    spoil(chosen("record", chance), chance)
    return Case(
        "study", ["--config", "study.yaml", "--out", "made", "--unpack", "record", "--page"]
    )


def a_search(chance: random.Random) -> Case:
    """A finished search with one bad file, resumed."""
    spoil(chosen("search", chance), chance)
    return Case("search", [*SEARCH, "--out", "search"])


def an_experiment(chance: random.Random) -> Case:
    """An experiment with a bad file, or with a bad file of images."""
    if chance.random() < 0.5:
        spoil(chosen("data", chance), chance)
        return Case("experiments", [*IMAGES, "--out", "made"])
    path = chosen("experiment", chance)
    spoil(path, chance)
    if path.name == "table.csv":
        return Case("experiments", [*IMAGES, "--claims", str(path)])
    page = ["--page"] if chance.random() < 0.5 else []
    return Case("experiments", [*IMAGES, "--out", "experiment", *page])


KINDS = (configuration, overrides, a_checkpoint, a_run, demonstrations, a_dataset, a_study,
         a_deployment, a_record, a_search, an_experiment)  # fmt: skip


def try_input(number: int, seed: int, materials: Path, folder: Path) -> Found:
    """Make an input in a copy of the materials and try it."""
    chance = random.Random(f"{seed} {number}")
    shutil.copytree(materials, folder)
    os.chdir(folder)
    kind = KINDS[number % len(KINDS)]
    case = kind(chance)
    verdict = forked.run(command(case.module), case.words, folder)
    said = f"{case.module} {' '.join(case.words)[:200]}\n{verdict.err}"
    return Found(kind.__name__, verdict.faults(), f"status {verdict.status}", said)


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where an input broke a command."""
    for module in (*MODULES.values(), *LATE):
        import_module(module)  # once, here, for all inputs
    return many("fuzz", make_materials, try_input, 500, argv)


if __name__ == "__main__":
    sys.exit(main())
