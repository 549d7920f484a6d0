"""The files of demonstrations: what robomimic expects, exact, checked, and no stranger's code."""

import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from benchmarks import demo_frames
from training.demonstrations.format import (
    ArraySpec,
    EpisodeWriter,
    Recording,
    observation_spec,
    split,
    write_master,
)
from training.demonstrations.reader import DemoReader, read_demo, verify_demo
from training.io.config import UserError

RECORDING = Recording(
    env_id="Picture-v0",
    env={"steps": 12},
    seed=5,
    after_done_steps=10,
    noise=0.0,
    observation={"pose": ArraySpec((3,), "float32"), "rgb": ArraySpec((40, 48, 3), "uint8")},
    action=ArraySpec((2,), "float32"),
    packages={"foveate": "0.1.0"},
)
LENGTHS = {0: 7, 1: 3, 2: 1, 10: 4}


def steps_of(number, length):
    """Observations, actions and rewards of an episode."""
    rng = np.random.default_rng(number)
    for _ in range(length):
        picture = np.repeat(rng.integers(0, 256, (40, 12, 3), np.uint8), 4, axis=1)
        observation = {"rgb": picture, "pose": rng.normal(size=3).astype(np.float32)}
        yield observation, rng.normal(size=2).astype(np.float32), float(rng.uniform())


def write(directory, recording=RECORDING, lengths=LENGTHS):
    (directory / "episodes").mkdir(parents=True, exist_ok=True)
    for number, length in lengths.items():
        writer = EpisodeWriter(recording, number)
        for step in steps_of(number, length):
            writer.add(*step)
        writer.save(directory, recording.seed + number, {"in_bowls": 0.5, "success": 1.0})
        writer.close()
    write_master(directory, recording, lengths, 0.25)
    return directory


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    return write(tmp_path_factory.mktemp("demos") / "all")


@pytest.fixture
def copied(written, tmp_path):
    """Files that a test may damage."""
    return shutil.copytree(written, tmp_path / "demos")


def test_every_number_and_pixel_comes_back(written):
    """From a pickled reader, shared by threads, too."""
    reader = pickle.loads(pickle.dumps(DemoReader(written)))
    assert [demo.number for demo in reader.demos] == list(LENGTHS)
    assert reader.lengths.tolist() == list(LENGTHS.values())
    for index, demo in enumerate(reader.demos):
        assert (demo.seed, demo.final_info) == (5 + demo.number, {"in_bowls": 0.5, "success": 1.0})
        with ThreadPoolExecutor(4) as pool:
            frames = list(
                pool.map(lambda step, index=index: reader.frame(index, step), range(len(demo)))
            )
        steps = steps_of(demo.number, LENGTHS[demo.number])
        for step, (observation, action, reward) in enumerate(steps):
            found = demo.observation(step)
            assert found.keys() == observation.keys()
            for key, values in observation.items():
                assert found[key].dtype == values.dtype
                np.testing.assert_array_equal(found[key], values)
            np.testing.assert_array_equal(frames[step], observation["rgb"])
            np.testing.assert_array_equal(demo.actions[step], action)
            assert demo.rewards[step] == reward
    with pytest.raises(ValueError, match="key = 'depth', but the frames are rgb"):
        reader.frame(0, 0, "depth")
    with pytest.raises(IndexError):
        reader.frame(0, 7)


def test_equal_steps_give_equal_bytes(written, tmp_path):
    again = write(tmp_path / "again")
    for path in sorted(written.rglob("*.hdf5")):
        assert path.read_bytes() == (again / path.relative_to(written)).read_bytes(), path.name


@pytest.mark.parametrize("name", ["demos.hdf5", "episodes/000010.hdf5"])
def test_the_layout_is_that_of_robomimic(written, name):
    """As its SequenceDataset opens and reads it: read-only, swmr, names sorted by number."""
    with h5py.File(written / name, "r", swmr=True, libver="latest") as file:
        demos = sorted(file["data"], key=lambda demo: int(demo[5:]))
        assert json.loads(file["data"].attrs["env_args"]) == {
            "env_name": "Picture-v0", "type": 2, "env_kwargs": {"steps": 12},
        }  # fmt: skip
        total = 0
        for name in demos:
            demo = file[f"data/{name}"]
            steps = demo.attrs["num_samples"]
            total += steps
            shapes = {key: demo[key].shape for key in ("actions", "rewards", "dones", "obs/pose")}
            wanted = {"actions": (steps, 2), "rewards": (steps,), "dones": (steps,)}
            assert shapes == {**wanted, "obs/pose": (steps, 3)}
            rgb = demo["obs/rgb"]
            assert (rgb.shape, rgb.chunks) == ((steps, 40, 48, 3), (1, 40, 48, 3))
            assert (rgb.compression, rgb.dtype) == ("gzip", np.uint8)
            assert demo["dones"][()].tolist() == [0] * (steps - 1) + [1]
            stored = [demo[key] for key in ("actions", "rewards", "obs/rgb", "obs/pose")]
            assert all(dataset.fletcher32 for dataset in stored)
        assert file["data"].attrs["total"] == total
        if len(demos) > 1:
            masks = {key: [name.decode() for name in file[f"mask/{key}"]] for key in file["mask"]}
            assert masks == {"train": ["demo_0", "demo_1", "demo_2"], "valid": ["demo_10"]}


def test_the_directory_may_be_moved(written, tmp_path, monkeypatch):
    moved = shutil.copytree(written, tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    assert len(DemoReader("demos.hdf5")) == len(LENGTHS)
    with h5py.File(moved / "demos.hdf5") as file:
        assert file["data/demo_1/actions"].file.filename == str(moved / "episodes/000001.hdf5")


def test_a_box_is_an_observation_too(tmp_path):
    space = spaces.Box(-1, 1, (4,), np.float64)
    specs = observation_spec(space)
    recording = Recording("X-v0", {}, 0, -1, 0.0, specs, ArraySpec((1,), "float32"), {})
    (tmp_path / "episodes").mkdir()
    writer = EpisodeWriter(recording, 0)
    writer.add(np.arange(4.0), np.zeros(1), 1.0)
    writer.save(tmp_path, 0, {})
    write_master(tmp_path, recording, {0: 1}, 0.25)
    reader = DemoReader(tmp_path, observation_space=space)
    assert reader.demos[0].observation(0)["observation"].tolist() == [0, 1, 2, 3]
    nested = spaces.Dict({"arm": spaces.Tuple((spaces.Discrete(3), space)), "word": spaces.Text(3)})
    assert [*observation_spec(nested)] == ["arm.0", "arm.1"]
    listed = spaces.Dict({"kinds": spaces.Sequence(space), "pose": space})
    with pytest.raises(UserError, match=r"'kinds' is Sequence\(.*, but a demonstration holds"):
        observation_spec(listed)


def test_the_split_does_not_change_as_a_directory_grows():
    given = ([], 0.05), ([3], 0.05), ([0, 1, 2], 0.05), ([0, 1, 2], 0.0)
    assert [split(*one)[1] for one in given] == [[], [], [2], []]
    train, valid = split(list(range(1000)), 0.05)
    assert (len(valid), sorted(train + valid)) == (50, list(range(1000)))
    assert split(list(range(500)), 0.05)[1] == [number for number in valid if number < 500]


def test_what_does_not_fit_the_environment_is_refused(written):
    def read(env_id="Picture-v0", size=(40, 48, 3), **parts):
        rgb, pose = spaces.Box(0, 255, size, np.uint8), spaces.Box(-1, 1, (3,), np.float32)
        observation = spaces.Dict({"rgb": rgb, "pose": pose, **parts})
        action = spaces.Box(-1, 1, (2,), np.float32)
        DemoReader(written, env_id=env_id, observation_space=observation, action_space=action)

    read()
    with pytest.raises(
        UserError, match=r"\(40, 48, 3\) of uint8 in it, where \(96, 96, 3\) of uint8"
    ):
        read(size=(96, 96, 3))
    with pytest.raises(UserError, match=r"obs/more is absent in it, where \(3,\) of float32 is"):
        read(more=spaces.Box(-1, 1, (3,)))
    with pytest.raises(UserError, match="was recorded in Picture-v0, but Other-v0 is needed"):
        read(env_id="Other-v0")


def replace(file, name, **contents):
    del file[name]
    file.create_dataset(name, **contents)


def relink(file, name, target, path):
    del file[name]
    file[name] = h5py.ExternalLink(target, path)


def rewrite_recording(file, old, new):
    text = file.attrs["recording"].decode().replace(old, new)
    file.attrs["recording"] = np.bytes_(text)


def claim_more(file):
    """Lengths that would fill the memory."""
    demo, steps = file["data/demo_1"], 10**10
    demo.attrs["num_samples"] = steps
    for name in ("obs/rgb", "obs/pose", "actions", "rewards", "dones"):
        sizes, dtype = demo[name].shape[1:], demo[name].dtype
        stored = {"chunks": (1, *sizes), "compression": 1, "fletcher32": True}
        replace(demo, name, shape=(steps, *sizes), dtype=dtype, **stored)


WHOLE = "it may have been cut short, damaged or be of another kind: "
MASTER, EPISODE = "demos.hdf5", "episodes/000001.hdf5"


@pytest.mark.parametrize("name", [MASTER, EPISODE])
def test_a_file_that_is_cut_short_or_gone_is_named(copied, name):
    path = copied / name
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UserError, match=f"{copied}.*{WHOLE}.*truncated file"):
        DemoReader(copied)
    path.unlink()
    with pytest.raises(UserError, match=r"there is no .*, where demonstrations should be"):
        DemoReader(copied)


REWARDS, ACTIONS, DONES = (f"data/demo_1/{name}" for name in ("rewards", "actions", "dones"))
OUTSIDE = {"shape": (3,), "dtype": "f8", "external": [("/etc/passwd", 0, h5py.h5f.UNLIMITED)]}
ODD_ACTIONS = {"data": np.zeros((3, 5), "f4"), "compression": 1, "fletcher32": True}
ANOTHER, FEWER = "is an HDF5 file of another kind", r"was recorded with env.steps = (9|12), but"
DAMAGED = [
    (MASTER, lambda f: f.attrs.pop("format"), ANOTHER),
    (MASTER, lambda f: rewrite_recording(f, '"steps": 12', '"steps": 9'), FEWER),
    (MASTER, lambda f: relink(f, "data/demo_1", "/etc/passwd", "/data"), "leads to /etc/passwd"),
    (MASTER, lambda f: f["data"].create_group("extra"), "data/extra is not a link"),
    (MASTER, lambda f: f.pop("mask/valid"), WHOLE),
    (MASTER, lambda f: replace(f, "mask/train", data=[1, 2]), "/mask/train holds int64, where"),
    (MASTER, lambda f: replace(f, "mask/valid", data="demo_1"), "/mask/valid is not a list"),
    (MASTER, lambda f: f["data"].pop("demo_2"), "has a mask that names 'demo_2', which it"),
    (EPISODE, lambda f: f.attrs.pop("format"), ANOTHER),
    (EPISODE, lambda f: rewrite_recording(f, '"steps": 12', '"steps": 9'), FEWER),
    (EPISODE, lambda f: f.pop(REWARDS), "rewards is missing"),
    (EPISODE, lambda f: relink(f, REWARDS, "/etc/passwd", "/data"), "rewards is missing"),
    (EPISODE, lambda f: replace(f, REWARDS, **OUTSIDE), "rewards is not stored as checksummed"),
    (EPISODE, claim_more, "is not stored as checksummed chunks of all its steps"),
    (EPISODE, lambda f: replace(f, ACTIONS, **ODD_ACTIONS), r"actions holds 3 of \(5,\) of float"),
    (EPISODE, lambda f: f[DONES].write_direct(np.zeros(3, int)), "dones is not 0 for all steps"),
]


@pytest.mark.parametrize(("name", "change", "message"), DAMAGED)
def test_a_file_with_other_contents_is_refused(copied, name, change, message):
    """No link out of the directory is followed, and no data are taken from outside the file."""
    with h5py.File(copied / name, "r+") as file:
        change(file)
    with pytest.raises(UserError, match=f"{copied}.*{message}"):
        DemoReader(copied)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0.5, 1.0])
def test_a_changed_byte_in_a_frame_is_noticed(copied, place):
    """The last ones are Fletcher-32 of the compressed chunk, which other programs check."""
    demo = DemoReader(copied).demos[0]
    begin, size = demo.frames["rgb"].places[4].tolist()
    flip(demo.path, begin + int(place * (size - 1)))
    reader = DemoReader(copied)
    reader.frame(0, 3)
    if place < 1:
        with pytest.raises(UserError, match=r"000000.hdf5 is damaged: frame 4 "):
            reader.frame(0, 4)
    with pytest.raises(UserError, match=r"000000.hdf5 is not a whole file"):
        verify_demo(copied, 0, RECORDING)


def test_no_changed_byte_goes_unnoticed(copied):
    """Any of 80, anywhere in a file: an error, or nothing that matters has changed."""

    def contents():
        demo = read_demo(copied, 0, RECORDING)
        frames = b"".join(frame.tobytes() for frame in demo.frames["rgb"])
        numbers = (demo.actions, demo.rewards, demo.arrays["pose"])
        return demo.seed, demo.final_info, frames, [values.tobytes() for values in numbers]

    path, expected = copied / "episodes/000000.hdf5", contents()
    whole = path.read_bytes()
    caught = 0
    for place in np.random.default_rng(0).integers(0, len(whole), 80):
        flip(path, place)
        try:
            assert contents() == expected, place
        except UserError:
            caught += 1
        path.write_bytes(whole)
    assert caught > 50


def test_verify_wants_the_seed_that_the_recording_names(copied):
    assert verify_demo(copied, 1, RECORDING) == 3
    with h5py.File(copied / "episodes/000001.hdf5", "r+") as file:
        file["data/demo_1"].attrs["seed"] = 7
    with pytest.raises(UserError, match="has the seed 7, where 6 is needed"):
        verify_demo(copied, 1, RECORDING)


def test_the_benchmark_measures_frames_of_a_directory_or_its_own(written, tmp_path):
    out = tmp_path / "figures.json"
    assert demo_frames.main([str(written), "--frames", "5", "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["shape"] == [40, 48, 3]
    assert 0 < figures["bytes"] < 40 * 48 * 3
    own = demo_frames.measure([demo_frames.draw(np.random.default_rng(0))] * 2)
    assert own["shape"] == [500, 500, 3]
    assert own["bytes"] < 20_000
