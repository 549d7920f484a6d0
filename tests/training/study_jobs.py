"""Small studies for the tests: two variants, two seeds, two iterations."""

import contextlib
import json

import pytest
import yaml

from training import study
from training.algorithms.trainer import JobConfig, Trainer
from training.compare import page
from training.reports import figures as drawing

BARE = Trainer(name="tests.training.study_jobs:BARE", config=JobConfig, algorithm="none")
"""A trainer that cannot begin from another run."""
DRAWN = ("draw_bars", "draw_lines", "draw_points")
"""Functions that draw the figures of a page."""
WALK, PLAIN = "tests.training.walk_env:Walk-v0", "tests.training.plain_env:Plain-v0"
TINY = {
    "env_id": PLAIN, "iterations": 2, "popsize": 4, "terrains": 1, "center_terrains": 1,
    "workers": 1, "searcher": {"name": "pgpe", "sigma": 0.1},
    "policy": {"controller": "mlp", "hidden": [4], "patch": [8, 8]},
}  # fmt: skip
STUDY = {
    "title": "A small study",
    "stages": [{"trainer": "es", "config": "es.yaml"}],
    "arms": [
        {"name": "FAVOR+ m = 16", "set": {"feature_map": "positive", "num_features": 16}},
        {"name": "exact", "set": {"feature_map": "softmax"}},
    ],
    "baseline": "FAVOR+ m = 16",
    "seeds": [0, 1],
    "references": ["oracle"],
    "episodes": 5,
}
CURVE = {
    "name": "head wind", "xlabel": "wind (m a step)", "episodes": 3,
    "points": [{"x": 0}, {"x": 0.05, "set": {"wind": 0.05}}],
}  # fmt: skip
TWO_STAGES = [*STUDY["stages"], {"trainer": "es", "config": "es.yaml", "set": {"iterations": 1}}]


@contextlib.contextmanager
def with_figures():
    """Studies draw their figures, which they do not in other tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*DRAWN, "draw_picture"):
            patch.setattr(page, name, getattr(drawing, name))
        yield


def write_study(folder, job=None, **changes):
    """Write a study and its stage's configuration; returns the study's path."""
    (folder / "es.yaml").write_text(yaml.safe_dump(TINY | (job or {})))
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(STUDY | changes))
    return path


def conduct(path, out, *more):
    """The study's command; returns its exit status."""
    return study.main(["--config", str(path), "--out", str(out), *more])


def files(out):
    """Every file of a study with its time and bytes."""
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()}


def figures(out):
    """Evaluations by file name, without what depends on the place, the moment and the machine."""
    varying = ("provenance", "checkpoint", "earlier")
    return {
        path.name: {k: v for k, v in json.loads(path.read_text()).items() if k not in varying}
        for path in sorted((out / "evaluations").glob("*.json"))
    }


def checkpoints(out):
    """Bytes of every checkpoint of the runs."""
    return {str(p.relative_to(out)): p.read_bytes() for p in out.glob("runs/**/*.safetensors")}
