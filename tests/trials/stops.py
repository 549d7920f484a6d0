"""Commands that are killed at an operation on files, or at any moment, and run again.

    python -m tests.trials.stops --count 400 --seed 0 --out stops

Each job runs twice undisturbed; what differs between the two, such as times, is not compared. Then
it kills itself before one of the operations that the first run made on files of its folder (an
opening for writing, a renaming, a removal, a new folder, or on either side of a sync), or at a
random moment, and the same command, with --resume where there is a run, must leave what the
undisturbed one left.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from tests.trials import forked, fuzz
from tests.trials.kills import Job, contents, differences
from tests.trials.many import Found, many
from training.command.files import METRICS

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
WHOLE = (".onnx", ".json", ".md", ".csv", ".xz", ".npz", ".yaml", ".parquet")
"""Files that are compared byte for byte."""
PATIENCE = 10
ES = ["--config", "es.yaml"]
PLAIN = ["workers=1", "iterations=2"]
BC = ["expert_episodes=2", "episodes=2", "updates=4", "episode_s=0.2", *PLAIN]
PPO = ["steps=12", "episodes=2", "batch_size=6", "n_epochs=1", "episode_s=0.2", *PLAIN]
DEMOS = ["--env", "BimanualSweep-v0", "--episodes", "3", "--valid-share", "0.4", "--workers", "1",
         "--set", "episode_s=0.3", "image_px=100"]  # fmt: skip
SWEEP = ["--config", "sweep.yaml", "--set", "demonstrations=demos", *fuzz.SWEEP[1:], "iterations=2",
         "env.image_px=100"]  # fmt: skip
SEARCH = ["--config", "es.yaml", "--trials", "3", "--search", "searcher.sigma=0.05:0.5", "seed=0|1"]
EXPORT = [
    "run",
    "--observations",
    "6",
    "--recorded",
    "3",
    "--episodes",
    "1",
    "--set",
    "episode_s=0.1",
]
EXPERIMENT = ["listops", "--quick", "--variants", "FAVOR+", "--set", "seeds=[0]"]


def jobs() -> dict[str, Job]:
    """The jobs by name; a trainer resumes with --resume if its run has a configuration."""

    def job(name: str, module: str, *words: str, resumes: bool = False, out: str = "--out") -> Job:
        def begin(folder: Path) -> list[str]:
            return [module, *words, out, folder.name]

        def go_on(folder: Path) -> list[str]:
            started = resumes and (folder / "config.yaml").is_file()
            return [module, "--resume", folder.name] if started else begin(folder)

        return Job(name, begin, go_on)

    made = [
        job("export", "deploy.export", *EXPORT),
        job("search", "training.search", *SEARCH),
        job("record", "training.study", "--config", "study.yaml", "--out", "study", out="--record"),
        job("unpack", "training.study", "--config", "study.yaml", "--unpack", "record"),
        job("experiment", "experiments", *EXPERIMENT),
        job("es", "training.es", *ES, "--set", "iterations=3", resumes=True),
        job("es_workers", "training.es", *ES, "--set", "iterations=3", "workers=2", resumes=True),
        job("bc", "training.bc", "--set", *BC, resumes=True),
        job("ppo", "training.ppo", "--set", *PPO, resumes=True),
        job("implicit_bc", "training.bc", *SWEEP, resumes=True),
        job("demos", "training.demos", *DEMOS),
        job("study", "training.study", "--config", "study.yaml"),
        job("evaluate", "training.evaluate", "run", "--episodes", "2", "--set", "episode_s=0.1"),
        job("lerobot", "training.lerobot", "run", "--episodes", "2", "--set", "episode_s=0.1"),
    ]
    return {one.name: one for one in made}


def watched(
    main: Callable[[list[str]], int], folder: Path, stop: int, after_s: float, log: Path
) -> Callable[[list[str]], int]:
    """A command that notes its operations on files in `folder`, and kills itself before that of
    number `stop`, or after that time."""
    mine, count, process = str(folder), 0, -1

    def operation(name: str, path: object) -> None:
        nonlocal count
        place = os.path.abspath(path) if isinstance(path, str | os.PathLike) else ""
        if os.getpid() != process or not (place.startswith(mine) or name == "sync"):
            return
        if count == stop:
            os.kill(process, signal.SIGKILL)
        count += 1
        os.write(descriptor, f"{name} {place.removeprefix(mine)}\n".encode())

    def heard(event: str, words: tuple[Any, ...]) -> None:
        writes = event != "open" or (
            isinstance(words[2], int) and words[2] & (os.O_RDWR | os.O_WRONLY)
        )
        if event in EVENTS and words and writes:
            operation(event, words[0])

    def run(words: list[str]) -> int:
        nonlocal process
        process = os.getpid()
        synced = os.fsync

        def fsync(fd: Any) -> None:
            operation("sync", fd)
            synced(fd)
            operation("sync", fd)

        os.fsync = fsync
        sys.addaudithook(heard)
        if after_s:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, after_s)
        return main(words)

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    return run


def _untimed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file without its times."""
    return {key: value for key, value in pairs if key not in ("seconds", "started", "wall_s")}


def seen(folder: Path) -> dict[str, Any]:
    """Return the results of a job, by place and name."""
    found = contents(folder)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_whole = path.suffix in WHOLE and path.name != METRICS  # its rows have times
        if is_whole and path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if path.suffix == ".json":  # rounded times of two runs may be equal
                data = json.dumps(json.loads(data, object_pairs_hook=_untimed)).encode()
            found.setdefault(name, hashlib.sha256(data).hexdigest())
        elif path.is_file():
            found.setdefault(f"{name} exists", path.name != ".lock")
    return {k: v for k, v in found.items() if "events.out" not in k}


class Undisturbed:
    """What jobs leave, their times and numbers of operations; found once each."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[dict[str, Any], float, int]] = {}

    def of(self, job: Job, materials: Path, folder: Path) -> tuple[dict[str, Any], float, int]:
        """Run the job twice, the first time."""
        if job.name not in self.known:
            left = []
            for name in ("one", "other"):
                here = folder / name
                shutil.copytree(materials, here)
                verdict = play(job.begin(here / "made"), here, -1, 0)
                assert verdict.status == 0, f"{job.name}: {verdict.err}"
                left.append(seen(here / "made"))
            varies = set(differences(*left))
            operations = len((here / "operations").read_text().splitlines())
            expected = {k: v for k, v in left[0].items() if k not in varies}
            assert expected, f"{job.name} left nothing to compare"
            print(f"{job.name}: {len(expected)} compared, {operations} operations, "
                  f"{verdict.wall_s:.1f} s; not {sorted(varies)[:4]}", flush=True)  # fmt: skip
            self.known[job.name] = expected, verdict.wall_s, operations
        return self.known[job.name]


UNDISTURBED = Undisturbed()


def play(words: list[str], here: Path, stop: int, after_s: float) -> forked.Verdict:
    """Run a command in a folder, watching the folder `made` in it."""
    os.chdir(here)
    module, *rest = words
    main = import_module("experiments.__main__" if module == "experiments" else module).main
    command = watched(main, here / "made", stop, after_s, here / "operations")
    return forked.run(command, rest, here, PATIENCE)


def try_one(number: int, seed: int, materials: Path, folder: Path) -> Found:
    """Kill a job once or twice, and run it again."""
    chance = random.Random(f"{seed} {number}")
    every = jobs()
    job = list(every.values())[number % len(every)]
    folder.mkdir()
    expected, span_s, operations = UNDISTURBED.of(job, materials, folder)
    here = folder / "here"
    shutil.copytree(materials, here)
    words, kills, last = job.begin(here / "made"), list[str](), forked.Verdict(-9, 0, 0, "", "")
    for _ in range(chance.choice((1, 1, 2))):
        at_operation = chance.random() < 0.6
        stop = chance.randrange(operations) if at_operation else -1
        last = play(words, here, stop, 0 if at_operation else chance.uniform(0.02, span_s))
        place = (here / "operations").read_text().splitlines()[-1:]
        kills.append(f"after {place} ({stop} of {operations}), status {last.status}")
        words = job.go_on(here / "made")
        if last.status not in (-signal.SIGKILL, -signal.SIGALRM):
            break
    if last.status != 0:
        last = play(words, here, -1, 0)
    left = seen(here / "made")
    wrong = differences(expected, {k: left.get(k) for k in expected})
    wrong += [f"left over: {k}" for k in left if k.startswith(".") and k not in expected]
    faults = [f"status {last.status} when run again"] if last.status else []
    faults += [f"{len(wrong)} differ: {wrong[:4]}"] if wrong else []
    return Found(
        job.name, faults, f"{job.name} killed {len(kills)} times", f"{kills}\n{last.err[-600:]}"
    )


def prepare(materials: Path) -> None:
    """A run, demonstrations, a study and its record."""
    fuzz.make_materials(materials)
    sweep = yaml.safe_load((fuzz.ROOT / "configs/bimanual_sweep_small.yaml").read_text())
    Path("sweep.yaml").write_text(yaml.safe_dump(sweep))
    words = ["--config", "study.yaml", "--out", "study", "--record", "record"]
    assert forked.run(fuzz.command("study"), words, materials, PATIENCE).status == 0


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where something differs."""
    for module in (*(f"training.{name}" for name in (*fuzz.COMMANDS, "ppo", "search", "lerobot")),
                   "deploy.export", "experiments.__main__", "experiments.listops",
                   "pyarrow.parquet", *fuzz.LATE):  # fmt: skip
        import_module(module)
    return many("stops", prepare, try_one, 400, argv)


if __name__ == "__main__":
    sys.exit(main())
