"""Sources of observations without a simulator: a camera by OpenCV, a recording, or random numbers.

They need NumPy alone, and OpenCV for a camera. Each source is called for an observation and returns
it with its time stamp of `time.monotonic()`.
"""

import atexit
import threading
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.contract_file import Port
from deploy.model_file import check_video

Seen = tuple[dict[str, NDArray[Any]], float]
"""An observation by its parts and its time stamp, seconds of `time.monotonic()`."""
_LARGEST_BYTES = 1 << 30
_FIRST_FRAME_S = 10.0
_READ_TIMEOUT_MS = 5000  # of a camera at an address, so that its thread can be closed
_RECONNECT_S = 0.2
_LONGEST_STACK = 64


class StreamEndError(EOFError):
    """A live camera has stopped delivering frames."""


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
            if not path.is_file():  # a pipe would wait for ever
                raise ValueError("there is no such file")
            with zipfile.ZipFile(path) as file:
                size = sum(one.file_size for one in file.infolist())
            if size > _LARGEST_BYTES:
                raise ValueError(f"it must unpack to at most {_LARGEST_BYTES} bytes, got {size}")
            with np.load(path, allow_pickle=False) as arrays:
                parts = {port.name: np.atleast_1d(arrays[port.name]) for port in ports}
        except Exception as error:  # those of zipfile, zlib and NumPy have no class in common
            text = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{path} must be an .npz file of each input: {text}") from None
        self._parts: dict[str, NDArray[Any]] = parts
        lengths = {len(part) for part in parts.values()}
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

    A thread reads a live camera, so that no frame is buffered. Frames are resized; they are RGB, or
    grey where the input has one channel.

    Args:
        source: number, device (/dev/video0) or address (http://..., rtsp://...) of a live camera,
            or path of a video, as `cv2.VideoCapture` takes them.
        port: the input, uint8: (rows, columns, 3), (3, rows, columns), or with 1 or no channel; or
            a stack of such frames as its first axis, of grey ones also as its last: the frames of
            the last decisions, and the first one before those.
        others: the other parts of every observation.
        reconnect: open a live camera again when its stream ends.

    Raises:
        ValueError: one sentence, for an input of another shape or type, or a source without frames.
        ImportError: one sentence, without OpenCV.
    """

    begins = False

    def __init__(
        self,
        source: int | str,
        port: Port,
        others: Mapping[str, NDArray[Any]],
        *,
        reconnect: bool = False,
    ) -> None:
        if not takes_images(port):
            raise ValueError(
                "an input for a camera must be uint8 (rows, columns, 3), (3, rows, columns), with "
                "1 or no channel, or a stack of such frames, got "
                f"{port.name}, {port.dtype} {port.shape}"
            )
        try:
            import cv2
        except ImportError as error:
            raise ImportError(
                f"a camera is read by OpenCV, which cannot be imported ({error}): "
                "pip install opencv-python-headless"
            ) from None

        self._cv2, self._port, self._others = cv2, port, dict(others)
        self._axis, self._shape = _stack(port.shape)
        self._history: list[NDArray[Any]] = []
        self._source, self._reconnect = source, reconnect
        self._live = _is_live(source)
        if not self._live:
            check_video(Path(str(source).removeprefix("file:")))
        self._capture = self._opened()
        self._newest: Seen | None = None
        self._returned: Seen | None = None
        self._open = True
        if not self._capture.isOpened():
            raise ValueError(f"camera {source} cannot be opened")
        self._first_until_s = time.monotonic() + _FIRST_FRAME_S
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        if self._live:
            # A thread inside OpenCV must not outlive the interpreter: that ends in an abort.
            atexit.register(self.close)
            self._thread.start()

    @property
    def name(self) -> str:
        """Name of the input."""
        return self._port.name

    def __call__(self) -> Seen:
        """The current observation.

        Raises:
            StreamEndError: a live camera gives no more frames; each was returned before.
            EOFError: the video is over.
        """
        parts, seen_s = self._frame()
        if self._axis is None:
            return parts, seen_s
        frame, count = parts[self.name], self._port.shape[self._axis]
        self._history = [*(self._history or [frame] * count)[1:], frame]
        return {**parts, self.name: np.stack(self._history, self._axis)}, seen_s

    def _frame(self) -> Seen:
        if not self._live:
            seen = self._read()
            if seen is None:
                raise EOFError("the video has no more frames")
            return seen
        while self._newest is None and self._open and time.monotonic() < self._first_until_s:
            time.sleep(0.001)
        ended, seen = not self._open, self._newest
        if seen is None or (ended and seen is self._returned):
            state = "has ended" if ended else f"gives no frame for {_FIRST_FRAME_S:g} s"
            raise StreamEndError(f"the stream of camera {self._source} {state}")
        self._returned = seen
        return seen

    def close(self) -> None:
        """Release the camera, once its thread has read its last frame."""
        self._open = self._reconnect = False
        if self._live:
            atexit.unregister(self.close)
            self._thread.join()
        self._capture.release()

    def _opened(self) -> Any:
        cv2 = self._cv2
        if self._live and isinstance(self._source, str) and "://" in self._source:
            limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, int(1e3 * _FIRST_FRAME_S)]
            limits += [cv2.CAP_PROP_READ_TIMEOUT_MSEC, _READ_TIMEOUT_MS]
            capture = cv2.VideoCapture(self._source, cv2.CAP_FFMPEG, limits)
            if capture.isOpened():
                return capture
        return cv2.VideoCapture(self._source)

    def _read_on(self) -> None:
        while self._open:
            seen = self._read()
            if seen is not None:
                self._newest = seen
            elif self._reconnect:
                self._capture.release()
                time.sleep(_RECONNECT_S)
                self._capture = self._opened()
            else:
                self._open = False

    def _read(self) -> Seen | None:
        there, image = self._capture.read()
        seen_s = time.monotonic()
        if not there:
            return None
        return {**self._others, self.name: as_input(image, self._shape)}, seen_s


class Cameras:
    """Several cameras as one observation, which is as old as its oldest frame.

    Args:
        cameras: one per input.
    """

    begins = False

    def __init__(self, cameras: Sequence[Camera]) -> None:
        self._cameras = list(cameras)

    def __call__(self) -> Seen:
        """The current observation. Raises EOFError like `Camera`."""
        found = [camera() for camera in self._cameras]
        parts: dict[str, NDArray[Any]] = {}
        for camera, (seen, _) in zip(self._cameras, found, strict=True):
            parts = {**seen, **parts, camera.name: seen[camera.name]}
        return parts, min(seen_s for _, seen_s in found)

    def close(self) -> None:
        """Release all cameras."""
        for camera in self._cameras:
            camera.close()


def as_input(image: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """A frame in the size, colours and layout of an input; OpenCV resizes it.

    Args:
        image: uint8, as OpenCV reads it: (height, width), or (height, width, 3) with blue first.
        shape: (rows, columns, 3), (3, rows, columns), or with 1 or no channel.

    Returns:
        uint8 of that shape: colours are RGB.
    """
    import cv2

    first = len(shape) == 3 and shape[2] not in (1, 3)  # channels come first
    rows, columns = shape[1:] if first else shape[:2]
    image = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA)
    if image.ndim == 2:
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
    colour = len(shape) == 3 and shape[0 if first else 2] == 3
    code = cv2.COLOR_BGR2RGB if colour else cv2.COLOR_BGR2GRAY
    found = np.asarray(cv2.cvtColor(image, code), np.uint8)
    return np.ascontiguousarray(
        np.moveaxis(found, -1, 0) if first and colour else found.reshape(shape)
    )


def takes_images(port: Port) -> bool:
    """Whether frames of a camera, or stacks of them, fit an input."""
    axis, shape = _stack(port.shape)
    channels = len(shape) == 2 or (len(shape) == 3 and bool({shape[0], shape[2]} & {1, 3}))
    short = axis is None or port.shape[axis] <= _LONGEST_STACK
    return port.dtype == np.uint8 and channels and short


def _stack(shape: tuple[int, ...]) -> tuple[int | None, tuple[int, ...]]:
    """Return the axis of stacked frames, None without a stack, and the shape of a frame."""
    if len(shape) == 4:
        return 0, shape[1:]
    if len(shape) != 3 or {shape[0], shape[2]} & {1, 3}:
        return None, shape
    return (0, shape[1:]) if shape[0] <= shape[2] else (2, shape[:2])


def _is_live(source: int | str) -> bool:
    if isinstance(source, int):
        return True
    return Path(source).is_char_device() or ("://" in source and not source.startswith("file:"))


def _finite(bound: NDArray[Any] | None, other: int) -> Any:
    """A bound, with `other` where it is infinite or missing."""
    if bound is None:
        return other
    return np.where(np.isfinite(bound), bound, other) if bound.dtype.kind == "f" else bound
