"""What comes from an environment is checked where it enters: one broken rule at a time."""

import json
import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from deploy.contract import signals_of
from policies.common.geometry import geometry_of
from policies.common.observation import Observations
from tests.helpers import refused
from tests.training import fuzzed_env
from tests.training.fuzzed_env import AT, STEPS
from training import bc, demos, es, evaluate, ppo, rollout
from training.collect.checked import Checked, EnvironmentFault
from training.collect.environments import make_env
from training.collect.episode import run_episode
from training.interventions.trial import sight
from training.io import checkpoint
from training.io.config import UserError
from training.video.video import frames_a_step

FUZZED = "tests.training.fuzzed_env:Fuzzed-v0"


def boom(*_):
    raise RuntimeError("simulator\nexploded")


class NoTextError(Exception):
    """An error that cannot be printed."""

    def __str__(self):
        raise ValueError


def fails_with(error):
    def change(*_):
        raise error

    return change


def scaled(factor, kind=np.float32):
    return lambda value: (value * factor).astype(kind)


def without(key):
    return lambda value: {name: part for name, part in value.items() if name != key}


def spoiled(value, at=0):
    """One number replaced."""

    def change(array):
        array = array.astype(np.float64) if isinstance(value, float) else array.copy()
        array.flat[at] = value
        return array.astype(np.float32) if isinstance(value, float) else array

    return change


BROKEN = [
    ("reset", lambda found: found[0], "reset returned"),
    ("reset", None, "reset returned None"),
    ("reset", boom, "failed at the reset with seed 7: RuntimeError: simulator exploded ("),
    ("step", lambda found: (*found[:2], *found[3:]), "step returned a tuple of 4"),
    ("step", list, "step returned ["),
    ("step", boom, f"failed at step {AT} of the episode with seed 7: RuntimeError: simulator"),
    ("step", fails_with(SystemExit(3)), f"failed at step {AT} of the episode with seed 7: SystemE"),
    ("step", fails_with(NoTextError()), "with seed 7: NoTextError ("),
    ("observation", None, "the observation is None, where a dict is needed"),
    ("observation", lambda found: found["numbers"], "the observation is an array of float32"),
    ("observation", without("marks"), "holds the keys numbers, pair, picture, where its"),
    ("observation", lambda found: {**found, "more": 1}, "pair, picture, more, where its space has"),
    ("picture", scaled(1 / 255), "observation picture holds numbers of type float32, such as 0."),
    ("picture", lambda p: np.full(p.shape, 300), "holds 300, which does not fit the type uint8"),
    ("picture", lambda p: p[..., 0], "has the shape (12, 16), where its space has (12, 16, 3)"),
    ("picture", None, "observation picture is None"),
    ("numbers", spoiled(np.nan), "numbers has 1 of 3 numbers that are not finite, the first nan"),
    ("numbers", lambda n: np.full(3, 1e300), "holds 1e+300, which does not fit the type float32"),
    ("numbers", lambda n: n[:2], "has the shape (2,), where its space has (3,)"),
    ("numbers", lambda n: n.astype(str), "where numbers of type float32 are needed"),
    ("numbers", [[1.0], [1.0, 2.0]], "where numbers of type float32 are needed"),
    ("choice", 6, "observation pair.0 holds 6, where its space is Discrete(4, start=2)"),
    ("choice", 1, "observation pair.0 holds 1"),
    ("choice", 3.5, "observation pair.0 holds numbers of type float64, such as 3.5"),
    ("choices", np.array([1, 2]), "observation pair.1 holds 2, where its space is MultiDiscrete"),
    ("marks", np.array([0, 2], np.int8), "observation marks holds 2"),
    ("reward", None, "the reward is None, where one number is needed"),
    ("reward", np.ones(1), "the reward is an array of float64 of shape (1,)"),
    ("reward", "1", "the reward is '1' (str)"),
    ("reward", {"task": 1}, "the reward is {'task': 1} (dict)"),
    ("reward", np.nan, "the reward is nan, where a finite number is needed"),
    ("terminated", "False", "terminated is 'False' (str)"),
    ("truncated", np.zeros(2, bool), "truncated is an array of bool of shape (2,)"),
    ("truncated", 0.5, "truncated is 0.5 (float)"),
    ("info", None, "info is None, where a dict is needed"),
    *(
        (key, value, f"info['{key}'] is {said}")
        for key in ("success", "is_success")
        for value, said in (
            ({"task": False}, "{'task': False} (dict), where true or false, 0 or 1"),
            ("False", "'False' (str)"),
            (np.nan, "nan (float)"),
            (0.5, "0.5 (float)"),
            (np.array([1, 0]), "an array of int64 of shape (2,)"),
            (None, "None"),
        )
    ),
]


class Still:
    """The action zero."""

    def reset(self):
        pass

    def act(self, observation):
        return np.zeros(2, np.float32)


def played(where="", change=None, at=None, seen=None):
    at = (0 if where == "reset" else AT) if at is None else at
    keep = seen and (lambda env, observation, *_: seen.append(observation))
    with make_env("Fuzzed-v0", {"where": where, "change": change, "at": at}) as env:
        return run_episode(env, Still(), 7, on_step=keep or None)


@pytest.mark.parametrize(("where", "change", "sentence"), BROKEN)
def test_a_broken_rule_is_one_sentence(where, change, sentence):
    with pytest.raises(EnvironmentFault) as caught:
        played(where, change)
    said = str(caught.value)
    assert sentence in said
    assert "\n" not in said
    assert said.startswith("Fuzzed-v0")
    assert (
        "at the reset with" if where == "reset" else f"at step {AT} of the episode with"
    ) in said
    assert "seed 7" in said
    assert str(pickle.loads(pickle.dumps(caught.value))) == said


@pytest.mark.parametrize("where", ["picture", "numbers", "info"])
def test_a_reset_is_checked_as_steps_are(where):
    with pytest.raises(EnvironmentFault, match="Fuzzed-v0, at the reset with seed 7: "):
        played(where, None, at=0)


@pytest.mark.parametrize(
    ("where", "change", "kind"),
    [
        ("numbers", lambda n: n.astype(np.float64), np.float32),
        ("numbers", lambda n: n.astype(">f4"), np.float32),
        ("numbers", lambda n: [1.0, 2.0, 3.0], np.float32),
        ("numbers", lambda n: np.array([1, 2, 3]), np.float32),
        ("numbers", lambda n: n + 100, np.float32),  # bounds may be left, as of LunarLander-v3
        ("picture", lambda p: p.astype(np.int64), np.uint8),
        ("marks", np.array([True, False]), np.int8),
        ("choice", 3, None),
        ("choice", np.array(3), None),
        ("reward", np.float32(0.5), None),
        ("reward", 1, None),
        ("terminated", np.bool_(False), None),
        ("pair", list, None),
    ],
)
def test_what_fits_passes_in_the_types_of_the_space(where, change, kind):
    seen = [None]
    episode = played(where, change, seen=seen)
    assert (episode.steps, episode.success) == (STEPS, True)
    if kind is not None:
        assert {observation[where].dtype for observation in seen[1:]} == {np.dtype(kind)}


@pytest.mark.parametrize("key", ["success", "is_success"])
@pytest.mark.parametrize(
    ("value", "right"),
    [(0, False), (1, True), (1.0, True), (np.bool_(0), False), (np.array([1.0]), True)],
)
def test_success_has_two_names_and_one_meaning(key, value, right):
    with make_env("Fuzzed-v0", {"where": key, "change": value, "at": STEPS}) as env:
        episode = run_episode(env, Still(), 7)
    assert episode.success is right
    assert episode.info["success"] is right


def test_an_environment_may_change_the_action_that_it_gets():
    class Changing(fuzzed_env.FuzzedEnv):
        def step(self, action):
            action[...] = np.nan
            return super().step(np.zeros(2))

    env, action = Checked(Changing()), np.ones(2)
    env.reset(seed=7)
    env.step(action)
    assert action.tolist() == [1, 1]


def test_an_environment_may_reuse_the_memory_of_its_observations():
    class Reusing(fuzzed_env.EmptyEnv):
        def reset(self, **words):
            super().reset(**words)
            self._seen = np.zeros(3, np.float32)
            return self._seen, {}

        def step(self, action):
            self._seen += 1
            return self._seen, *super().step(action)[1:]

    seen = []
    run_episode(Checked(Reusing()), Still(), 7, on_step=lambda _, found, *more: seen.append(found))
    assert [found[0] for found in seen] == [*range(STEPS)]


def test_success_at_the_end_and_success_once_are_distinguished(tmp_path, capsys):
    words = ["--policy", "random", "--env", FUZZED, "--episodes", "1"]
    for value, once in (("1", 1.0), ("0", None)):
        here = ["--set", "where=success", f"change={value}", f"at={AT}"]
        out = tmp_path / value
        assert evaluate.main([*words, *here, "end=0", "--out", str(out)]) == 0
        (entry,) = json.loads((out / "evaluation.json").read_text())
        assert (entry["success_rate"], entry.get("success_once_rate")) == (0.0, once)
        assert entry["records"][0].get("success_once") == once
        assert capsys.readouterr().out.splitlines()[1].split()[5] == f"{once or 0:.1%}"
    assert rollout.main([*words, "--set", "where=success", "change=1", f"at={AT}", "end=0"]) == 0
    assert "succeeded for a while, not at the end" in capsys.readouterr().out


def test_spaces_are_those_of_the_beginning():
    env = Checked(inner := fuzzed_env.FuzzedEnv())
    before = env.observation_space, env.action_space
    inner.action_space = inner.observation_space = None
    assert (env.observation_space, env.action_space) == before


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_a_space_is_needed(name):
    env = fuzzed_env.FuzzedEnv()
    setattr(env, name, None)
    with pytest.raises(EnvironmentFault, match=f"its {name} is None, where a Gymnasium space"):
        Checked(env)


COMMANDS = {
    "es": (es, ["searcher.name=ars", "popsize=4", "terrains=1", "center_terrains=1", "workers=1"]),
    "bc": (bc, ["expert_episodes=2", "episodes=2", "updates=2", "workers=1"]),
    "ppo": (ppo, ["steps=12", "batch_size=6", "workers=1"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_training_says_it_and_writes_nothing_after_it(name, tmp_path, capsys):
    command, settings = COMMANDS[name]
    words = [f"env_id={FUZZED}", "env.where=numbers", "env.change=[1,1.0e+300,1]", "iterations=1"]
    refused(
        capsys, command, ["--out", str(tmp_path / "run"), "--set", *words, *settings],
        f"training stopped: Fuzzed-v0, at step {AT} of the episode with seed ",
        ": observation numbers holds 1e+300, which does not fit the type float32; ",
    )  # fmt: skip


@pytest.mark.parametrize("command", [evaluate, rollout, demos])
def test_playing_says_it(command, tmp_path, capsys):
    playing = ["--policy", "random"] if command is not demos else ["--out", str(tmp_path / "out")]
    playing += ["--episodes", "1", "--set", "boxes=true", "where=numbers", "change=[1,1.0e+300,1]"]
    refused(
        capsys, command, ["--env", FUZZED, *playing],
        f"Fuzzed-v0, at step {AT} of the episode with seed ", "numbers holds 1e+300, which",
    )  # fmt: skip


def test_sight_says_it():
    make = partial(fuzzed_env.FuzzedEnv, "numbers", [1, np.nan, 1])
    with pytest.raises(UserError, match="policy: FuzzedEnv, at step 3 of the episode with seed"):
        sight(Still(), make, seeds=[1])


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (np.zeros((48, 64), np.uint8), "the frame has the shape (48, 64), where (height, width, c"),
        (np.full((48, 64, 3), 0.5), "the frame holds numbers of type float64, such as 0.5"),
        (np.full((48, 64, 3), 300), "the frame holds 300, which does not fit the type uint8"),
        ("no frame", "the frame is 'no frame' (str), where numbers of type uint8 are needed"),
        (boom, "Fuzzed-v0 cannot be drawn here: RuntimeError: simulator exploded ("),
        (
            lambda _, step: np.zeros((48, 64 + step, 3), np.uint8),
            "the frame has the shape (48, 66, 3), and those before (48, 65, 3)",
        ),
    ],
)
def test_a_frame_that_is_no_image_is_one_sentence(frame, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzzed_env.FuzzedEnv, "frame", frame)
    film = ["--video", str(tmp_path / "film.mp4"), "--env", FUZZED]
    refused(capsys, rollout, ["--policy", "random", *film], sentence)


def test_a_list_becomes_the_tuple_that_an_environment_has():
    with make_env("Fuzzed-v0", {"at": 0, "size": [12, 16]}) as env:
        assert env.unwrapped.size == (12, 16)
    with make_env("Fuzzed-v0", {"change": [1, 2]}) as env:
        assert env.unwrapped.change == [1, 2]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"seen": 0}, "observation_space must not be empty, got Box("),
        ({"taken": 0}, "action_space must be a Box that holds numbers"),
    ],
)
@pytest.mark.parametrize("trainer", [es, ppo])
def test_spaces_without_numbers_are_refused(parts, sentence, trainer, tmp_path, capsys):
    name = trainer.__name__.rpartition(".")[2]
    words = ["env_id=tests.training.fuzzed_env:Empty-v0", "iterations=1", *COMMANDS[name][1]]
    words += [f"env.{key}={value}" for key, value in parts.items()]
    refused(capsys, trainer, ["--out", str(tmp_path / "run"), "--set", *words], sentence)


@pytest.mark.parametrize("trainer", ["es", "ppo"])
def test_a_part_without_numbers_trains(trainer, tmp_path):
    command, settings = COMMANDS[trainer]
    words = ["env_id=tests.training.fuzzed_env:Empty-v0", "env.more=2", "env.seen=0"]
    assert command.main(["--out", str(tmp_path), "--set", *words, "iterations=1", *settings]) == 0


def test_an_environment_that_cannot_be_closed_is_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzzed_env.FuzzedEnv, "close", boom)
    words = ["--policy", "random", "--env", FUZZED, "--episodes", "1", "--out", str(tmp_path)]
    assert evaluate.main(words) == 0
    assert (tmp_path / "evaluation.json").exists()
    said = capsys.readouterr().err
    assert "warning: Fuzzed-v0 could not be closed: RuntimeError: simulator exploded (" in said


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ([0.0, np.nan], "the expert's action has 1 of 2 numbers that are not finite, the first"),
        (boom, "failed at the reset with seed "),
    ],
)
def test_the_expert_is_of_the_environment_too(action, sentence, tmp_path, monkeypatch, capsys):
    expert = action if callable(action) else lambda _: action
    monkeypatch.setattr(fuzzed_env.FuzzedEnv, "expert_action", expert)
    words = [f"env_id={FUZZED}", "iterations=1", *COMMANDS["bc"][1]]
    refused(capsys, bc, ["--out", str(tmp_path / "run"), "--set", *words], sentence)


@pytest.mark.parametrize(
    ("layout", "noted"),
    [([], True), (["policy.layout={seen: vector}"], False), (["policy.layout={seen: HW}"], False)],
)
def test_a_table_that_is_read_as_a_vector_is_noted(layout, noted, tmp_path, capsys):
    words = ["env_id=tests.training.fuzzed_env:Empty-v0", "env.seen=[5,5]", "env.more=1"]
    words += [*layout, "iterations=1", *COMMANDS["es"][1]]
    assert es.main(["--out", str(tmp_path), "--set", *words]) == 0
    said = (
        "note: seen has 5 x 5 numbers, which are read as a vector; to read them as an image: --set "
        "'policy.layout={seen: HW}'"
    )
    assert (said in capsys.readouterr().out) == noted


@pytest.mark.parametrize(
    ("key", "shape", "dtype", "found"),
    [
        ("observation", (5, 5), np.float32, True),  # highway-env
        ("lidar", (64, 3), np.float64, True),
        ("observation", (5, 5), np.uint8, False),
        ("observation", (24, 32), np.float32, False),
        ("front_depth", (6, 8), np.float32, False),
        ("observation", (2, 5, 5), np.float32, False),
    ],
)
def test_what_is_a_table(key, shape, dtype, found):
    space = spaces.Dict({key: spaces.Box(0, 1, shape, dtype)})
    assert bool(Observations(space).vectors) == found
    if found:
        assert Observations(space, {key: "HW"}).image_parts[0].layout == "HW"


def test_policies_of_before_read_tables_as_images(tmp_path, monkeypatch):
    words = ["env_id=tests.training.fuzzed_env:Empty-v0", "env.seen=[5,5]", "env.more=1"]
    words += [*COMMANDS["es"][1], "iterations=1", "policy.patch=[2,2]"]
    run = tmp_path / "run"
    with monkeypatch.context() as before:
        before.setattr("policies.common.observation.is_table", lambda key, space: False)
        assert es.main(["--out", str(run), "--set", *words]) == 0
    policy, config = checkpoint.load_policy(run)
    assert config["policy"]["layout"] == {}
    assert [one.key for one in policy.inputs.observations.image_parts] == ["seen"]
    assert es.main(["--resume", str(run), "--set", "iterations=2", "workers=2"]) == 0
    assert es.main(["--out", str(tmp_path / "now"), "--set", *words]) == 0
    policy, _ = checkpoint.load_policy(tmp_path / "now")
    assert not policy.inputs.observations.image_parts


@pytest.mark.parametrize("value", [None, 0, False, "square", [1, 2], {"rays": 1}, np.ones(2), len])
def test_attributes_of_another_meaning_are_none_of_ours(value):
    """An environment may use the names by which others declare cameras, signals and frames."""

    class Odd(gymnasium.Env):
        observation_space = action_space = spaces.Box(-1, 1, (2,), np.float32)
        geometry = signals = metadata = value
        render_mode = "rgb_array"

    env = Odd()
    env.frames_a_step = value
    assert geometry_of(env) is None
    assert len(signals_of(env)) == 0
    assert frames_a_step(env) == 1
    assert isinstance(Checked(env).metadata, dict)
