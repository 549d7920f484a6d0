"""Former path of `training.runner`."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from training.runner import *  # noqa: F403
from training.runner import Algorithm

__all__ = ["Job"]


class Job(Algorithm[Any]):
    """A run whose trainer has a custom training loop (`training.trainers.trainer.Trainer`)."""

    @contextmanager
    def opened(
        self, make: Callable[[Any], Any], run: Path, iteration: int
    ) -> Iterator[tuple[Any, Any]]:
        """Worker pool and log together."""
        with closing(self.open_pool(make)) as pool, closing(self.open_log(run, iteration)) as log:
            yield pool, log
