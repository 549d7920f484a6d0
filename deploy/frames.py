"""Sources of observations without a simulator: a camera by OpenCV, a recording, or random numbers.

They need NumPy alone, and OpenCV for a camera. Each source is called for an observation and returns
it with its time stamp of `time.monotonic()`.
"""

import threading
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.contract_file import Port

__all__ = ["Camera", "Drawn", "Recorded", "Seen"]

Seen = tuple[dict[str, NDArray[Any]], float]
"""An observation by its parts and its time stamp, seconds of `time.monotonic()`."""
_LARGEST_BYTES = 1 << 30
_FIRST_FRAME_S = 10.0


class Drawn:
    """Random observations within the contract's bounds, to measure latency.

    Args:
        ports: inputs of the contract.
    """

    begins = False
    """Whether the last observation begins an episode."""

    def __init__(self, ports: tuple[Port, ...]) -> None:
        self._ports, self._rng = ports, np.random.default_rng(0)

    def __call__(self) -> Seen:
        """The next observation."""
        return {port.name: self._draw(port) for port in self._ports}, time.monotonic()

    def _draw(self, port: Port) -> NDArray[Any]:
        low, high = (_finite(bound, other) for bound, other in ((port.low, -1), (port.high, 1)))
        if port.dtype.kind in "iub":
            return self._rng.integers(low, high, port.shape, endpoint=True).astype(port.dtype)
        share = self._rng.random(port.shape)
        return np.clip(low + share * (high - low), low, high).astype(port.dtype)


class Recorded:
    """Observations of a file, in order and repeated.

    Args:
        path: of an .npz file that holds each input as (steps, ...).
        ports: inputs of the contract.

    Raises:
        ValueError: one sentence, for a file that does not hold them.
    """

    def __init__(self, path: Path, ports: tuple[Port, ...]) -> None:
        try:
            with zipfile.ZipFile(path) as file:
                size = sum(one.file_size for one in file.infolist())
            if size > _LARGEST_BYTES:
                raise ValueError(
                    f"{path} must unpack to at most {_LARGEST_BYTES} bytes, got {size}"
                )
            with np.load(path, allow_pickle=False) as arrays:
                self._parts = {port.name: arrays[port.name] for port in ports}
        except (OSError, KeyError, MemoryError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} must be an .npz file of each input: {error}") from None
        lengths = {len(part) if part.ndim else 0 for part in self._parts.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"{path} must hold as many steps of each input, got {sorted(lengths)}")
        (self.steps,) = lengths
        self._next = 0
        self.begins = True

    def __call__(self) -> Seen:
        """The next observation; `begins` is True if it is the first one again."""
        step, self._next = self._next, (self._next + 1) % self.steps
        self.begins = step == 0
        return {name: part[step] for name, part in self._parts.items()}, time.monotonic()


class Camera:
    """The latest frame of a live camera, or the next frame of a video, as one input.

    A thread reads a live camera, so that no frame is buffered. Frames are resized and RGB.

    Args:
        source: number, device (/dev/video0) or address (http://..., rtsp://...) of a live camera,
            or path of a video, as `cv2.VideoCapture` takes them.
        port: the input, uint8 (rows, columns, 3).
        others: the other parts of every observation.

    Raises:
        ValueError: one sentence, for an input of another shape or type, or a source without frames.
    """

    begins = False

    def __init__(self, source: int | str, port: Port, others: Mapping[str, NDArray[Any]]) -> None:
        if len(port.shape) != 3 or port.shape[2] != 3 or port.dtype != np.uint8:
            raise ValueError(
                f"an input for a camera must be uint8 (rows, columns, 3), got {port.name}, "
                f"{port.dtype} {port.shape}"
            )
        import cv2

        self._cv2, self._port, self._others = cv2, port, dict(others)
        self._capture = cv2.VideoCapture(source)
        self._live = _is_live(source)
        self._newest: Seen | None = None
        self._open = True
        if not self._capture.isOpened():
            raise ValueError(f"camera {source} cannot be opened")
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        if self._live:
            self._thread.start()

    def __call__(self) -> Seen:
        """The current observation. Raises EOFError without a frame, as at the end of a video."""
        seen = self._newest if self._live else self._read()
        end_s = time.monotonic() + _FIRST_FRAME_S
        while seen is None and self._live and self._open and time.monotonic() < end_s:
            time.sleep(0.001)
            seen = self._newest
        if seen is None:
            raise EOFError("the camera gives no more frames")
        return seen

    def close(self) -> None:
        """Release the camera."""
        self._open = False
        if self._live:
            self._thread.join()
        self._capture.release()

    def _read_on(self) -> None:
        while self._open:
            seen = self._read()
            self._open = self._open and seen is not None
            self._newest = seen or self._newest

    def _read(self) -> Seen | None:
        there, picture = self._capture.read()
        seen_s = time.monotonic()
        if not there:
            return None
        rows, columns, _ = self._port.shape
        cv2 = self._cv2
        picture = cv2.resize(picture, (columns, rows), interpolation=cv2.INTER_AREA)
        rgb = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
        return {**self._others, self._port.name: np.asarray(rgb, np.uint8)}, seen_s


def _is_live(source: int | str) -> bool:
    if isinstance(source, int):
        return True
    return Path(source).is_char_device() or ("://" in source and not source.startswith("file:"))


def _finite(bound: NDArray[Any] | None, other: int) -> Any:
    """A bound, with `other` where it is infinite or missing."""
    if bound is None:
        return other
    return np.where(np.isfinite(bound), bound, other) if bound.dtype.kind == "f" else bound
