"""The study of memories: every arm can be built, and meets the conditions that the page tells of."""

from pathlib import Path

import pytest

from training import study
from training.studies.measures import Conditions
from training.studies.runs import check_policies

FILE = Path(__file__).parents[2] / "configs" / "studies" / "remembered_terrain.yaml"


@pytest.fixture(scope="module")
def first_seed(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    settings = study.load_config(FILE, ["seeds=[0]"])
    return settings, out, study.all_runs(settings, FILE, out)


def test_every_arm_is_built(first_seed):
    settings, _, runs = first_seed
    for stages in runs:
        check_policies(stages, settings.curves)


def test_all_arms_meet_the_same_conditions(first_seed):
    """Those that were cloned with poses drawn anew are evaluated at the pose that a curve names."""
    settings, out, runs = first_seed
    for curve in (None, *settings.curves):
        met = []
        for stages in runs:
            (run,) = stages
            who, job = run.directory.name, run.job
            made = Conditions(settings, out, who, job.env_id, job.env, run.directory, curve)
            met.append(list(made.settings().values()))
        assert all(env["front_camera_pitch_deg"] is None for env in met[0])
        assert all(of_arm == met[0] for of_arm in met)
    drawn = {stages[0].job.env["front_camera_pitch_deg"] is None for stages in runs}
    assert drawn == {True, False}
