"""Datasets of demonstrations as other programs write them, by their documentation.

An episode is a dict: `rgb` (steps, 40, 48, 3) uint8, `pose` (steps, 3) and `action` (steps, 3),
as Picture-v0 of `tests.training.picture_env` has them.
"""

import io
import json

import h5py
import numpy as np
from PIL import Image

RATE_HZ = 10


def made_episodes(count=5, seed=0):
    """Episodes of different lengths, with smooth images, as a video keeps them."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        steps = 3 + number
        level = rng.integers(20, 230, (steps, 1, 1, 3))
        ramp = np.linspace(-15, 15, 48)[None, None, :, None]
        made.append(
            {
                "rgb": np.broadcast_to(level + ramp, (steps, 40, 48, 3)).round().astype(np.uint8),
                "pose": rng.normal(size=(steps, 3)).astype(np.float32),
                "action": rng.uniform(-0.5, 0.5, (steps, 3)).astype(np.float32),
            }
        )
    return made


def write_npz(folder, episodes, split=None, rate_hz=RATE_HZ, **changes):
    """A file an episode; `split` has the folder of each."""
    for number, episode in enumerate(episodes):
        place = folder / (split[number] if split else "") / f"{number:03d}.npz"
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(place, **{**episode, **changes}, rate_hz=rate_hz)
    return folder


def write_robomimic(path, episodes, masks=None, chw=False, rate_hz=RATE_HZ, names=None):
    """https://robomimic.github.io/docs/datasets/overview.html: demo_10 follows demo_9."""
    names = names or {"rgb": "agentview_image", "pose": "robot0_eef_pos"}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        settings = {"control_freq": rate_hz, "camera_heights": 40}
        arguments = {"env_name": "Lift", "type": 1, "env_kwargs": settings}
        data.attrs["env_args"] = json.dumps(arguments)
        data.attrs["total"] = sum(len(episode["action"]) for episode in episodes)
        for number, episode in enumerate(episodes):
            group = data.create_group(f"demo_{number}")
            group.attrs["num_samples"] = len(episode["action"])
            group["actions"] = episode["action"].astype(np.float64)
            group["dones"] = np.zeros(len(episode["action"]), np.int64)
            for key, name in names.items():
                values = episode[key]
                values = np.moveaxis(values, -1, 1) if chw and values.ndim == 4 else values
                group[f"obs/{name}"] = values
                group[f"next_obs/{name}"] = values
        for name, chosen in (masks or {}).items():
            file[f"mask/{name}"] = np.array([f"demo_{number}" for number in chosen], "S")
    return path


CAMERA = "observation.images.top"


def write_lerobot(folder, episodes, version="v3.0", videos=False, codec="libsvtav1", fps=RATE_HZ,
                  splits=None, change=None):  # fmt: skip
    """meta/info.json, the episodes and their rows, as LeRobot 0.3 (v2.1) and 0.4 (v3.0) have them;
    `change` may change info before it is written."""
    import pyarrow as pa
    from pyarrow import parquet

    rows, listed, at, begin = [], [], 0, 0.0
    for number, episode in enumerate(episodes):
        steps = len(episode["action"])
        columns = {
            "observation.state": list(episode["pose"]), "action": list(episode["action"]),
            "timestamp": (np.arange(steps) / fps).astype(np.float32),
            "frame_index": np.arange(steps), "episode_index": np.full(steps, number),
            "index": at + np.arange(steps), "task_index": np.zeros(steps, np.int64),
        }  # fmt: skip
        if not videos:
            kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
            cells = [{"bytes": _png(image), "path": None} for image in episode["rgb"]]
            columns[CAMERA] = pa.array(cells, kind)
        rows.append(pa.table(columns))
        place = {"chunk_index": 0, "file_index": 0}
        row = {"episode_index": number, "tasks": ["push"], "length": steps,
               "dataset_from_index": at, "dataset_to_index": at + steps,
               **{f"data/{key}": value for key, value in place.items()}}  # fmt: skip
        if videos:
            row |= {f"videos/{CAMERA}/{key}": value for key, value in place.items()}
            row |= {f"videos/{CAMERA}/from_timestamp": begin}
        listed.append(row)
        at, begin = at + steps, begin + steps / fps
    meta, data = folder / "meta", folder / "data/chunk-000"
    for place in (meta, data):
        place.mkdir(parents=True)
    images = [episode["rgb"] for episode in episodes]
    if version == "v3.0":
        (meta / "episodes/chunk-000").mkdir(parents=True)
        parquet.write_table(
            pa.Table.from_pylist(listed), meta / "episodes/chunk-000/file-000.parquet"
        )
        parquet.write_table(pa.concat_tables(rows), data / "file-000.parquet")
        if videos:
            video = folder / f"videos/{CAMERA}/chunk-000/file-000.mp4"
            write_video(video, np.concatenate(images), fps, codec)
    else:
        lines = [{k: r[k] for k in ("episode_index", "tasks", "length")} for r in listed]
        (meta / "episodes.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        for number, table in enumerate(rows):
            parquet.write_table(table, data / f"episode_{number:06d}.parquet")
            if videos:
                video = folder / f"videos/chunk-000/{CAMERA}/episode_{number:06d}.mp4"
                write_video(video, images[number], fps, codec)
    vector = {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]}
    whole = {"dtype": "int64", "shape": [1], "names": None}
    info = {
        "codebase_version": version, "robot_type": "so100", "total_episodes": len(episodes),
        "total_frames": at, "chunks_size": 1000, "fps": fps,
        "splits": splits or {"train": f"0:{len(episodes)}"},
        "data_path": "../../elsewhere/{episode_index}", "video_path": None,
        "features": {
            CAMERA: {"dtype": "video" if videos else "image", "shape": [40, 48, 3],
                     "names": ["height", "width", "channels"]},
            "observation.state": vector, "action": vector,
            "timestamp": {**whole, "dtype": "float32"},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), whole),
        },
    }  # fmt: skip
    if change is not None:
        change(info)
    (meta / "info.json").write_text(json.dumps(info))
    return folder


def write_video(path, images, fps, codec):
    """As LeRobot encodes them: a key frame every two frames, crf 30."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    av.logging.set_level(av.logging.ERROR)
    options = {"g": "2", "crf": "30"}
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, fps, options=options)
        stream.pix_fmt, (stream.height, stream.width) = "yuv420p", images.shape[1:3]
        for image in images:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()
