"""Time to write and to read a frame of a demonstration, and its size.

    python -m benchmarks.demo_frames [DIR] [--frames N] [--json FILE]

The frames are those of recorded demonstrations in DIR, else drawn: a flat background, polygons and
30 discs, 500 x 500 x 3. They are written by the recorder's own writer and read in random order, by
`DemoReader` and, to compare, by h5py's `dataset[step]`. Files are in the system's cache by then.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray

from experiments import figure
from experiments.figure import Arguments
from training.analysis.arguments import positive
from training.demonstrations.format import ArraySpec, EpisodeWriter, Recording, write_master
from training.demonstrations.reader import DemoReader

_SIZE = 500


def draw(rng: np.random.Generator) -> NDArray[np.uint8]:
    """An image (500, 500, 3) of the kind that a simulator's flat colours give."""
    image = np.full((_SIZE, _SIZE, 3), (203, 191, 178), np.uint8)
    for _ in range(12):
        corners = rng.uniform(0, _SIZE, 2) + rng.uniform(-60, 60, (6, 2))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        cv2.fillPoly(image, [corners.astype(np.int32)], colour)
    for x, y in rng.uniform(20, _SIZE - 20, (30, 2)):
        for radius in range(8, 0, -1):
            cv2.circle(image, (round(x), round(y)), radius, (255 - 12 * radius, 20, 20), -1)
    return image


def _frames(directory: str | None, count: int) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(0)
    if directory is None:
        return [draw(rng) for _ in range(count)]
    reader = DemoReader(directory)
    chosen = rng.integers(0, len(reader), count).tolist()
    return [reader.frame(i, int(rng.integers(len(reader.demos[i])))) for i in chosen]


def _ms(work: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Milliseconds for one of them, on average."""
    began = time.perf_counter()
    for item in items:
        work(item)
    return 1e3 * (time.perf_counter() - began) / len(items)


def measure(frames: list[NDArray[np.uint8]]) -> dict[str, Any]:
    """The figures, from a demonstration of these frames in a temporary directory."""
    spec = ArraySpec(frames[0].shape, frames[0].dtype.name)
    number = ArraySpec((1,), "float32")
    recording = Recording("frames", {}, 0, -1, 0.0, {"rgb": spec}, number, {})
    order = np.random.default_rng(1).permutation(len(frames)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "episodes").mkdir()
        writer = EpisodeWriter(recording, 0)
        write_ms = _ms(lambda frame: writer.add({"rgb": frame}, np.zeros(1), 0.0), frames)
        writer.save(directory, 0, {})
        write_master(directory, recording, {0: len(frames)}, 0.0)
        stored = DemoReader(directory).demos[0].frames["rgb"]
        read_ms = _ms(stored.__getitem__, order)
        with h5py.File(stored.path) as file:
            dataset = file["data/demo_0/obs/rgb"]
            h5py_ms = _ms(dataset.__getitem__, order)
        assert all((stored[i] == frame).all() for i, frame in enumerate(frames))
        return {
            "frames": len(frames),
            "shape": list(spec.shape),
            "bytes": float(stored.places[:, 1].mean()),
            "write_ms": write_ms,
            "read_ms": read_ms,
            "read_by_h5py_ms": h5py_ms,
        }


def run(arguments: Arguments) -> dict[str, Any]:
    """Measure and print."""
    figures = measure(_frames(arguments.directory, arguments.frames))
    text = (
        "{frames} frames {shape}: {kb:.1f} kB, write {write_ms:.2f} ms, read {read_ms:.2f} ms "
        "(by h5py {read_by_h5py_ms:.2f} ms)"
    )
    shape = tuple(figures["shape"])
    print(text.format(**{**figures, "shape": shape, "kb": figures["bytes"] / 1e3}))
    return figures


main = figure.file_command(
    run,
    figure.option("directory", nargs="?", metavar="DIR", help="of demonstrations"),
    figure.option("--frames", type=positive, default=200, help="default %(default)s"),
    file="--json",
)
