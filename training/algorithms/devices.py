"""Training in one or several processes, each with a device: DistributedDataParallel under torchrun.

    torchrun --nproc_per_node 4 -m training.bc --config configs/bimanual_sweep.yaml

Without torchrun there is one process and nothing distributed.
"""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from training.io.config import UserError

_PATIENCE = timedelta(hours=12)
"""How long a process waits for the others: the first evaluates meanwhile."""


@dataclass(frozen=True)
class Group:
    """The process group, as seen from one of its processes."""

    rank: int = 0
    """Which one this is."""
    size: int = 1
    """How many there are."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes files, prints and evaluates."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """This process's device of a type: `cuda` means the GPU of its rank."""
        device = torch.device(name)
        if device.type != "cuda" or self.size == 1:
            return device
        number, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= count:
            raise UserError(
                f"device = {name!r}: process {number} of this machine needs a separate GPU, and "
                f"there are {count}; start torchrun with --nproc_per_node {count}"
            )
        torch.cuda.set_device(number)
        return torch.device("cuda", number)

    def wrap(self, policy: nn.Module) -> nn.Module:
        """A module whose gradients are the mean over the group."""
        return policy if self.size == 1 else DistributedDataParallel(policy)

    def mean(self, value: float) -> float:
        """The mean of a number over all processes."""
        if self.size == 1:
            return value
        values: list[float] = [0.0] * self.size
        distributed.all_gather_object(values, value)
        return sum(values) / self.size

    def share(self, value: Any) -> Any:
        """The first process's object, in every process."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]


def current_group() -> Group:
    """The open group of this process."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Group()
    return Group(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def open_group() -> Iterator[Group]:
    """The group that torchrun's environment variables describe."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group()
        return
    # Objects use gloo, gradients on GPUs use NCCL.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, timeout=_PATIENCE)
    if distributed.get_rank():  # it may block and has nothing to save
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield current_group()
    finally:
        # A wrapped policy still alive would keep gloo's threads beyond the interpreter's end.
        gc.collect()
        distributed.destroy_process_group()
