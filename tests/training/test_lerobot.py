"""LeRobotDatasets: the numbers and pixels that were there, by PyArrow and by LeRobot itself."""

import io
import json
import math
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from tests.helpers import refused
from tests.training import picture_env  # noqa: F401
from training import demos, lerobot
from training.algorithms.labelled_rollouts import Demonstrations, layout_of
from training.analysis.agents import find_agents
from training.collect.environments import make_env
from training.collect.episode import run_episode
from training.demonstrations import lerobot_writer
from training.demonstrations.dataset import Dataset, open_source
from training.demonstrations.format import ArraySpec
from training.demonstrations.lerobot_writer import Moments, action_spec, feature_names
from training.demonstrations.reader import DemoReader
from training.io.config import UserError

ENV = "tests.training.counted_env:CountedPicture-v0"
needs_arrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs PyArrow")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demos")
    words = ["--env", ENV, "--episodes", "3", "--set", "success_at=4", "--workers", "1"]
    assert demos.main([*words, "--after-success-steps", "2", "--out", str(folder)]) == 0
    return folder


def written(source, out, *words):
    assert lerobot.main([*source, "--env", ENV, "--out", str(out), *words]) == 0
    return out


def rows(out):
    from pyarrow import parquet

    paths = sorted(out.glob("data/*/*.parquet"))
    return [row for path in paths for row in parquet.read_table(path).to_pylist()]


def pixels(cell):
    return np.asarray(Image.open(io.BytesIO(cell["bytes"])))


@needs_arrow
def test_demonstrations_are_there_in_numbers_and_pixels(recorded, tmp_path):
    from pyarrow import parquet

    out = written([str(recorded)], tmp_path / "out", "--task", "push it")
    info = json.loads((out / "meta" / "info.json").read_text())
    reader, found, at = DemoReader(recorded), rows(out), 0
    assert (info["codebase_version"], info["fps"], info["total_episodes"]) == ("v3.0", 10, 3)
    assert info["total_frames"] == len(found) == sum(reader.lengths)
    assert {key: value["dtype"] for key, value in info["features"].items()} == {
        "observation.images.rgb": "image", "observation.state": "float32", "action": "float32",
        "next.reward": "float64", "next.done": "bool", "next.success": "bool",
        "timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64",
        "task_index": "int64",
    }  # fmt: skip
    episodes = parquet.read_table(out / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    for number, demo in enumerate(reader.demos):
        episode = episodes[number]
        assert (episode["dataset_from_index"], episode["length"]) == (at, len(demo))
        assert episode["tasks"] == ["push it"]
        for step in range(len(demo)):
            row = found[at + step]
            assert np.array_equal(pixels(row["observation.images.rgb"]), reader.frame(number, step))
            assert np.array_equal(row["observation.state"], demo.arrays["pose"][step])
            assert np.array_equal(row["action"], demo.actions[step])
            assert row["next.reward"] == demo.rewards[step]
            last = step == len(demo) - 1
            assert (row["next.done"], row["next.success"]) == (last, last and number % 2 == 0)
            assert (row["index"], row["episode_index"]) == (at + step, number)
            assert row["timestamp"] == np.float32(step / 10)
        at += len(demo)
    stats = json.loads((out / "meta" / "stats.json").read_text())
    everything = np.concatenate([demo.actions for demo in reader.demos]).astype(float)
    assert stats["action"]["std"] == pytest.approx(everything.std(0).tolist())
    assert stats["action"]["count"] == [len(found)]
    bright = np.stack([pixels(row["observation.images.rgb"]) for row in found]) / 255
    mean = np.array(stats["observation.images.rgb"]["mean"])
    assert mean.shape == (3, 1, 1)
    assert mean.ravel() == pytest.approx(bright.mean((0, 1, 2)))


@needs_arrow
@pytest.mark.parametrize("remembers", [False, True])
def test_an_export_and_back_is_the_identity(recorded, tmp_path, remembers):
    """The trainer gets the same tensors, seeds and split, and refuses another robot."""
    out = written([str(recorded)], tmp_path / "out")
    with make_env(ENV, {"success_at": 4}) as env:
        layout = layout_of(env, remembers)
        found = [
            Dataset(open_source(path), env, ENV, {"success_at": 4}, {}) for path in (recorded, out)
        ]
        ours, back = (Demonstrations.recorded(dataset, layout) for dataset in found)
        assert ours.sha256() == back.sha256()
        assert ours.held_out.any()
        assert found[0].source.seeds == found[1].source.seeds == [0, 1, 2]
        with pytest.raises(UserError, match=r"success_at = 4, but the run has env\.success_at = 5"):
            Dataset(open_source(out), env, ENV, {"success_at": 5}, {})
        with pytest.raises(UserError, match="CountedPicture-v0, but Other-v0 is needed"):
            Dataset(open_source(out), env, "Other-v0", {}, {})


@needs_arrow
def test_a_policy_s_episodes_are_those_that_it_plays(tmp_path, monkeypatch):
    """In several files, as none may grow without bound."""
    monkeypatch.setattr(lerobot_writer, "_FILE_MB", 1e-3)
    words = ["--episodes", "3", "--seed", "100004", "--set", "steps=5"]
    out = written(["--policy", "random"], tmp_path / "new" / "out", *words)
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]
    assert len([*out.glob("data/chunk-000/file-*.parquet")]) == 3
    found = rows(out)
    (agent,) = find_agents([], ["random"], ENV, ["steps=5"])
    with make_env(ENV, {"steps": 5}) as env:
        policy, kept = agent.make_policy(env), []
        for seed in (100004, 100005, 100006):
            policy = agent.for_episode(policy, env, seed)
            run_episode(env, policy, seed, on_step=lambda *step: kept.append(step[1:4]))
    assert len(kept) == len(found)
    for row, (observation, action, reward) in zip(found, kept, strict=True):
        assert np.array_equal(pixels(row["observation.images.rgb"]), observation["rgb"])
        assert np.array_equal(row["action"], action)
        assert row["next.reward"] == reward
    assert [row["index"] for row in found] == [*range(len(found))]


@needs_arrow
def test_an_export_is_whole_or_not_there(recorded, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(lerobot_writer.DatasetWriter, "close", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lerobot.main([str(recorded), "--env", ENV, "--out", str(out)])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".out.part" / "data").mkdir(parents=True)  # of one that was killed
    (tmp_path / ".out.part" / "data" / "old").write_text("")
    written([str(recorded)], out)
    assert sorted(path.name for path in out.iterdir()) == ["data", "meta"]
    assert not (out / "data" / "old").exists()
    assert lerobot.main([str(recorded), "--env", ENV, "--out", str(out)]) == 2
    assert f"--out {out} must be a new directory" in capsys.readouterr().err


@needs_arrow
def test_a_recording_imports_nothing_that_it_names(recorded, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, ENV.partition(":")[0])
    assert lerobot.main([str(recorded), "--out", str(tmp_path / "out")]) == 2
    assert "which only --env or your configuration may request" in capsys.readouterr().err
    assert lerobot.main([str(recorded), "--fps", "4", "--out", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "meta" / "info.json").read_text())["fps"] == 4


def test_an_absent_pyarrow_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = 'training.lerobot needs PyArrow: pip install "foveate[lerobot]"'
    refused(capsys, lerobot, ["--policy", "random", "--out", tmp_path / "out"], said)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give one DEMOS_OR_RUN, or one --policy"),
        (["--policy", "random", "--fps", "0"], "--fps: must be a number from 1e-06 to 1e+06"),
    ],
)
def test_other_words_are_one_sentence(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.setattr("foveate_extras.require", lambda *given: None)
    refused(capsys, lerobot, [*words, "--out", str(tmp_path / "out")], sentence)


def test_moments_of_parts_are_those_of_the_whole():
    values = np.random.default_rng(0).normal(5, 2, (50, 3))
    parts = [Moments.of(part) for part in np.split(values, [7, 8, 30])]
    whole = (parts[0] + parts[1] + parts[2] + parts[3]).as_json()
    assert whole["count"] == [50]
    for key in ("min", "max", "mean", "std"):
        assert whole[key] == pytest.approx(getattr(values, key)(0).tolist(), abs=1e-12)


def test_parts_of_a_step_have_the_names_and_types_that_lerobot_looks_for():
    picture, vector = ArraySpec((8, 8, 3), "uint8"), ArraySpec((4,), "float32")
    parts = {"rgb": picture, "depth": ArraySpec((2, 8, 8), "float32"), "pose": vector}
    names = ["observation.images.rgb", "observation.depth", "observation.state"]
    assert list(feature_names(parts).values()) == names
    images = feature_names({"observation": picture})
    assert images == {"observation": "observation.images.observation"}
    two = feature_names({"a": vector, "b": vector})
    assert two == {"a": "observation.a", "b": "observation.b"}
    assert action_spec(spaces.Discrete(3)) == ArraySpec((), "int64")
    with pytest.raises(UserError, match="a dataset holds one array of numbers as an action"):
        action_spec(spaces.Tuple([spaces.Discrete(3)]))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lerobot") is None, reason="needs LeRobot")
def test_lerobot_reads_100_episodes(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder, out = tmp_path / "demos", tmp_path / "out"
    words = ["--env", ENV, "--episodes", "100", "--set", "steps=6", "--workers", "1"]
    assert demos.main([*words, "--out", str(folder)]) == 0
    written([str(folder)], out)
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset, reader = LeRobotDataset("foveate/test", root=out), DemoReader(folder)
    assert (dataset.num_episodes, len(dataset)) == (100, sum(reader.lengths))
    at = 0
    for number, demo in enumerate(reader.demos):
        for step in range(len(demo)):
            item = dataset[at]
            seen = (item["observation.images.rgb"].permute(1, 2, 0) * 255).round().numpy()
            assert np.array_equal(seen, reader.frame(number, step))
            assert np.array_equal(item["observation.state"], demo.arrays["pose"][step])
            assert np.array_equal(item["action"], demo.actions[step])
            assert item["next.reward"] == np.float32(demo.rewards[step])
            assert math.isclose(item["timestamp"], step / 10, abs_tol=1e-6)
            assert (item["episode_index"], item["index"]) == (number, at)
            assert item["task"] == ENV
            at += 1
    following = LeRobotDataset("foveate/test", root=out, delta_timestamps={"action": [0.0, 0.1]})
    assert following[0]["action"].shape == (2, 3)
