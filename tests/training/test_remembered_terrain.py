"""The study of memories: every arm is built and timed, and meets the page's conditions."""

from pathlib import Path

import pytest

from training import study
from training.state_files import read_json
from training.studies import measures
from training.studies.measures import Conditions, Costs, Measured
from training.studies.runs import check_policies

FILE = Path(__file__).parents[2] / "configs" / "studies" / "remembered_terrain.yaml"


@pytest.fixture(scope="module")
def first_seed(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    settings = study.load_config(FILE, ["seeds=[0]"])
    return settings, out, study.all_runs(settings, FILE, out)


def test_every_arm_is_built_and_its_cost_counted(first_seed, monkeypatch):
    """As policies that are told their cameras' geometry."""
    settings, out, runs = first_seed
    for stages in runs:
        check_policies(stages, settings.curves)
    monkeypatch.setattr(measures, "TIMED_CALLS", 1)
    costs = Costs(settings, out, tuple(stages[-1] for stages in runs))
    costs.do()
    assert costs.done()
    found = read_json(Measured, costs.path).costs
    assert found["exact over 1 s"].attention > 10 * found["linear harmonic F = 53"].attention


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
