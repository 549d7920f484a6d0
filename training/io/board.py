"""Curves for TensorBoard: an event file that is written synchronously with the run.

PyTorch's SummaryWriter writes in a separate thread, which prints a traceback and ends where the
disk is full. Here each row has been written when `add` returns, or an error is raised.
The format is TensorBoard's: length, its checksum, an `Event` message, its checksum.
"""

import io
import math
import os
import socket
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.command.errors import UserError
from training.command.files import append, writing

_VERSION = "brain.Event:2"


class Board:
    """An event file of a run directory.

    Args:
        directory: the run's.
        iteration: the one the run resumes from; later rows of earlier files are hidden.

    Raises:
        UserError: if it cannot be written, here and in every method.
    """

    def __init__(self, directory: Path, iteration: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's own imports
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        self._events, self._summaries = event_pb2, summary_pb2
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self.path = directory / name
        with writing(self.path):
            self._file = self.path.open("xb", buffering=0)
        self._record = RecordWriter
        try:
            self._write(file_version=_VERSION)
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=iteration + 1, session_log=start)
        except UserError:
            self.close()
            raise

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Add one point to each named curve; numbers that are not finite are omitted."""
        summary = self._summaries.Summary()
        for name, value in values.items():
            if math.isfinite(value):
                summary.value.add(tag=name, simple_value=value)
        self._write(step=step, summary=summary)

    def _write(self, **event: Any) -> None:
        message = self._events.Event(wall_time=time.time(), **event)
        record = io.BytesIO()
        self._record(record).write(message.SerializeToString())
        with writing(self.path):
            append(self._file, record.getvalue())

    def close(self) -> None:
        """Release the file."""
        self._file.close()
