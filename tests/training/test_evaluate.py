"""Evaluation: figures from episodes, the same for any workers, and files that survive."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import configs
from tests.helpers import refused
from tests.training import walk_env
from training.algorithms.bc_config import BC
from training.analysis import evaluator
from training.analysis.agents import find_agents
from training.analysis.evaluator import evaluate, summarise
from training.analysis.intervals import wilson_interval
from training.collect import pool
from training.collect.episode import Episode
from training.command.files import lock
from training.evaluate import main
from training.io.config import UserError

WALK = ["--env", "tests.training.walk_env:Walk-v0"]


def test_wilson_interval_against_published_values():
    """10 of 10, 0 of 10 and 81 of 263 (Newcombe 1998, Statistics in Medicine 17, table I)."""
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1 / 29, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    low, high = wilson_interval(1, 10)
    assert (round(low, 3), high) == (0.722, 1.0)


def agent(env=WALK[1], *settings):
    return find_agents([], ["random"], env, settings)[0]


def test_summary_of_episodes():
    episodes = [
        Episode(7 + i, float(i), 10, i > 1, {"fell": i == 0, "distance_m": 2.0 * i}, {})
        for i in range(4)
    ]
    entry = summarise(agent(WALK[1], "wind=0.02"), episodes)
    assert entry["seeds"] == [7, 8, 9, 10]
    assert entry["episodes"] == 4
    assert entry["reward_mean"] == 1.5
    assert entry["reward_std"] == pytest.approx(np.std([0, 1, 2, 3], ddof=1))
    assert entry["reward_sem"] == pytest.approx(entry["reward_std"] / 2)
    assert (entry["success_rate"], entry["fall_rate"]) == (0.5, 0.25)
    assert entry["reward_per_step_mean"] == pytest.approx(0.15)
    assert entry["distance_m_mean"] == 3.0
    assert entry["env_settings"] == {"wind": 0.02}


def test_the_number_of_workers_changes_nothing():
    agents = find_agents([], ["random", "oracle"], WALK[1], ["wind=0.02"])
    seeds = range(100, 108)

    def results(workers):
        varying = ("latency_ms_per_step", "provenance")
        entries = list(evaluate(agents, seeds, workers))
        return [{k: v for k, v in entry.items() if k not in varying} for entry in entries]

    one = results(1)
    assert one == results(2)
    random, oracle = one
    assert [record["seed"] for record in random["records"]] == list(seeds)
    assert len({record["reward"] for record in random["records"]}) == len(seeds)
    assert oracle["success_rate"] == 1.0
    # The same episode, whatever came before it in the process.
    (alone,) = evaluate(agents[:1], [104])
    assert alone["records"] == [random["records"][4]]


def test_info_neither_replaces_what_was_measured_nor_stops_the_writing(tmp_path, monkeypatch):
    step = walk_env.WalkEnv.step

    def tell(self, action):
        *rest, info = step(self, action)
        return *rest, info | {"reward": 9.0, "steps": -1, "seed": 0, "speed": math.nan, "clock": 2}

    monkeypatch.setattr(walk_env.WalkEnv, "step", tell)
    arguments = ["--policy", "oracle", "--episodes", "2", "--out", str(tmp_path), *WALK]
    assert main(arguments) == 0
    (entry,) = json.loads((tmp_path / "evaluation.json").read_text())
    records = entry["records"]
    assert [record["seed"] for record in records] == entry["seeds"]
    assert [record["steps"] for record in records] == [10, 10]
    assert np.mean([record["reward"] for record in records]) == pytest.approx(entry["reward_mean"])
    assert all("speed" not in record and record["clock"] == 2 for record in records)


def test_the_command_writes_figures_and_image(tmp_path, capsys):
    out = tmp_path / "new" / "place"
    arguments = ["--policy", "oracle", "--policy", "blind", "--episodes", "3", "--out", str(out)]
    assert main([*arguments, *WALK]) == 0
    oracle, blind = json.loads((out / "evaluation.json").read_text())
    assert (oracle["name"], blind["name"]) == ("oracle", "blind")
    assert oracle["seeds"] == [100000, 100001, 100002]
    assert (oracle["success_rate"], blind["success_rate"]) == (1.0, 0.0)
    assert oracle["flops_per_step"] is None
    assert oracle["latency_ms_per_step"] > 0
    assert oracle["provenance"]["versions"]["gymnasium"]
    assert (out / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert "43.9% - 100.0%" in capsys.readouterr().out
    refused(capsys, main, [*arguments, *WALK], "holds another evaluation (evaluation.json)")


def test_of_two_evaluations_into_one_directory_the_second_is_refused(tmp_path, capsys):
    arguments = ["--policy", "oracle", "--episodes", "1", "--out", str(tmp_path), *WALK]
    with lock(tmp_path):
        refused(capsys, main, arguments, "another process")
    assert not (tmp_path / "evaluation.json").exists()
    assert main(arguments) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "at least one RUN_OR_CHECKPOINT"),
        (["--policy", "oracle", "--policy", "oracle", *WALK], "given twice"),
        (["--policy", "oracle", "--workers", "0"], "at least 1"),
        (["--policy", "oracle", "--out", "/proc/nowhere", *WALK], "--out /proc/nowhere"),
        (["--policy", "oracle", "--out", ""], "--out must name a directory, got ''"),
    ],
)
def test_mistakes_are_found_before_anything_runs(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(evaluator, "evaluate", lambda *_, **__: pytest.fail("it started"))
    refused(capsys, main, arguments, message)


def test_results_before_a_policy_that_fails_are_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        walk_env.WalkEnv, "expert_action", lambda self: np.full(9, np.nan, np.float32)
    )
    arguments = ["--policy", "random", "--policy", "oracle", "--episodes", "2", *WALK]
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: oracle: Walk-v0, at the reset")
    (kept,) = json.loads((tmp_path / "evaluation.json").read_text())
    assert kept["name"] == "random"


@pytest.mark.records
def test_a_killed_worker_ends_the_evaluation_with_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr(pool, "RETRIES", 1)
    arguments = ["--policy", "oracle", "--episodes", "4", "--workers", "2", *WALK]
    assert main([*arguments, "--set", "deadly_seed=100002"]) == 2
    assert (
        "error: the evaluation stopped: a worker process died (killed, or out of memory), 2 times "
        "over the episode of oracle with seed 100002; policies evaluated before it are "
    ) in capsys.readouterr().err


def test_one_episode_has_a_mean_and_no_error(tmp_path, capsys):
    arguments = ["--policy", "oracle", "--episodes", "1", "--out", str(tmp_path), *WALK]
    assert main(arguments) == 0
    _, row, _ = capsys.readouterr().out.splitlines()
    assert "nan" not in row
    assert "+-" not in row
    (entry,) = json.loads((tmp_path / "evaluation.json").read_text())
    assert f" {entry['reward_mean']:.3f} " in row
    assert (entry["reward_std"], entry["reward_sem"]) == (0.0, None)


def test_repair_of_depth_is_of_the_evaluation_and_not_of_the_policy(tmp_path, few_timed_calls):
    """The shipped policy has none; results say what they were measured with."""
    words = ["stepping_stones_no_attention", "--episodes", "1", "--set", "episode_s=0.2"]
    assert main([*words, "--no-floors", "--repair", "full", "--out", str(tmp_path)]) == 0
    (entry,) = json.loads((tmp_path / "evaluation.json").read_text())
    assert entry["repair"] == "full"
    assert 0 < entry["repair_ms_per_step"] < entry["latency_ms_per_step"]


def test_repair_is_refused_where_a_policy_has_none(capsys):
    refused(capsys, main, ["bimanual_sweep_angular_8x2", "--repair", "full"], "repair full")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("front_camera={pitch_deg: 38}", "has no effect where front_camera_pitch_deg = "),
        ("front_camera.pitch_deg=42", "front_camera.pitch_deg = 42 has no effect where front_"),
        ("path_radius_m=[2, 4]", "path_radius_m = [2, 4] has no effect where path_turn = straight"),
        ("depth_blackout_s=1", "depth_blackout_s = 1 has no effect where depth_blackouts = 0"),
    ],
)
def test_a_setting_that_another_one_makes_void_is_refused(capsys, tmp_path, settings, sentence):
    words = ["stepping_stones_memory_learned", "--episodes", "1", "--set", "episode_s=0.1"]
    refused(capsys, main, [*words, settings], sentence)
    preset = Path(configs.__file__).with_name("stepping_stones_memory_learned.yaml")
    with pytest.raises(UserError, match=re.escape(sentence)):
        BC.load(preset, [f"env.{settings}"])


def test_settings_that_have_an_effect_or_change_nothing_are_taken():
    for settings in (
        ["front_camera={pitch_deg: 45}"],
        ["front_camera={pitch_deg: 42}", "front_camera_pitch_deg=null"],
        ["front_camera_pitch_deg=[35, 55]", "front_camera.fov_deg=70"],
        ["depth_blackouts=0.1", "depth_blackout_s=1"],
    ):
        find_agents(["stepping_stones_memory_learned"], [], None, settings, force=True)


def test_an_evaluation_that_was_killed_before_its_first_entry_is_run_again(tmp_path):
    (tmp_path / "evaluation.json").write_text("[]")
    words = ["--policy", "random", "--env", "tests.training.walk_env:Walk-v0", "--episodes", "1"]
    assert main([*words, "--out", str(tmp_path)]) == 0
