"""Workers opened: in this process, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from training.collect.crew import InProcessPool, Pool, Worker

__all__ = ["open_pool", "opened"]

T = TypeVar("T")
R = TypeVar("R")


def open_pool(
    make: Callable[[], Worker[T, R]], workers: int, ray_address: str | None = None
) -> Pool[T, R]:
    """A pool for `workers` tasks at the same time.

    Args:
        make: builds a worker; for other processes it is pickled, and what it refers to imported.
        workers: one without `ray_address` stays in this process.
        ray_address: of a Ray cluster; None: processes of this machine.
    """
    if ray_address is not None:
        from training.collect.ray_pool import RayPool

        return RayPool(make, workers, ray_address)
    if workers == 1:
        return InProcessPool(make)
    from training.collect.processes import ProcessPool

    return ProcessPool(make, workers)


@contextmanager
def opened(make: Callable[[], Worker[T, R]], workers: int) -> Iterator[Pool[T, R]]:
    """A pool that is closed in the end, for a process that has other work to do afterwards: it
    keeps PyTorch's threads, whose number a worker in this process sets."""
    import torch

    threads = torch.get_num_threads()
    try:
        with closing(open_pool(make, workers)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
