"""The best constant action and the other floors of policies that observe."""

import json
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers import refused
from training.analysis.agents import find_agents
from training.analysis.constant import action_of, best_constant, candidates
from training.analysis.evaluator import play
from training.analysis.floors import floors_of
from training.evaluate import main as evaluate
from training.interventions.trial import sight
from training.sight import main as sight_main


class Lanes(gymnasium.Env):
    """One of five actions earns more than the others, the fourth; images hold no information."""

    observation_space = spaces.Box(0, 255, (8, 8), np.uint8)
    action_space = spaces.Discrete(5)

    def __init__(self, bonus=1.0, steps=4):
        self._bonus, self._last = bonus, steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._image(), {}

    def step(self, action):
        self._steps += 1
        reward = self._bonus if action == 3 else 0.1 * float(action)
        return self._image(), reward, False, self._steps >= self._last, {}

    def _image(self):
        return self.np_random.integers(0, 256, (8, 8), np.uint8)


class Push(Lanes):
    """A Box whose best action is neither 0 nor at random."""

    action_space = spaces.Box(-2.0, 2.0, (2,))

    def step(self, action):
        self._steps += 1
        reward = float(action[0] - action[1])
        return self._image(), reward, False, self._steps >= self._last, {}


class Shown(Lanes):
    """The image shows which of five actions is rewarded, another at every step."""

    def step(self, action):
        reward = float(action == self._shown)
        return super().step(action)[0], reward, False, self._steps >= self._last, {}

    def _image(self):
        image = super()._image()
        self._shown = int(image[0, 0]) % 5
        return image


def read(image):
    """The action that the image shows, or the largest of six numbers that say nothing."""
    return int(image[0, 0]) % 5


def rest(image):
    return np.zeros(2, np.float32)


gymnasium.register("Lanes-v0", Lanes)
gymnasium.register(
    "Far-v0", type("Far", (Push,), {"action_space": spaces.Box(-np.inf, np.inf, (2,))})
)
gymnasium.register("Shown-v0", Shown)
gymnasium.register("Talk-v0", type("Talk", (Lanes,), {"action_space": spaces.Text(3)}))


@pytest.mark.parametrize(
    ("space", "count", "first"),
    [
        (spaces.Discrete(5, start=2), 5, 2),
        (spaces.MultiDiscrete([2, 3]), 6, [0, 0]),
        (spaces.MultiBinary(3), 8, [0, 0, 0]),
        (spaces.Box(-1, 1, (2,)), 9, [0, 0]),
        (spaces.Box(-1, 1, (9,)), 21, [0] * 9),
        (spaces.Box(1, 2, (2,)), 9, [1, 1]),
        (spaces.Box(-np.inf, np.inf, (1,)), 3, [0]),
        (spaces.Box(-1, 1, (40,)), 32, [0] * 40),
        (spaces.Discrete(1000), 32, 0),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,)))), 6, (0, [0])),
        (spaces.Text(3), 0, None),
    ],
)
def test_candidates_are_actions(space, count, first):
    found = candidates(space)
    assert len(found) == len({str(one) for one in found}) == count
    assert not found or json.dumps(found[0]) == json.dumps(first) or found[0] == first
    assert all(action_of(space, one) in space for one in found)


def test_the_best_is_found():
    assert best_constant(Lanes()) == 3
    assert best_constant(Push()) == [2.0, -2.0]


def test_evaluate_plays_it_in_the_runs_environment_with_its_settings(tmp_path, capsys):
    words = ["--env", "Lanes-v0", "--episodes", "3", "--workers", "1", "--out", str(tmp_path)]
    words += ["--policy", "random", "--policy", "constant", "--set", "bonus=0.3"]
    assert evaluate(words) == 0
    assert "note: the best constant action found is 4" in capsys.readouterr().err
    random, constant = json.loads((tmp_path / "evaluation.json").read_text())
    assert (constant["name"], constant["action"]) == ("constant", 4)
    assert constant["reward_mean"] == pytest.approx(1.6)
    assert random["reward_mean"] < 1.5
    words[words.index("bonus=0.3")] = "bonus=0.5"
    words[words.index(str(tmp_path))] = str(tmp_path / "other")
    assert evaluate(words) == 0
    assert json.loads((tmp_path / "other/evaluation.json").read_text())[1]["action"] == 3


def test_a_policy_that_earns_no_more_has_nothing_to_lose(capsys):
    found = sight(lambda image: 2 + image[0, 0] % 2, Lanes, seeds=range(20))
    level = next(one for one in found.levels if one.outcome == "reward")
    assert (level.floor_by, level.floor) == ("the best constant action", 4.0)
    assert level.to_lose is None
    assert found.looks is not True
    words = ["--env", "Lanes-v0", "--policy", "constant", "--episodes", "2"]
    assert sight_main(words) == 0
    out = capsys.readouterr().out
    assert "the floor, the best constant action: 4.000; random actions: " in out


def test_the_first_choice_is_a_floor_too():
    found = sight(lambda image: 1, lambda: Lanes(bonus=-1.0, steps=1), seeds=range(3))
    assert {*found.records[0]["floors"]} == {"random actions", "the best constant action"}


def test_actions_without_candidates_are_refused(capsys):
    sentence = r"--policy constant: the actions of Talk-v0 are Text"
    refused(capsys, evaluate, ["--env", "Talk-v0", "--policy", "constant"], sentence)


def test_others_keep_their_agents():
    (agent,) = find_agents([], ["random"], "Lanes-v0", [])
    assert agent.action is None


def test_floors_stand_beside_a_policy(tmp_path, capsys):
    """Random, constant and blind earn 20 steps * 0.2 each, 1.8 standard deviations of a mean over
    30 scenes within 1: a false alarm in 1e-8 or so."""
    words = [f"{__name__}:read", "--env", "Shown-v0", "--set", "steps=20", "--episodes", "30"]
    assert evaluate([*words, "--out", str(tmp_path / "one")]) == 0
    out = capsys.readouterr().out
    assert re.search(r":read: reward 20\.000 \(20\.000 to 20\.000\) is above every floor", out)
    entries = json.loads((tmp_path / "one" / "evaluation.json").read_text())
    own, *floors = entries
    assert [one["name"] for one in floors] == ["random", "constant", f"{__name__}:read (blind)"]
    assert own["reward_mean"] == 20
    assert all(2.5 < one["reward_mean"] < 5.5 for one in floors)
    assert [bool(one.get("blind")) for one in entries] == [False, False, False, True]
    assert {json.dumps(one["env_settings"]) for one in entries} == {'{"steps": 20}'}
    # An episode does not depend on those before it.
    agents = find_agents([f"{__name__}:read"], [], "Shown-v0", ["steps=20"])
    (alone,) = play(floors_of(agents, 30)[-1], [100_015])
    assert alone.reward == floors[-1]["records"][15]["reward"]


def test_floors_are_left_out_where_they_are_not_wanted_or_not_possible(tmp_path, capsys):
    words = [f"{__name__}:read", "--env", "Shown-v0", "--episodes", "2"]
    for more, count in (([], 4), (["--no-floors"], 1), (["--policy", "random"], 2)):
        assert evaluate([*words, *more]) == 0
        assert capsys.readouterr().out.count(" +- ") == count
    assert evaluate([f"{__name__}:rest", "--env", "Far-v0", "--episodes", "2"]) == 0
    said = capsys.readouterr()
    assert "note: no floor random: " in said.err
    assert said.out.count(" +- ") == 3
