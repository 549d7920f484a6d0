"""Descriptions of environments: validation and discovery."""

import types

import gymnasium
import pytest
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

import envs
from envs.geometry import Geometry
from envs.task import Outcome, Task
from policies.common.geometry import observed_poses


@dataclass(config=ConfigDict(extra="forbid"))
class Settings:
    size: int = 3


def test_a_description_is_found_by_id_and_by_module_and_id():
    task = envs.find_task(envs.STEPPING_STONES)
    assert envs.find_task(f"some.module:{envs.STEPPING_STONES}") is task
    assert envs.find_task("Nowhere-v0") is None
    assert {envs.STEPPING_STONES, envs.BIMANUAL_SWEEP} <= {one.env_id for one in envs.tasks()}


def test_a_later_description_replaces_an_earlier_one(monkeypatch):
    monkeypatch.setattr("envs.task._TASKS", {})
    for label in ("first", "second"):
        envs.register(Task(env_id="Described-v0", outcomes=(Outcome(name="x", label=label),)))
    assert envs.find_task("Described-v0").outcomes[0].label == "second"
    assert "Described-v0" not in gymnasium.registry


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Outcome(name="reward", label="r"), "reward, seed, steps, success, got 'reward'"),
        (lambda: Outcome(name="a b", label="r"), "a Python name, .* got 'a b'"),
        (lambda: Task(env_id="module:Id-v0"), "without module, got 'module:Id-v0'"),
        (lambda: Task(env_id="A-v0", settings=dict), "extra=.forbid., or None, got <class"),
        (
            lambda: Task(env_id="A-v0", settings=Settings, embodiment=("sise",)),
            "settings, got sise",
        ),
        (lambda: Task(env_id="A-v0", per_episode=("size",)), "per_episode must .* got size"),
        (lambda: Task(env_id="A-v0", headline="x"), "headline must be one of success, got 'x'"),
        (
            lambda: Task(env_id="A-v0", outcomes=(Outcome(name="x", label="x"),) * 2),
            "must be distinct, got x, x",
        ),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_words_of_an_outcome():
    laps = Outcome(name="laps", label="laps")
    metres = Outcome(name="m", label="distance", unit="m")
    share = Outcome(name="s", label="in bowls", of="balls", kind="share")
    fell = Outcome(name="fell", label="fell", kind="event", otherwise="stayed up")
    assert [laps.shown(2), metres.shown(2), share.shown(0.5)] == [
        "2.00 laps", "2.00 m", "50.0% in bowls",
    ]  # fmt: skip
    assert [fell.shown(1), fell.shown(0), fell.captioned(0)] == ["fell", "stayed up", ""]
    assert [laps.axis_label, metres.axis_label] == ["laps", "distance (m)"]
    assert [laps.mean_name, fell.mean_name] == ["laps_mean", "fell_rate"]
    assert metres.said("3.1") == "has a distance of 3.1 m"
    assert share.full_label == "share of balls in bowls"


def test_former_names_of_fields_still_work():
    assert Task(env_id="A-v0", picture="rgb").camera_image == "rgb"
    assert Geometry({}, {}, {}, told_poses="poses").observed_poses == "poses"
    former = types.SimpleNamespace(told_poses="poses")
    assert observed_poses(former) == "poses"
