"""What a test may cost, whatever runs beside it."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cheap(seconds: float) -> Iterator[None]:
    """Checks that a block takes less than 200 MB, and less than so much processor time."""
    before_kib, began_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - began_s < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 200 * 2**10
