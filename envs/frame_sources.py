"""Sources of recorded or live frames: a camera, a video, an array file, a folder of images.

Frames are read one at a time, and the size of a frame is known before it is read: an untrusted file
runs no code and does not exhaust memory.
"""

import math
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[Any]
MOST_PIXELS = 2**25
"""Largest number of elements of one frame, more than any camera has."""
_NOT_A_VIDEO = "is not a readable video"


def frames_of(source: int | str | Path, array: str | None = None) -> Generator[Frame]:
    """Yield the frames of a source without conversion: (height, width), (height, width, 3) red
    first, or, of an array file, frames of any shape.

    Args:
        source: number of a camera; a video; an .npz or .npy of frames (time first); or a folder of
            .png and .npy files, a frame each, in the order of their names.
        array: name of the array in an .npz; None: the only one.

    Raises:
        ValueError: one sentence, when a frame is read from a source that is missing, damaged or of
        another kind.
    """
    if isinstance(source, int):
        yield from _captured(source, f"camera {source}")
        return
    path = Path(source)
    if path.is_dir():
        yield from _in_folder(path)
    elif not path.is_file():
        raise ValueError(f"there is no file, folder or camera {source}")
    elif path.suffix.lower() == ".npz":
        yield from _in_npz(path, array)
    elif path.suffix.lower() == ".npy":
        with _readable(path), path.open("rb") as file:
            yield from _in_array(file, str(path))
    else:
        with _readable(path), path.open("rb") as file:
            start = file.read(12)
        if not (start[:4] in (b"\x1aE\xdf\xa3", b"RIFF") or start[4:8] == b"ftyp"):
            raise ValueError(f"{path} {_NOT_A_VIDEO}: .mp4, .mov, .webm, .mkv or .avi")
        yield from _captured(str(path.absolute()), str(path))


def _captured(source: int | str, name: str) -> Generator[Frame]:
    import cv2

    backend = cv2.CAP_ANY if isinstance(source, int) else cv2.CAP_FFMPEG
    capture = cv2.VideoCapture(source, backend)
    try:
        if not capture.isOpened():
            what = "cannot be opened" if isinstance(source, int) else _NOT_A_VIDEO
            raise ValueError(f"{name} {what}")
        sides = (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH)
        _check_size(tuple(int(capture.get(side)) for side in sides), name)
        capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # of a camera the newest frame, not the oldest
        count = 0
        while True:
            there, frame = capture.read()
            if not there:
                break
            count += 1
            yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        if not count:
            raise ValueError(f"{name} {_NOT_A_VIDEO}: it has no frame")
    finally:
        capture.release()


def _in_folder(folder: Path) -> Generator[Frame]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".png", ".npy"))
    if not files:
        raise ValueError(f"{folder} holds neither .png nor .npy files, a frame each")
    for path in files:
        if path.suffix.lower() == ".png":
            yield _png(path)
        else:
            with _readable(path), path.open("rb") as file:
                shape, dtype = _header(file, str(path))
                yield _numbers(file, shape, dtype, str(path))


def _png(path: Path) -> Frame:
    import cv2

    with _readable(path), path.open("rb") as file:
        start = file.read(24)
    if len(start) < 24 or start[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError(f"{path} is no PNG")
    width, height = struct.unpack(">II", start[16:24])
    _check_size((height, width), str(path))
    frame = cv2.imread(str(path), cv2.IMREAD_ANYDEPTH | cv2.IMREAD_ANYCOLOR)
    if frame is None:
        raise ValueError(f"{path} is a damaged PNG")
    return cv2.cvtColor(frame, cv2.COLOR_BGR2RGB) if frame.ndim == 3 else frame


def _in_npz(path: Path, array: str | None) -> Generator[Frame]:
    with _readable(path), zipfile.ZipFile(path) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
        chosen = array if array is not None else names[0] if len(names) == 1 else None
        if chosen not in names:
            raise ValueError(
                f"{path} holds the arrays {', '.join(names) or 'none'}: name one of them, "
                f"got {array}"
            )
        with archive.open(f"{chosen}.npy") as file:
            yield from _in_array(file, f"{path}, {chosen}")


def _in_array(file: Any, name: str) -> Generator[Frame]:
    (count, *shape), dtype = _header(file, name)
    if not count:
        raise ValueError(f"{name} has no frame")
    for _ in range(count):
        yield _numbers(file, tuple(shape), dtype, name)


def _header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array that follows."""
    npy = np.lib.format
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has version {version} of .npy, which is not supported")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.kind not in "uif" or fortran or len(shape) < 2:
        order = "in Fortran's order" if fortran else f"of {dtype}"
        raise ValueError(f"{name} must hold numbers in C order, time first, got {shape} {order}")
    return shape, dtype


def _numbers(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Frame:
    _check_size(shape, name)
    size = math.prod(shape) * dtype.itemsize
    data = file.read(size)
    if len(data) != size:
        raise ValueError(f"{name} is cut short: {len(data)} bytes are left of a frame of {size}")
    return np.frombuffer(data, dtype).reshape(shape)


def _check_size(shape: tuple[int, ...], name: str) -> None:
    if not 0 < math.prod(shape) <= MOST_PIXELS:
        raise ValueError(
            f"{name} has frames of {' x '.join(map(str, shape))}, where at most {MOST_PIXELS} "
            "numbers are read"
        )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of reading as one sentence."""
    try:
        yield
    except ValueError as error:
        text = str(error).partition("\n")[0]
        raise ValueError(text if str(path) in text else f"{path} is damaged: {text}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, KeyError, NotImplementedError,
            RuntimeError, struct.error, zlib.error, OverflowError) as error:  # fmt: skip
        raise ValueError(f"{path} is damaged, or of another kind: {error}") from None
