"""Whether a policy looks: deliberately blind ones are flagged, seeing ones pass."""

import json

import numpy as np
import pytest

from tests.helpers import refused
from tests.training import look_env
from tests.training.look_env import LookEnv, Noisy
from training import sight as command
from training.io.config import UserError
from training.sight import sight

LOOK = ["--env", "tests.training.look_env:Look-v0"]
CAMERA = {"images": ["eye.camera"]}


def seeds(number):
    """20 scenes, others for each number."""
    return range(1000 * number, 1000 * number + 20)


NUMBERS = [0, 1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(2, 20))]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_blind_policy_is_flagged_and_a_seeing_one_passes(number):
    """The blind policy's actions do not change, nor do the rewards of the policy that reads images
    without effect; the other's losses are as large by chance once in 2^20."""
    blind = sight(look_env.blind, LookEnv, seeds=seeds(number)[:5], **CAMERA)
    assert blind.looks is False
    assert blind.reason == "no action of 5 episodes changed with its images"
    assert sight(look_env.seeing, LookEnv, seeds=seeds(number), **CAMERA).looks is True
    vain = sight(look_env.pretending, LookEnv, seeds=seeds(number), **CAMERA)
    assert vain.looks is False
    assert vain.reason.startswith("it acts otherwise in 20 of 20 episodes, but loses at most 15%")
    assert {loss.lost for loss in vain.losses} == {0.0}


@pytest.mark.parametrize("numbers", [range(3), pytest.param(range(3, 6), marks=pytest.mark.slow)])
def test_chance_in_a_policy_is_no_sight(numbers):
    """Of blind ones at most 5 % are said to look; of seeing ones all do, with these seeds."""
    for number in numbers:
        blind = Noisy(look_env.blind, number, counting=0.001)
        assert sight(blind, LookEnv, seeds=seeds(number), **CAMERA).looks is not True
        seeing = Noisy(look_env.seeing, number)
        assert sight(seeing, LookEnv, seeds=seeds(number), **CAMERA).looks is True


def test_each_image_is_asked_about():
    report = sight(look_env.seeing, LookEnv, seeds=seeds(1))
    assert report.images == ("eye.camera", "eye.wrist")
    assert report.looks is True
    assert report.looks_at == {"eye.camera": True, "eye.wrist": False}
    by_wrist = [loss for loss in report.losses if loss.images == "eye.wrist"]
    assert {loss.acted_otherwise for loss in by_wrist} == {0}
    assert {loss.intervention for loss in by_wrist} == {"swap", "freeze", "blank", "shuffle"}


def test_what_is_lost_is_measured_by_reward_and_success():
    report = sight(look_env.seeing, LookEnv, seeds=seeds(2), **CAMERA)
    reward, success = report.levels
    assert (reward.outcome, reward.own) == ("reward", pytest.approx(12, abs=1e-5))
    assert (success.outcome, success.own, success.floor) == ("success", 1.0, 0.0)
    swap = {loss.outcome: loss for loss in report.losses if loss.intervention == "swap"}
    assert swap["success"].mean < 0.2
    assert swap["success"].lost_share == pytest.approx(1 - swap["success"].mean)
    # Two independent columns of 11, 0.2 apart, are 0.727 apart in the mean.
    assert swap["reward"].lost == pytest.approx(6 * 0.727, abs=0.6)
    low, high = swap["reward"].lost_interval_95
    assert low < 6 * 0.727 < high
    assert swap["reward"].p_corrected < 1e-4


def test_a_policy_that_needs_any_image_does_not_look():
    report = sight(look_env.choosy, LookEnv, seeds=seeds(3), **CAMERA)
    assert report.looks is False
    lost = {loss.intervention: loss.lost for loss in report.losses if loss.outcome == "reward"}
    assert lost["swap"] == lost["freeze"] == 0
    assert lost["blank"] > 1
    assert lost["shuffle"] > 1


def test_a_glance_is_looking():
    """A frozen first image is all that it needs, but not that of another episode."""
    report = sight(
        look_env.Remembering, lambda: LookEnv(still=True), seeds=seeds(4), images=["eye.camera"]
    )
    lost = {loss.intervention: loss.lost for loss in report.losses if loss.outcome == "reward"}
    assert report.looks is True
    assert lost["freeze"] == 0
    assert lost["swap"] > 1


def test_where_all_episodes_are_alike_freezing_tells():
    report = sight(look_env.seeing, lambda: LookEnv(fixed=True), seeds=seeds(5), **CAMERA)
    swap, *_ = report.losses
    assert (swap.images_differed, swap.p_corrected) == (0.0, None)
    assert report.looks is True
    only = sight(
        look_env.seeing, lambda: LookEnv(fixed=True), seeds=seeds(5), interventions=["swap"]
    )
    assert only.looks is None
    assert only.reason == "no intervention showed it other images than its own"


@pytest.mark.parametrize(
    ("policy", "count", "reason"),
    [
        (look_env.idle, 20, "it comes to no more than the floor, so there is nothing to lose"),
        (look_env.misled, 20, "it gains without them"),
        (look_env.seeing, 3, "only 3 episodes: at least 7 are needed"),
        (look_env.seeing, 1, "nothing to lose"),
    ],
)
def test_an_undecided_verdict_is_null(policy, count, reason):
    report = sight(policy, LookEnv, seeds=seeds(6)[:count], **CAMERA)
    assert report.looks is None
    assert reason in report.reason


@pytest.mark.records
def test_the_number_of_workers_changes_nothing():
    one = sight(look_env.seeing, LookEnv, seeds=seeds(7)[:4])
    assert one == sight(look_env.seeing, LookEnv, seeds=seeds(7)[:4], workers=2)


def test_the_command_writes_a_report_and_a_page(tmp_path, capsys):
    words = ["tests.training.look_env:seeing", "--episodes", "8", "--out", str(tmp_path / "a")]
    assert command.main([*words, *LOOK]) == 0
    printed = capsys.readouterr().out
    assert "\nlooks: true: it loses reward by " in printed
    assert "looks at eye.wrist: false" in printed
    facts = json.loads((tmp_path / "a" / "sight.json").read_text())
    assert facts["looks"] is True
    assert facts["policy"] == "tests.training.look_env:seeing"
    assert facts["seeds"] == list(range(100000, 100008))
    assert facts["false_alarms"] == 0.05
    assert len(facts["records"]) == 8
    assert np.mean([r["altered"]["all"]["swap"]["reward"] for r in facts["records"]]) == (
        pytest.approx(facts["losses"][0]["mean"])
    )
    assert facts["provenance"]["versions"]["gymnasium"]
    page = (tmp_path / "a" / "sight.html").read_text()
    assert "<h1>Does tests.training.look_env:seeing look?</h1>" in page
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "")

    refused(capsys, command, [*words, *LOOK], "holds another report (sight.json)")


def test_scripted_policies_do_not_look(capsys):
    walk = ["--env", "tests.training.walk_env:Walk-v0", "--episodes", "2"]
    for name in ("oracle", "random", "blind"):
        assert command.main(["--policy", name, *walk]) == 0
        assert "looks: false: no action of 2 episodes changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "give one RUN_OR_CHECKPOINT, or one --policy"),
        (["tests.training.look_env:seeing"], "requires --env ID"),
        (["tests.training.look_env:seen", *LOOK], "has no seen; did you mean seeing?"),
        (["tests.training.look_env:np.pi", *LOOK], "must be a function of an observation, an"),
        (["nowhere:act", *LOOK], "nowhere:act: there is no module nowhere on Python's path"),
        (["tests.training.look_env:blind", "--env", "CartPole-v1"], "CartPole-v1 has no images"),
        (["tests.training.look_env:blind", *LOOK, "--images", "eye.camra"],
         "eye.camra is no image of Look-v0, whose images are eye.camera, eye.wrist; did you mean"),
        (["--policy", "blind", *LOOK, "--smallest-loss", "0"], "--smallest-loss: must be a"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(words, error, capsys):
    refused(capsys, command, words, error)


def test_scenes_must_differ_and_interventions_exist():
    with pytest.raises(UserError, match="seeds must be at least one, all different"):
        sight(look_env.blind, LookEnv, seeds=[1, 1])
    with pytest.raises(UserError, match="interventions must be some of swap, freeze, blank, shuf"):
        sight(look_env.blind, LookEnv, interventions=["swop"])
