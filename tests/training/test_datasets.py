"""Other people's demonstrations: each format gives the numbers that were written, or a sentence."""

import io
import json
import tracemalloc
import warnings
import zipfile
from functools import partial
from importlib.util import find_spec

import gymnasium
import h5py
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from deploy import export
from tests.helpers import metrics, refused, run_command, same_results, train
from tests.training import picture_env  # noqa: F401
from tests.training.dataset_files import (
    CAMERA,
    made_episodes,
    write_lerobot,
    write_npz,
    write_robomimic,
    write_video,
)
from training import bc, evaluate, rollout
from training.algorithms.labelled_rollouts import Demonstrations, layout_of
from training.collect.environments import make_env
from training.demonstrations.dataset import Dataset, evenly_held_out, open_source
from training.io import checkpoint
from training.io.config import UserError

needs_arrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs PyArrow")
needs_av = pytest.mark.skipif(find_spec("av") is None, reason="needs PyAV")
ENV = "Picture-v0"
ROBOMIMIC_KEYS = {"agentview_image": "rgb", "robot0_eef_pos": "pose"}
LEROBOT_KEYS = {CAMERA: "rgb"}
SMALL = {
    "env_id": ENV, "iterations": 2, "episodes": 2, "updates": 8, "batch_size": 8, "workers": 1,
    "fit_after": None, "policy": {"hidden": [8], "patch": [8, 8], "controller": "mlp"},
}  # fmt: skip


def opened(path, keys=None, **more):
    with make_env(ENV, {}) as env:
        return Dataset(open_source(path), env, ENV, {}, keys or {}, **more)


FORMATS = [
    ("npz", write_npz, {}, {}, 0),
    ("robomimic.hdf5", write_robomimic, {}, ROBOMIMIC_KEYS, 0),
    ("chw.hdf5", write_robomimic, {"chw": True}, ROBOMIMIC_KEYS, 0),
    pytest.param("v3", write_lerobot, {}, LEROBOT_KEYS, 0, marks=needs_arrow),
    pytest.param("v2", write_lerobot, {"version": "v2.1"}, LEROBOT_KEYS, 0, marks=needs_arrow),
    *(
        pytest.param(
            f"{version}-{codec}", write_lerobot,
            {"version": version, "videos": True, "codec": codec}, LEROBOT_KEYS, 10,
            marks=[needs_arrow, needs_av],
        )
        for version, codec in (("v3.0", "libsvtav1"), ("v2.1", "libx264"))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "write", "options", "keys", "away"), FORMATS)
def test_every_format_gives_what_was_written(tmp_path, name, write, options, keys, away):
    episodes = made_episodes()
    found = opened(write(tmp_path / name, episodes, **options), keys)
    assert found.source.rate_hz == 10
    assert (found.train, found.valid) == ([0, 1, 2, 3], [4])
    assert found.lengths.tolist() == [3, 4, 5, 6, 7]
    for number, episode in enumerate(episodes):
        for part in ("pose", "action"):
            values = found.read(number, part)
            assert values.dtype == np.float32
            assert np.array_equal(values, episode[part])
        images = found.read(number, "rgb")
        assert (images.shape, images.dtype) == (episode["rgb"].shape, np.uint8)
        assert np.abs(images.astype(int) - episode["rgb"]).max() <= away
        part = found.read(number, "rgb", slice(1, 3))
        assert np.abs(part.astype(int) - episode["rgb"][1:3]).max() <= away


@pytest.mark.parametrize(
    ("name", "write", "options"),
    [
        ("npz", write_npz, {"split": ["train", "valid", "train", "valid", "train"]}),
        ("a.hdf5", write_robomimic, {"masks": {"train": [0, 2, 4], "valid": [1, 3]}}),
        pytest.param(
            "v3", write_lerobot, {"splits": {"train": "0:3", "val": "3:5"}}, marks=needs_arrow
        ),
    ],
)
def test_a_split_of_the_files_is_kept(tmp_path, name, write, options):
    keys = {"npz": {}, "v3": LEROBOT_KEYS}.get(name, ROBOMIMIC_KEYS)
    episodes = made_episodes()
    found = opened(write(tmp_path / name, episodes, **options), keys)
    lengths = {"npz": [3, 5, 7], "a.hdf5": [3, 5, 7], "v3": [3, 4, 5]}[name]
    assert found.lengths[found.train].tolist() == lengths
    assert len(found.valid) == 2
    assert np.array_equal(found.read(found.train[2], "pose"), episodes[lengths[2] - 3]["pose"])


def test_demonstrations_are_in_the_order_of_their_numbers(tmp_path):
    episodes = made_episodes(12)
    found = opened(write_robomimic(tmp_path / "a.hdf5", episodes), ROBOMIMIC_KEYS)
    assert found.lengths.tolist() == [*range(3, 15)]
    assert np.array_equal(found.read(10, "action"), episodes[10]["action"])


def test_a_share_of_the_episodes_is_held_out_evenly():
    assert evenly_held_out(100, 0.29)[:3] == [3, 6, 10]
    assert len(evenly_held_out(100, 0.29)) == 29
    assert evenly_held_out(5, 0.1) == [4]


@pytest.mark.parametrize("controller", ["mlp", "gru"])
def test_a_dataset_is_learned_and_a_run_resumes(job, tmp_path, controller):
    data = write_npz(tmp_path / "data", made_episodes(8))
    policy = {**SMALL["policy"], "controller": controller}
    path = job(demonstrations=str(data), policy=policy, updates=60, learning_rate=0.01)
    whole = train(bc, path, tmp_path / "whole")
    rows = metrics(whole)
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    assert [row["episodes"] for row in rows] == ["8", "8"]
    assert not (whole / "data").exists()
    few = train(bc, path, tmp_path / "few", "--set", "demos_used=2", "iterations=1")
    assert metrics(few)[0]["decisions"] == "7"  # of 3 and 4 steps
    half = train(bc, path, tmp_path / "half", "--set", "iterations=1")
    moved = data.rename(tmp_path / "moved")
    words = ["--resume", half, "--set", "iterations=2", f"demonstrations={moved}"]
    assert bc.main([str(word) for word in words]) == 0
    same_results(whole, half)


def test_other_demonstrations_do_not_resume(job, tmp_path, capsys):
    data = write_npz(tmp_path / "data", made_episodes(4))
    run = train(bc, job(demonstrations=str(data), iterations=1), tmp_path / "run")
    write_npz(data, made_episodes(4, seed=1))
    refused(
        capsys, bc, ["--resume", run, "--set", "iterations=2"], f"{data} holds other demonstrations"
    )


IMPLICIT = {
    "env_id": ENV, "iterations": 1, "updates": 4, "batch_size": 8, "evaluate_every": 0,
    "policy": {
        "name": "vision_performer", "patch": [8, 8], "embed_dim": 8, "depth": 1, "heads": 2,
        "context_dim": 8, "hidden": [8], "negatives": 4, "num_features": 4,
        "num_lambda_features": 4, "pose_octaves": 1, "patch_readout": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("small", [{**SMALL, "iterations": 1, "episodes": 0}, IMPLICIT])
def test_formats_train_the_same_policy(tmp_path, small):
    """Trainers see no format: equal numbers in two of them give equal parameters."""
    episodes, found = made_episodes(4), []
    for name, write, keys in (
        ("npz", write_npz, {}),
        ("chw.hdf5", lambda *given: write_robomimic(*given, chw=True), ROBOMIMIC_KEYS),
    ):
        path = write(tmp_path / name, episodes)
        config = {**small, "demonstrations": str(path), "demonstrations_keys": keys}
        run = train(bc, config, tmp_path / f"run-{name}")
        assert metrics(run)[0]["success"] in ("", "nan")
        found.append(checkpoint.load(checkpoint.resolve(run)).policy)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def read_all(opened, path):
    found = opened(path)
    return [found.read(0, part) for part in found.keys]


class Floats(gymnasium.Env):
    """Images of floats from 0 to 1, or, as `depth`, of metres up to 4, and a choice."""

    observation_space = spaces.Dict(
        {"rgb": spaces.Box(0, 1, (3, 40, 48)), "depth": spaces.Box(0, 4, (40, 48), np.float32)}
    )
    action_space = spaces.Discrete(3, start=1)


def test_images_become_floats_and_choices_whole_numbers(tmp_path):
    rng = np.random.default_rng(0)
    written = {
        "rgb": rng.integers(0, 256, (9, 40, 48, 3), np.uint8),
        "depth": rng.uniform(0, 4, (9, 40, 48, 1)).astype(np.float64),
        "action": rng.integers(1, 4, 9).astype(np.float32),
    }
    other = {**written, "depth": np.full((9, 40, 48, 1), 1e6)}
    found = Dataset(open_source(write_npz(tmp_path, [written, other])), Floats(), "A-v0", {}, {})
    assert np.allclose(found.read(0, "rgb"), np.moveaxis(written["rgb"], -1, 1) / 255)
    assert np.array_equal(found.read(0, "depth"), written["depth"][..., 0].astype(np.float32))
    assert np.array_equal(found.read(0, "action"), written["action"].astype(np.int64))
    with pytest.raises(UserError, match=r"depth of episode 1 leaves the bounds .* to 1e\+06"):
        Demonstrations.recorded(found, layout_of(Floats()))


def changed(**arrays):
    return [{**episode, **arrays} for episode in made_episodes(2)]


@pytest.mark.parametrize(
    ("keys", "more", "sentence"),
    [
        ({"agentview_imag": "rgb"}, {}, "names 'agentview_imag', but .* did you mean agentview"),
        ({"agentview_image": "rbg"}, {}, "maps agentview_image to 'rbg', where .* did you mean r"),
        (dict.fromkeys(ROBOMIMIC_KEYS, "rgb"), {}, "maps both agentview_image and robot0_eef_pos"),
        ({"robot0_eef_pos": "pose"}, {}, "holds nothing for observation rgb of Picture-v0: demons"),
        (ROBOMIMIC_KEYS, {"rate_hz": 20}, "has 20 steps a second, where Picture-v0 has 10; if t"),
        (
            {"robot0_eef_pos": "rgb", "agentview_image": "pose"},
            {},
            r"agentview_image, for pose of Picture-v0, is \(40, 48, 3\) of uint8, where \(3,\)",
        ),
    ],
)
def test_keys_and_rates_that_do_not_fit_are_one_sentence(tmp_path, keys, more, sentence):
    path = write_robomimic(tmp_path / "a.hdf5", made_episodes(2), **more)
    with pytest.raises(UserError, match=sentence):
        opened(path, keys)


def test_a_rate_may_be_given(tmp_path):
    path = write_robomimic(tmp_path / "a.hdf5", made_episodes(2), rate_hz=20)
    assert len(opened(path, ROBOMIMIC_KEYS, rate_hz=10)) == 2
    with pytest.raises(UserError, match="demonstrations_rate_hz says 5 steps a second, where"):
        opened(path, ROBOMIMIC_KEYS, rate_hz=5)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"action": np.zeros((9, 7), np.float32)}, r"action.* is \(7,\) of float32, where \(3,\)"),
        ({"action": np.full((9, 3), 9.0)}, "action of episode 0 reaches 9, beyond Box.*another r"),
        ({"pose": np.full((9, 3), np.nan)}, "pose of episode 0 has numbers that are not finite"),
        ({"rgb": np.zeros((9, 20, 24, 3), np.uint8)}, r"rgb.* is \(20, 24, 3\) of uint8, where"),
        ({"rgb": np.zeros((9, 40, 48, 3))}, "where whole numbers, uint8, are needed"),
    ],
)
def test_another_robot_is_one_sentence(tmp_path, arrays, sentence):
    steps = {"pose": np.zeros((9, 3)), "action": np.zeros((9, 3)),
             "rgb": np.zeros((9, 40, 48, 3), np.uint8)}  # fmt: skip
    path = write_npz(tmp_path, changed(**steps | arrays))
    with pytest.raises(UserError, match=sentence):
        read_all(opened, path)


def test_the_command_says_it_in_a_sentence(job, tmp_path, capsys):
    config = job(demonstrations=str(tmp_path / "none"))
    refused(capsys, bc, ["--config", config], f"there is no {tmp_path}/none")
    refused(capsys, bc, ["--config", job(demonstrations=str(tmp_path))], "holds no demonstrations")
    refused(
        capsys, bc, ["--config", job(demonstrations_rate_hz=3.0)],
        "demonstrations_rate_hz must be left out where demonstrations is null",
    )  # fmt: skip


def test_a_dataset_without_a_simulator_is_learned_and_exported(tmp_path, monkeypatch, capsys):
    """The run holds the spaces: neither the dataset nor a simulator is needed afterwards. Two
    cameras of different sizes and a vector are what is observed."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    episodes = [{**one, "wrist": one["rgb"][:, ::2, ::2]} for one in made_episodes(4)]
    names = {"rgb": "agentview_image", "wrist": "eye_in_hand_image", "pose": "robot0_eef_pos"}
    data = write_robomimic(tmp_path / "data.hdf5", episodes, rate_hz=25, names=names)
    policy = {**SMALL["policy"], "patch": [4, 4]}
    small = {**SMALL, "env_id": "RecordedSpaces-v0", "demonstrations": str(data)} | {
        "policy": policy
    }
    run = train(bc, small, tmp_path / "run")
    assert "4 episodes (3 to train on, 1 held out)" in (said := capsys.readouterr().out)
    assert "deploy.export" in said
    assert "training.rollout" not in said
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["demonstrations_keys"] == {
        **{name: name for name in names.values()}, "actions": "action",
    }  # fmt: skip
    with make_env(config["env_id"], config["env"]) as env:
        shapes = {name: part.shape for name, part in env.observation_space.spaces.items()}
        assert shapes["eye_in_hand_image"] == (20, 24, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its advice on ranges
            check_env(env.unwrapped, skip_render_check=True)
        every = np.concatenate([episode["action"] for episode in made_episodes(4)])
        assert (env.action_space.low < every.min(0)).all()
        assert (every.max(0) < env.action_space.high).all()
        assert env.metadata["render_fps"] == 25
    assert np.isnan(float(metrics(run)[1]["success"]))
    whole = train(bc, {**small, "iterations": 3}, tmp_path / "whole")
    assert run_command(bc, "--resume", run, "--set", "iterations=3") == 0
    same_results(run, whole)
    data.unlink()
    for command in (evaluate, rollout):
        refused(capsys, command, [run], "has the spaces of a dataset and no simulator, so no epi")
    assert run_command(export, run, "--observations", "5") == 0
    assert json.loads((tmp_path / "exported/run/contract.json").read_text())["rate_hz"] == 25


@pytest.mark.parametrize(
    ("env", "keys", "sentence"),
    [
        ({}, {"agentview_imag": "camera"}, "demonstrations_keys names 'agentview_imag', but"),
        ({"action": {"shape": [3], "dtype": "float16"}}, {}, "dtype must be one of uint8, int32"),
        ({"action": {"shape": [3], "low": [0, 1]}}, {}, "low must have 1 or 3 numbers, got 2"),
        ({"action": {"shape": [3], "low": [2], "high": [1]}}, {}, "low must be at most high"),
        ({"action": {"shape": [2**20, 2**20]}}, {}, "shape must hold at most"),
        (
            {"action": {"shape": [3]}, "observation": {k: {"shape": [2**23]} for k in "abcde"}},
            {},
            "observation must hold at most 33554432 numbers in all, got 41943040",
        ),
    ],
)
def test_spaces_that_cannot_be_are_one_sentence(job, tmp_path, capsys, env, keys, sentence):
    data = write_robomimic(tmp_path / "data.hdf5", made_episodes(2))
    more = {"observation": {"x": {"shape": [3]}}} if env else {}
    config = job(
        env_id="RecordedSpaces-v0", env={**more, **env}, demonstrations=str(data),
        demonstrations_keys=keys,
    )  # fmt: skip
    refused(capsys, bc, ["--config", config], sentence)
    refused(
        capsys, bc, ["--config", job(env_id="RecordedSpaces-v0")],
        "RecordedSpaces-v0 needs an observation and an action, which training.bc fills in where",
    )  # fmt: skip


# --- files of strangers ---


def pickled(path, episodes):
    write_npz(path, episodes, pose=np.array([{}] * 9, object))


def overstated(path, episodes):
    """An array of 10^12 rows, by its header, in a file of a kilobyte."""
    path.mkdir()
    header = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 3)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(path / "000.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("action", "pose"):
            archive.writestr(f"{name}.npy", header.getvalue())


def linked(path, episodes):
    write_npz(path, episodes)
    path.joinpath("001.npz").rename(path.parent / "outside.npz")
    path.joinpath("001.npz").symlink_to(path.parent / "outside.npz")


def with_array(make):
    def write(path, episodes):
        write_robomimic(path, episodes, names={"rgb": "rgb"})
        with h5py.File(path, "a") as file:
            for number in range(len(episodes)):
                group = file[f"data/demo_{number}/obs"]
                make(group, len(group["rgb"]))

    return write


def in_another_file(group, steps):
    group.create_dataset("pose", (steps, 3), "f4", external=[("/etc/passwd", 0, 12 * steps)])


def virtual(group, steps):
    layout = h5py.VirtualLayout((steps, 3), "f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "x", (steps, 3), "f4")
    group.create_virtual_dataset("pose", layout)


def external_link(group, steps):
    group["pose"] = h5py.ExternalLink("/etc/passwd", "/x")


def never_written(group, steps):
    group.create_dataset("pose", (steps, 10**7), "f8", chunks=(1, 1000))


@pytest.mark.parametrize(
    ("name", "write", "sentence"),
    [
        ("npz", pickled, "pose is of object, where numbers are needed"),
        ("npz", overstated, "takes 24000.0 GB in memory, where at most"),
        ("npz", linked, "leads out of .*: copy the file itself into it"),
        ("a.hdf5", with_array(in_another_file), "pose is stored in another file"),
        ("a.hdf5", with_array(virtual), "pose is stored in another file"),
        ("a.hdf5", with_array(external_link), "pose is missing"),
        ("a.hdf5", with_array(never_written), "pose holds fewer numbers than it says"),
    ],
)
def test_a_strangers_file_reads_nothing_else_and_fills_no_memory(tmp_path, name, write, sentence):
    write(tmp_path / name, made_episodes(2))
    tracemalloc.start()
    with pytest.raises(UserError, match=sentence):
        read_all(opened, tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def shrunk(info):
    info["features"][CAMERA]["shape"] = [20, 24, 3]


def renamed(info):
    info["features"][CAMERA]["shape"] = [40, 48]


def drop_rows(root):
    import pyarrow as pa
    from pyarrow import parquet

    file = root / "data/chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    parquet.write_table(pa.concat_tables([table[:1], table[2:]]), file)


def cut_short(root):
    file = root / "data/chunk-000/file-000.parquet"
    file.write_bytes(file.read_bytes()[:-100])


def led_out(root):
    file = root / "data/chunk-000/file-000.parquet"
    file.rename(root.parent / "outside.parquet")
    file.symlink_to(root.parent / "outside.parquet")


def many_frames(root):
    import pyarrow as pa
    from pyarrow import parquet

    file = root / "meta/episodes/chunk-000/file-000.parquet"
    rows = parquet.read_table(file).to_pylist()
    rows[0]["length"] = 2**31 - 1
    parquet.write_table(pa.Table.from_pylist(rows * 50), file)


@needs_arrow
@pytest.mark.parametrize(
    ("options", "then", "sentence"),
    [
        ({"change": lambda info: info.update(codebase_version="v1.6")}, None, "'v1.6', where v2.1"),
        ({"change": lambda info: info.pop("fps")}, None, "fps"),
        ({"change": renamed}, None, r"an image has the shape \[40, 48\], where three axes"),
        ({"change": shrunk}, None, r"\(20, 24, 3\) of uint8, where \(40, 48, 3\) is needed"),
        ({}, drop_rows, "episode 0 has 2 rows, where meta says 3"),
        ({}, cut_short, "file-000.parquet cannot be read as demonstrations: .*Parquet"),
        ({}, led_out, "leads out of .*: copy the file itself into it"),
        ({}, many_frames, "GB in memory, where at most .* 40% of this machine's, can be used"),
        ({"fps": 20}, None, "has 20 steps a second, where Picture-v0 has 10"),
    ],
)
def test_a_damaged_lerobot_dataset_is_one_sentence(tmp_path, options, then, sentence):
    root = write_lerobot(tmp_path / "data", made_episodes(2), **options)
    if then is not None:
        then(root)
    with pytest.raises(UserError, match=sentence):
        read_all(partial(opened, keys=LEROBOT_KEYS), root)


@needs_arrow
@needs_av
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda video: video.unlink(), "there is no .*mp4, where demonstrations should be"),
        (lambda video: video.write_text("#EXTM3U\n/etc/passwd"), "cannot be read as demonstr"),
        (
            lambda video: write_video(video, made_episodes(1)[0]["rgb"][:2], 10, "libx264"),
            r"no frame within 0.0001 s of 0.2000 s; the nearest is 0.1 s away",
        ),
        (
            lambda video: write_video(video, np.zeros((9, 64, 64, 3), np.uint8), 10, "libx264"),
            "a frame has 64 x 64 pixels, where info.json says 40 x 48",
        ),
        (
            lambda video: write_video(video, np.zeros((9, 40, 48, 3), np.uint8), 7, "libx264"),
            "no frame within 0.0001 s of",
        ),
    ],
)
def test_a_damaged_video_is_one_sentence(tmp_path, damage, sentence):
    root = write_lerobot(tmp_path / "data", made_episodes(2), videos=True, codec="libx264")
    damage(root / f"videos/{CAMERA}/chunk-000/file-000.mp4")
    with pytest.raises(UserError, match=sentence):
        read_all(partial(opened, keys=LEROBOT_KEYS), root)


# --- written and read by the libraries that own the formats ---


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lerobot") is None, reason="needs LeRobot")
@needs_arrow
@pytest.mark.parametrize("kind", ["image", pytest.param("video", marks=needs_av)])
def test_what_lerobot_writes_is_read_as_it_reads_it(tmp_path, monkeypatch, kind):
    """With LeRobot 0.3 the format is v2.1, with 0.4 it is v3.0."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset

    vector = {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]}
    camera = {"dtype": kind, "shape": (40, 48, 3), "names": ["height", "width", "channels"]}
    features = {CAMERA: camera, "observation.state": vector, "action": vector}
    root, episodes = tmp_path / "data", made_episodes(4)
    dataset = LeRobotDataset.create(
        "foveate/test", fps=10, features=features, root=root, use_videos=kind == "video"
    )
    for episode in episodes:
        for rgb, pose, action in zip(*episode.values(), strict=True):
            frame = {CAMERA: rgb, "observation.state": pose, "action": action}
            if CODEBASE_VERSION == "v2.1":
                dataset.add_frame(frame, task="push")
            else:
                dataset.add_frame({**frame, "task": "push"})
        dataset.save_episode()
    if hasattr(dataset, "finalize"):
        dataset.finalize()
    found = opened(root, LEROBOT_KEYS)
    assert found.source.kind == f"LeRobotDataset {CODEBASE_VERSION}"
    theirs = LeRobotDataset("foveate/test", root=root, video_backend="pyav")
    numbers, at = theirs.hf_dataset, 0
    for number, episode in enumerate(episodes):
        for part in ("pose", "action"):
            assert np.array_equal(found.read(number, part), episode[part])
        images = found.read(number, "rgb")
        away = np.abs(images.astype(int) - episode["rgb"]).max()
        assert away == 0 if kind == "image" else away <= 10
        assert int(numbers[at]["episode_index"]) == number
        if kind == "image":
            seen = (theirs[at][CAMERA].permute(1, 2, 0) * 255).round().numpy()
            assert np.array_equal(seen, images[0])
        at += len(images)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("robomimic") is None, reason="needs robomimic")
def test_masks_of_robomimic_are_kept_and_it_reads_the_same_numbers(tmp_path):
    from robomimic.scripts.split_train_val import split_train_val_from_hdf5
    from robomimic.utils import obs_utils
    from robomimic.utils.dataset import SequenceDataset

    np.random.seed(0)  # noqa: NPY002 - what robomimic draws with
    path = write_robomimic(tmp_path / "a.hdf5", made_episodes(8))
    split_train_val_from_hdf5(str(path), val_ratio=0.25)
    found = opened(path, ROBOMIMIC_KEYS)
    keys = list(ROBOMIMIC_KEYS)
    obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"rgb": keys[:1], "low_dim": keys[1:]}})
    for name, chosen in (("train", found.train), ("valid", found.valid)):
        theirs = SequenceDataset(
            str(path), keys, ["actions"], hdf5_cache_mode=None, hdf5_use_swmr=False,
            filter_by_attribute=name, load_next_obs=False,
        )  # fmt: skip
        lengths = {demo: len(theirs.get_dataset_for_ep(demo, "actions")) for demo in theirs.demos}
        assert sorted(lengths.values()) == sorted(found.lengths[chosen].tolist())
        for episode in chosen:
            demo = f"demo_{episode}"
            assert demo in lengths
            for key, part in (*ROBOMIMIC_KEYS.items(), ("actions", "action")):
                place = key if key == "actions" else f"obs/{key}"
                values = np.asarray(theirs.get_dataset_for_ep(demo, place))
                assert np.array_equal(values.astype(np.float32), found.read(episode, part))
