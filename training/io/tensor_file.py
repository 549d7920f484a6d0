"""The header of a safetensors file: the declared tensors, before any of them is read."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.command.errors import UserError
from training.command.files import check_regular, reason

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
_SEAL = "checksum"
_MOST_BYTES = 2**30
"""Size limit of a file; a policy with its optimiser has megabytes."""
_MOST_HEADER_BYTES = 2**24
"""Size limit of a header, which holds the run's configuration; it has kilobytes."""


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata, and every tensor by name, on the meta device: its shape and type alone.

    Raises UserError if it is not a safetensors file, is truncated, or exceeds the size limit.
    safetensors itself checks that the tensors fill the file without gaps or overlaps, so that they
    never need more memory than the file has bytes.
    """
    with _whole(path):
        check_regular(path)
        with path.open("rb") as raw:
            header, size = int.from_bytes(raw.read(8), "little"), path.stat().st_size
        if size > _MOST_BYTES:
            raise UserError(
                f"{path} has {size} bytes, where at most {_MOST_BYTES} are read as a checkpoint"
            )
        if _MOST_HEADER_BYTES < header < size:
            most = f"at most {_MOST_HEADER_BYTES} are read"
            raise UserError(f"{path} has a header of {header} bytes, where {most}")
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, {k: _like(path, k, v) for k, v in slices.items()}


def read_tensors(path: Path, names: list[str]) -> dict[str, Tensor]:
    """These tensors. Raises UserError if they cannot be read."""
    with _whole(path), safe_open(path, framework="pt") as file:
        # Copies: aligned as computed tensors are, and safe when the file is truncated later.
        return {name: file.get_tensor(name).clone() for name in names}


def sha256_of_tensors(path: Path) -> str:
    """SHA-256 of the bytes after the header. Raises UserError if they cannot be read."""
    with _whole(path), path.open("rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(data: bytes) -> bytes:
    """A safetensors file with metadata, as bytes, with a checksum of its header and tensors."""
    header, tensors = _split(data)
    header["__metadata__"][_SEAL] = _digest(header, tensors)
    text = _text(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + tensors


def check_seal(path: Path) -> None:
    """Raise UserError unless a file, already read by `read_header`, has the checksum that `sealed`
    wrote. Files without a checksum, of earlier versions, pass."""
    with _whole(path):
        header, tensors = _split(path.read_bytes())
    seal = header.get("__metadata__", {}).pop(_SEAL, None)
    if seal is not None and seal != _digest(header, tensors):
        raise UserError(
            f"{path} is damaged: it holds something else than was written, by the checksum in it"
        )


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def _text(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def _digest(header: dict[str, Any], tensors: bytes) -> str:
    digest = hashlib.sha256(_text(header))
    digest.update(tensors)
    return digest.hexdigest()


def _like(path: Path, name: str, part: object) -> Tensor:
    """A tensor of the shape and type that a file declares, without contents."""
    shape, dtype = part.get_shape(), part.get_dtype()  # type: ignore[attr-defined]
    try:
        return torch.empty(shape, dtype=_DTYPES[dtype], device="meta")
    except (KeyError, RuntimeError, TypeError, ValueError, OverflowError):
        raise UserError(
            f"{path}: tensor {name} is {tuple(shape)} of {dtype}, which PyTorch does not have"
        ) from None


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """UserError if the block cannot read a file as safetensors."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise UserError(
            f"{path} is not a complete safetensors file ({why}); it may have been cut short or be "
            "of another kind"
        ) from None
