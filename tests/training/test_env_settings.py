"""Wrappers, parts and registration in a run's configuration, through every command."""

import shutil
import sys
from pathlib import Path

import pytest
import yaml
from gymnasium import spaces

from tests import helpers
from tests.helpers import refused
from training import bc, es, evaluate, flops, ppo, rollout, sight
from training.algorithms.registry import load_any_config
from training.collect import env_settings
from training.collect.environments import make_env, resolved
from training.collect.tuples import with_tuples
from training.io import checkpoint
from training.io.config import UserError, dump

ARM, DOT = "tests.training.arm_env:Arm-v0", "tests.training.dot_env:Dot-v0"
GREY = ["GrayscaleObservation", {"gymnasium.wrappers.ResizeObservation": {"shape": [8, 10]}}]
SMALL = {
    "env_id": DOT, "iterations": 1, "popsize": 4, "terrains": 1, "center_terrains": 1,
    "workers": 1, "searcher": {"name": "pgpe"}, "policy": {"patch": [4, 5]},
}  # fmt: skip


@pytest.fixture
def job(tmp_path):
    """Writes a configuration; returns its path."""

    def write(**changes):
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump({**SMALL, **changes}))
        return str(path)

    return write


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory):
    """A run in wrappers of Gymnasium and of the tests."""
    mine = {"tests.training.wrappers_env:Dimmed": {"factors": [0.5, 0.5]}}
    folder = tmp_path_factory.mktemp("wrapped")
    return helpers.train(es, {**SMALL, "env_wrappers": [*GREY, mine]}, folder / "run")


def test_wrappers_are_applied_in_order_with_their_keywords():
    with make_env(
        DOT, {"env_wrappers": [*GREY, {"FrameStackObservation": {"stack_size": 3}}]}
    ) as env:
        assert env.observation_space.shape == (3, 8, 10)
        assert env.reset(seed=0)[0].shape == (3, 8, 10)


def test_parts_are_kept_or_dropped_by_their_dotted_names():
    for given, names in (
        (["arm", "width.0"], ["arm.goal", "arm.hand", "width.0"]),
        ({"drop": ["mission", "arm.goal"]}, ["arm.hand", "width.0"]),
        (["mission", "arm.hand"], ["arm.hand", "mission"]),
    ):
        with make_env(ARM, {"observation_keys": given}) as env:
            assert sorted(env.observation_space.spaces) == names
            assert sorted(env.reset(seed=0)[0]) == names


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env_wrappers": ["GreyscaleObservation"]}, "did you mean GrayscaleObservation"),
        ({"env_wrappers": [{"TimeLimit": {"steps": 3}}]}, "TimeLimit cannot be made: TypeError"),
        ({"env_wrappers": [{"a": {}, "b": {}}]}, r"env_wrappers must hold names"),
        ({"env_wrappers": ["NormalizeObservation"]}, "keeps statistics from one episode to the"),
        ({"env_wrappers": ["no_such:Wrapper"]}, "no_such:Wrapper' cannot be imported: ModuleNot"),
        ({"env_wrappers": ["math:pi"]}, "math:pi must be a gymnasium.Wrapper, got 3.14"),
        ({"env_register": "math:pi"}, "must name a function, got 3.14"),
        ({"env_register": 3}, "env_register must be a module or module:function, got 3"),
        ({"observation_keys": ["image"]}, "names image, but the parts of the observation are obs"),
        ({"observation_keys": {"drop": ["observation"]}}, "must keep a part of the observation"),
        ({"observation_keys": {"keep": ["a"]}}, "must be a list of names or {drop: .NAME.}"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        make_env(DOT, resolved(DOT, settings))


def test_a_registration_is_called():
    name = "tests.training.wrappers_env:register"
    make_env("Called-v0", {"env_register": [name]}).close()
    with pytest.raises(UserError, match="imported by env_id = PACKAGE:ID or env_register"):
        make_env("NeverCalled-v0", {})


@pytest.mark.parametrize("key", ["env_wrappers", "env.env_wrappers"])
def test_a_change_of_wrappers_is_no_resumed_run(wrapped, key, capsys):
    words = ["--resume", str(wrapped), "--set", "iterations=2", f"{key}=[GrayscaleObservation]"]
    refused(capsys, es, words, "env.env_wrappers = ['GrayscaleObservation'] differs from")


def test_a_run_in_wrappers_resumes_and_is_measured(wrapped, tmp_path, capsys):
    custom = ["--custom", "tests.training.wrappers_env:Dimmed"]
    words = [str(wrapped), "--env", DOT, *custom]
    assert es.main(["--resume", str(wrapped), "--set", "iterations=2"]) == 0
    assert f"{' '.join(words)}  # measure it" in capsys.readouterr().out
    for command, more in (
        (rollout, ["--episodes", "1"]), (flops, ["--calls", "2"]),
        (evaluate, ["--episodes", "2", "--out", str(tmp_path / "e")]),
        (sight, ["--episodes", "2", "--out", str(tmp_path / "s")]),
    ):  # fmt: skip
        assert command.main([*words, *more]) == 0, command
    config = checkpoint.load(checkpoint.resolve(wrapped)).config
    assert config["env"]["env_wrappers"][0] == "GrayscaleObservation"


def test_a_stranger_s_wrappers_are_not_imported(wrapped, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "tests.training.wrappers_env")
    sentence = "'tests.training.wrappers_env:Dimmed' of a file would import"
    for command in (rollout, flops, evaluate):
        refused(capsys, command, [str(wrapped), "--env", DOT], sentence, "only --set, --custom or")
    assert "tests.training.wrappers_env" not in sys.modules


def test_a_checkpoint_s_wrappers_become_no_configuration(wrapped, tmp_path, capsys):
    run = Path(shutil.copytree(wrapped, tmp_path / "run"))
    (run / "config.yaml").unlink()
    words = ["--resume", str(run), "--set", "iterations=3"]
    refused(capsys, es, words, "names an environment that would be imported")
    plain = tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump(SMALL))
    refused(capsys, es, [*words, "--config", str(plain)], "names code that would run, env_wrap")
    assert es.main([*words, "--config", str(wrapped.with_name("run.yaml"))]) == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env_wrappers": ["os:system"]}, "'os:system' of a file would import os"),
        ({"env_wrappers": [{"RecordVideo": {"video_folder": "x"}}]}, "may write files"),
        ({"env_wrappers": [{"FrameStackObservation": {"stack_size": 10**9}}]}, "at most 64"),
        ({"env_wrappers": [{"ResizeObservation": {"shape": [10**6, 9]}}]}, "at most 1024"),
        ({"env_register": "os:getcwd"}, "'os:getcwd' of a file would run code"),
        ({"env_register": "antigravity"}, "'antigravity' of a file would run code"),
    ],
)
def test_a_stranger_s_settings_run_nothing(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        make_env(DOT, env_settings.foreign(settings))


def test_default_settings_leave_configurations_as_they_were(job):
    plain = dump(load_any_config(job(), []))
    empty = ["env_wrappers=[]", "observation_keys=[]", "env_register=[]"]
    assert dump(load_any_config(job(), empty)) == plain
    assert not {*plain, *plain["env"]} & {*env_settings.SETTINGS}
    given = load_any_config(job(env_wrappers="GrayscaleObservation"), [])
    assert given.env == {"env_wrappers": ["GrayscaleObservation"]}


def test_wrappers_of_a_described_environment_stand_beside_its_settings():
    found = resolved("SteppingStones-v0", {"episode_s": 1.0, "observation_keys": ["proprio"]})
    assert found["observation_keys"] == ["proprio"]
    with make_env("SteppingStones-v0", found) as env:
        assert [*env.observation_space.spaces] == ["proprio"]


DEEP = {"a": {"b": (1, 2)}}


class Base:
    def __init__(self, pair: tuple[int, int] | None = None, deep=DEEP, rows=((0, 0),)):
        pass


class Derived(Base):
    def __init__(self, listed=[1], either: "list[int] | tuple[int, ...]" = (), **more):  # noqa: B006
        pass


def test_lists_become_tuples_where_tuples_are_taken():
    given = {
        "pair": [1, 2], "deep": {"a": {"b": [3, 4], "c": [5]}}, "rows": [[1, 2], [3, 4]],
        "listed": [1], "either": [2], "unknown": [3],
    }  # fmt: skip
    assert with_tuples(Derived, given) == {
        "pair": (1, 2), "deep": {"a": {"b": (3, 4), "c": [5]}}, "rows": ((1, 2), (3, 4)),
        "listed": [1], "either": (2,), "unknown": [3],
    }  # fmt: skip
    make_env(ARM, {"speed": [0.2, 0.2], "limits": [1.0]}).close()
    make_env(ARM, {"config": {"shape": []}}).close()  # nothing declares this one


def test_actions_of_several_parts_are_one_vector():
    with make_env(ARM, {}) as env:
        assert isinstance(env.action_space, spaces.Box)
        env.reset(seed=0)
        label = env.get_wrapper_attr("expert_action")()
        assert label.shape == (6,)
        assert env.step(label)[1] > env.step(-label)[1]
    with make_env(
        ARM, {"env_wrappers": [{"tests.training.arm_env.Shifted": {"by": [1, 1]}}]}
    ) as env:
        env.reset(seed=0)
        with pytest.raises(UserError, match="leave out those that change actions"):
            env.get_wrapper_attr("expert_action")()


@pytest.mark.parametrize("trainer", [es, bc, ppo])
def test_an_arm_and_a_gripper_are_trained_resumed_and_measured(trainer, tmp_path):
    more = {
        es: {"popsize": 4, "terrains": 1},
        bc: {"expert_episodes": 3, "episodes": 2, "updates": 2, "batch_size": 8},
        ppo: {"steps": 32},
    }[trainer]
    run = helpers.train(
        trainer, {"env_id": ARM, "iterations": 1, "workers": 1, **more}, tmp_path / "run"
    )
    assert trainer.main(["--resume", str(run), "--set", "iterations=2"]) == 0
    scripted = ["--policy", "random", "--policy", "constant", "--policy", "oracle"]
    words = [str(run), "--env", ARM, *scripted, "--episodes", "2"]
    assert evaluate.main([*words, "--out", str(tmp_path / "e")]) == 0
