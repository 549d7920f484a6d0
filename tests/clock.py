"""A simulated clock for tests."""


class Clock:
    """Replacement of the module `time`: time advances by sleeping, and by 10 us per query."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        self.now_s += 1e-5
        return self.now_s

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def thread_time_ns(self) -> int:
        return int(1e9 * self.now_s)
