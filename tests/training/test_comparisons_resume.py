"""Studies, searches and experiments pass the contract of resuming."""

import csv
import json
from importlib.util import find_spec

import pytest

from experiments import __main__ as experiments
from tests.experiments.small_data import write_clothes
from tests.helpers import run_command
from tests.resume_contract import ResumeContract
from tests.training import test_trainers
from tests.training.study_jobs import STUDY, checkpoints, figures, write_study
from training import search, study


class TestStudy(ResumeContract):
    kills = (3, 8)
    refusals = (
        (["title=Another"], "holds another study, 'A small study', not 'Another'"),
        (["episodes=2", "evaluation_seed=100001"], "was measured with seeds = [100000, 100001"),
        (["variants=[{name: exact, set: {feature_map: trig}}]", "baseline=exact"],
         "was trained with feature_map = 'softmax', but the study now has 'trig'"),
    )  # fmt: skip

    def start(self, out, *, part=False):
        out.parent.mkdir(exist_ok=True)
        changes = {"arms": STUDY["arms"][1:], "baseline": "exact", "seeds": [0], "episodes": 3}
        path = write_study(out.parent, {"iterations": 2}, **changes)
        only = ["--only", "oracle"] if part else []
        return run_command(study, "--config", path, "--out", out, *only)

    def resume(self, out, *changes):
        self.start(out.parent / "elsewhere" / "out", part=True)  # which writes the files
        path = out.parent / "elsewhere" / "small.yaml"
        words = ["--set", *changes] if changes else []
        return run_command(study, "--config", path, "--out", out, *words)

    def results(self, out):
        return figures(out), checkpoints(out)

    def has_begun(self, out):
        return (out / "study.yaml").is_file()


@pytest.mark.skipif(find_spec("optuna") is None, reason="needs Optuna")
class TestSearch(ResumeContract):
    kills = (3, 8)
    refusals = (
        (["--seed", "7"], "search.json was made with seed = 0, but now it is 7"),
        (["--set", "iterations=5"], "made with config.iterations = 2, but now it is 5"),
    )

    def run(self, out, trials, *more):
        out.parent.mkdir(exist_ok=True)
        job = out.parent / "job.json"
        job.write_text(json.dumps({**test_trainers.SEARCH, "iterations": 2}))
        words = ["--metric", "reward_max", "--search", "sigma=log:0.01:1", "candidates=2|4"]
        return run_command(
            search, "--config", job, "--out", out, "--trials", trials, *words, *more
        )  # fmt: skip

    def start(self, out, *, part=False):
        return self.run(out, 1 if part else 2)

    def resume(self, out, *changes):
        return self.run(out, 2, *changes)

    def results(self, out):
        return (out / "trials.csv").read_text()

    def has_begun(self, out):
        return (out / "search.json").is_file()


EXPERIMENT = {
    "title": "Two maps", "paper": "none", "task": "images", "baseline": "exact", "seeds": [0],
    "set": {"batch": 8, "held_out": 10, "test": 30, "layers": 1, "width": 8, "heads": 2,
            "fitting.steps": 4, "fitting.measure_every": 2},
    "variants": [
        {"name": "exact"},
        {"name": "oprf", "start_from": "exact", "set": {"attention.feature_map": "oprf"}},
    ],
}  # fmt: skip


class TestExperiment(ResumeContract):
    kills = (2, 9)
    refusals = (
        (["--set", "title=Another"], "holds another experiment, 'Two maps', not 'Another'"),
        (["--set", "set={batch: 4}"], "made with settings.batch = 8, but the experiment now has 4"),
    )

    def start(self, out, *, part=False):
        return self.resume(out, *(["--variants", "exact"] if part else []))

    def resume(self, out, *changes):
        out.parent.mkdir(exist_ok=True)
        path, data = out.parent / "two.yaml", out.parent / "data"
        path.write_text(json.dumps(EXPERIMENT))
        if not data.is_dir():
            data.mkdir()
            write_clothes(data / "fashion_mnist", 90, 30)
        return run_command(experiments, path, "--out", out, "--data", data, *changes)

    def results(self, out):
        varying = {"seconds", "provenance"}
        results = {
            path.parent.name: {k: v for k, v in json.loads(path.read_text()).items()
                               if k not in varying}
            for path in sorted(out.glob("trials/*/result.json"))
        }  # fmt: skip
        return results, [*csv.reader((out / "table.csv").read_text().splitlines())]
