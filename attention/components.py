"""Names for the parts of an inference step, so that an observer can say where the work went.

    with component("projection"):
        p = u @ omega.mT

pushes a name on a plain list: 0.3 us a block, where `torch.profiler.record_function` takes 6 us
even when nothing listens (torch 2.13, one core). A `TorchDispatchMode` reads `current_component()`
as each operation passes. The list is shared by all threads, so measure with one.
"""

_active: list[str] = []


class component:
    """Context manager: operations inside belong to `name`; the innermost name counts.

    Make one where it is entered: torch.compile traces that, and not an object kept elsewhere.
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
    """Context manager: an observer reads components; compiled forms, which have none, wait."""

    def __enter__(self) -> None:
        _watchers.append(self)

    def __exit__(self, *_: object) -> None:
        _watchers.remove(self)


def is_watched() -> bool:
    """Whether an observer reads components now."""
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
