"""Named parts of an inference step, so that a profiler can attribute the work to them.

    with component("projection"):
        p = u @ omega.mT

pushes a name on a plain list. It takes 0.3 us per block; `torch.profiler.record_function` takes 6
us even without a profiler (torch 2.13, one core). A `TorchDispatchMode` reads `current_component()`
for each operation. The list is shared by all threads, so measure with a single thread.
"""

_active: list[str] = []


class component:
    """Context manager that attributes the operations inside it to `name`; the innermost name
    counts.

    Create it in the `with` statement: torch.compile cannot trace an object that was created
    elsewhere.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        _active.append(self.name)

    def __exit__(self, *_: object) -> None:
        _active.pop()


_watchers: list[object] = []


class watched:
    """Context manager for observers of components. Compiled forms, which have no components, are
    not used inside it."""

    def __enter__(self) -> None:
        _watchers.append(self)

    def __exit__(self, *_: object) -> None:
        _watchers.remove(self)


def is_watched() -> bool:
    """Whether components are currently observed."""
    return bool(_watchers)


def current_component() -> str | None:
    """Name of the innermost open `component`, or None outside all of them."""
    return _active[-1] if _active else None


PROJECTION = "projection"
"""Products with random vectors, and squared norms."""
EXPONENTIALS = "exponentials"
"""Element-wise functions that turn projections into features or scores: exp, sin, cos, sign."""
SCORE = "score"
"""Products between features, or between queries and keys."""
