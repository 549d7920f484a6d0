"""Bounds on the cost of a block, independent of other processes."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cheap(seconds: float) -> Iterator[None]:
    """Check that a block takes less than 200 MB and less than the given processor time."""
    before_kib, began_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - began_s < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 200 * 2**10
