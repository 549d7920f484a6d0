"""The study of what is written: its arms are built, and meet the same conditions."""

from pathlib import Path

from training import study
from training.compare.runs import all_runs, check_policies

FILE = Path(__file__).parents[2] / "configs" / "studies" / "choosing_to_remember.yaml"


def test_arms_are_all_and_two_choices_of_as_many_pixels(tmp_path):
    settings = study.load_config(FILE, ["seeds=[0]"])
    written = []
    for (run,) in all_runs(settings, FILE, tmp_path / "out"):
        check_policies((run,), settings.curves)
        policy = run.job.policy
        written.append((policy.write_tokens, policy.write_choice))
        lies = run.job.env["depth_false_returns"], run.job.env["depth_dropped_blocks"]
        assert lies == (0.1, 0.1)
    choices = {(k, choice) for k in (8, 16, 32, 64) for choice in ("learned", "random")}
    assert set(written) == {(None, "learned")} | choices
    assert len(written) == 9
    assert written[:3] == [(None, "learned"), (32, "learned"), (32, "random")]
