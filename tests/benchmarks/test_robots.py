"""Quick runs of the studies of robot policies: what is measured, kept and resumed."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from experiments.place_memory import place_memory_width, same_keys
from experiments.robots import moved_cameras, sweep_sight
from tests.training.test_es import TOY
from training import bc
from training.algorithms import es_config, ppo_config
from training.analysis.agents import find_agents
from training.compare.config import load_config, study_file
from training.io.metrics import read_metrics

from .runs import quick

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "cameras" / "moved.json"
SHIPPED = moved_cameras.SHIPPED[0]


def refused(main, words, error, capsys):
    """The command ends with status 2 and this error."""
    assert main(words) == 2
    assert error in capsys.readouterr().err


@pytest.fixture(scope="module")
def agent():
    (found,) = find_agents([SHIPPED], [], None, [])
    return found


def test_every_pose_is_one_of_the_task_and_moves_cameras_alone(agent):
    before = moved_cameras.posed(agent, moved_cameras.UNCHANGED).env_settings
    for pose, change in moved_cameras.POSES.items():
        moved = moved_cameras.posed(agent, pose).env_settings
        assert {k for k, v in moved.items() if v != before[k]} == set(change), pose
    moved = moved_cameras.posed(agent, "5 cm forward").env_settings
    assert moved["front_camera"]["position_m"] == [0.247, 0.0, -0.115]
    assert moved["belly_camera"]["position_m"] == [-0.042, 0.0, -0.105]


def test_a_pose_is_kept_and_the_next_start_resumes(tmp_path, capsys, monkeypatch):
    def short(runs, *_):
        return find_agents(runs, [], None, ["episode_s=3"])

    monkeypatch.setattr(moved_cameras, "find_agents", short)
    file = tmp_path / "moved.json"
    words = ["--terrains", "1", "--seed", "0", "--out", str(file), "--poses", "5 cm up"]
    assert moved_cameras.main(words) == 0
    first = json.loads(file.read_text())["results"][SHIPPED]
    assert set(first) == {moved_cameras.UNCHANGED, "5 cm up"}
    assert all(len(one["success"]) == len(one["reward"]) == 1 for one in first.values())
    assert first["5 cm up"]["reward"] != first[moved_cameras.UNCHANGED]["reward"]
    capsys.readouterr()
    assert moved_cameras.main(words) == 0
    again = capsys.readouterr()
    assert again.err == ""  # nothing was walked
    assert "| 5 cm up |" in again.out
    other = [*words[:2], "--seed", "1", *words[4:]]
    refused(moved_cameras.main, other, "is of terrains 0 to 0, not of 1 to 1", capsys)
    file.write_text("[]")
    refused(moved_cameras.main, words, "is not a file of this command", capsys)
    words = ["--poses", "5 cm frward"]
    refused(moved_cameras.main, words, "did you mean 5 cm forward", capsys)


def test_a_policy_that_cannot_see_refuses(agent, monkeypatch):
    narrow = {key: {"fov_deg": 40.0} for key in moved_cameras.CAMERAS}
    monkeypatch.setitem(moved_cameras.POSES, "narrow", narrow)
    found = moved_cameras.walk(moved_cameras.posed(agent, "narrow"), [0], 1)
    assert "controller vote needs cameras that see the ground" in found["refused"]
    assert str(agent.checkpoint) not in found["refused"]
    walked = {moved_cameras.UNCHANGED: {"success": [1, 1], "reward": [4.0, 4.0]}, "narrow": found}
    assert moved_cameras.rows(walked)[1] == "| narrow | refused | | | |"


def test_losses_are_distinguished_from_chance():
    own = np.ones(100)
    worse = (np.random.default_rng(0).random(100) < 0.7).astype(float)
    like = np.concatenate(([0, 0], own[2:]))
    results = {
        name: {"success": list(values), "reward": list(4 * values)}
        for name, values in ((moved_cameras.UNCHANGED, own), ("worse", worse), ("like", like))
    }
    found = moved_cameras.compared(results)
    assert found["worse"]["p_corrected"] < 0.001
    assert found["worse"]["lost_interval_95"][0] > 0.1
    assert found["like"]["p_corrected"] > 0.05
    low, high = found["like"]["lost_interval_95"]
    assert low < 0 < 0.02 < high


@pytest.mark.skipif(not RECORD.is_file(), reason="docs are not part of a source distribution")
def test_the_page_quotes_the_record_of_moved_cameras():
    """None of sixteen poses differs significantly from the original cameras."""
    facts = json.loads(RECORD.read_text())
    assert len(facts["seeds"]) == 100
    page = (ROOT / "docs" / "results" / "cameras.md").read_text()
    assert moved_cameras.table(facts["results"]) in page
    found = moved_cameras.compared(facts["results"][SHIPPED])
    assert len(found) == 16
    assert all(one["p_corrected"] > 0.05 for one in found.values())


def test_a_policy_of_another_task_is_refused(capsys):
    words = ["bimanual_sweep_angular_8x2"]
    refused(moved_cameras.main, words, "was trained in BimanualSweep-v0", capsys)
    error = "was trained in SteppingStones-v0, not in BimanualSweep-v0\n"
    refused(sweep_sight.main, ["stepping_stones_angular_8x8"], error, capsys)
    words = ["stepping_stones", "--quick"]
    refused(same_keys.main, words, "must be a policy place_memory with memory linear", capsys)


@pytest.mark.records
def test_whether_a_sweeping_policy_uses_its_images(tmp_path, capsys):
    (shipped,) = sweep_sight.SHIPPED
    results = quick(sweep_sight, tmp_path, shipped)
    assert list(results) == [shipped]
    assert list(results[shipped]) == list(sweep_sight.COLUMNS)
    assert all(0 <= share <= 1 for column in results[shipped].values() for share in column)
    assert "0.000 +- 0.000" in capsys.readouterr().out  # nothing is in a bowl after a second


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "learned"
    preset = "configs/stepping_stones_memory_learned.yaml"
    few = ["expert_episodes=4", "episodes=2", "updates=8", "workers=1", "episode_s=2", "sequence=8"]
    assert bc.main(["--config", preset, "--out", str(out), "--set", *few]) == 0
    return out


@pytest.mark.records
def test_both_memories_walk_the_same_terrains(learned, tmp_path, capsys):
    facts = quick(same_keys, tmp_path, str(learned), "--set", "episode_s=2")
    of_run = facts["runs"]["learned"]
    assert np.shape(of_run["linear"]) == np.shape(of_run["exact"]) == (2, 2)
    assert of_run["linear"] != of_run["exact"]  # another memory does read
    assert facts["reward_ratio"] == pytest.approx(1, abs=0.3)
    assert "linear to exact" in capsys.readouterr().out
    (found,) = find_agents([str(learned)], [], None, [])
    with found.make_env() as env:
        policy = found.make_policy(env)
        exact = same_keys.read_exactly(policy, env, "learned")
    assert exact.config.memory == "exact"
    theirs = exact.state_dict()
    assert all(value.equal(theirs[key]) for key, value in policy.state_dict().items())


@pytest.mark.records
def test_losses_by_width(tmp_path, capsys):
    variant = "linear harmonic F = 11"
    words = ["--walks", "2", "--updates", "6", "--variants", variant]
    (row,) = quick(place_memory_width, tmp_path, *words)
    assert row["arm"] == variant
    assert len(set(row["losses"])) == len(row["widths_m"]) == 3
    assert row["chosen_m"] in row["widths_m"]
    error = "--variants must be of linear harmonic F = 53, "
    refused(place_memory_width.main, ["--arms", "no memory"], error, capsys)
    chosen = place_memory_width.chosen  # the widest that is as good
    assert chosen((0.02, 0.03, 0.04), (0.800, 0.807, 0.820)) == 0.03
    assert chosen((0.02, 0.03, 0.04), (0.900, 0.850, 0.800)) == 0.04


@pytest.mark.records
def test_car_racing(tmp_path, monkeypatch):
    pytest.importorskip("Box2D", reason="needs the extra box2d")
    from experiments.robots import car_racing

    monkeypatch.setattr(car_racing, "STRIDES", (4, 1))  # 529 tokens and 8100
    results = quick(car_racing, tmp_path, "--minutes", "30")
    flops = {(row["attention"], row["tokens"]): row["scores_flops"] for row in results["look"]}
    for name in car_racing.MAPS:
        growth = flops[name, 8100] / flops[name, 529]
        power = 2 if name == "exact softmax" else 1
        assert growth == pytest.approx((8100 / 529) ** power, rel=0.02)
    assert all(row["scores_ms"] > 0 for row in results["look"])
    assert all(row["step_flops"] > row["scores_flops"] for row in results["look"])
    study = load_config(study_file("car_racing"))
    assert [row["arm"] for row in results["arms"]] == [arm.name for arm in study.arms]
    for row in results["arms"]:
        assert 0.5 < row["iterations"] * row["iteration_s_at_most"] / 1800 <= 1
        assert row["iterations_of_the_study"] > 10


@pytest.fixture
def ppo_against_es():
    pytest.importorskip("stable_baselines3")
    from experiments.robots import ppo_against_es

    return ppo_against_es


def test_both_trainers_are_given_the_same_policy_and_environment(ppo_against_es):
    loaders = {"es": es_config.load_config, "ppo": ppo_config.load_config}
    for key, fast in (("stones", False), ("car", False), ("car", True)):
        task = ppo_against_es.TASKS[key]
        jobs = [
            load(ppo_against_es.preset(task, name), ppo_against_es.overrides(task, name, 3, fast))
            for name, load in loaders.items()
        ]
        for field in ("env_id", "env", "policy", "seed"):
            assert getattr(jobs[0], field) == getattr(jobs[1], field)
        assert jobs[0].policy.init_seed == jobs[0].policy.feature_seed == jobs[0].seed == 3
    car = ppo_against_es.TASKS["car"]  # the presets themselves
    jobs = [load(ppo_against_es.preset(car, name), []) for name, load in loaders.items()]
    for field in ("env_id", "env", "policy"):
        assert getattr(jobs[0], field) == getattr(jobs[1], field)


@pytest.mark.records
def test_finished_work_is_kept_and_a_stopped_run_resumes(
    ppo_against_es, tmp_path, monkeypatch, capsys
):
    small = {"env_id": TOY, "env": {"episode_s": 0.15}, "iterations": 1, "workers": 1}
    small["policy"] = {"patch": [4, 4]}
    own = {
        "es": {"trainer": "es", "popsize": 4, "terrains": 1, "center_terrains": 1},
        "ppo": {"trainer": "ppo", "steps": 20, "episodes": 4, "center_episodes": 1,
                "batch_size": 8},
    }  # fmt: skip
    files = {trainer: str(tmp_path / f"{trainer}.yaml") for trainer in own}
    for trainer, file in files.items():
        Path(file).write_text(yaml.safe_dump(small | own[trainer]))
    toy = ppo_against_es.Task("toy", files, 100, "distance_m")
    monkeypatch.setitem(ppo_against_es.TASKS, "toy", toy)
    monkeypatch.setattr(ppo_against_es, "QUICK", {"es": (), "ppo": ()})
    words = ["--runs", str(tmp_path / "runs")]
    found = quick(ppo_against_es, tmp_path / "out", "toy", *words)["toy"]
    first = capsys.readouterr().out
    assert "| toy, PPO |" in first
    assert "| toy, PPO less evolution strategies | |" in first
    assert [len(found[trainer][0]["fresh"]["reward"]) for trainer in ("es", "ppo")] == [2, 2]
    before = {p: p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    assert quick(ppo_against_es, tmp_path / "out", "toy", *words)["toy"] == found
    assert {path: path.read_bytes() for path in before} == before
    assert "done:" not in capsys.readouterr().out  # nothing was trained

    file = tmp_path / "out" / "ppo_against_es.json"  # a task that is not asked for stays in it
    file.write_text(json.dumps({"results": {"stones": found}}))
    assert quick(ppo_against_es, tmp_path / "out", "toy", *words)["stones"] == found
    assert "| stepping stones, PPO |" in capsys.readouterr().out

    run = tmp_path / "runs" / "toy-es-s0"
    ppo_against_es.train(run, toy, "es", [], 100)
    steps = read_metrics(run).columns["env_steps"]
    assert steps[-2] < 100 <= steps[-1]
    assert json.loads((run / "cost.json").read_text())["training_cpu_s"] > 0
    words = ["stone", "--runs", str(tmp_path)]
    refused(ppo_against_es.main, words, "TASK must be of stones, car, toy", capsys)
