"""Linear attention as a memory: a state of fixed size with write, forget and read operations."""

from typing import TYPE_CHECKING, Any

from attention.memory.delta import DeltaState
from attention.sums import LinearAttentionState

if TYPE_CHECKING:
    from attention.memory.module import LinearMemory

__all__ = ["DeltaState", "LinearAttentionState", "LinearMemory"]


def __getattr__(name: str) -> Any:
    """Import the module, which needs all feature maps, on first use."""
    if name != "LinearMemory":
        raise AttributeError(f"module 'attention.memory' has no attribute {name!r}")
    from attention.memory.module import LinearMemory

    globals()[name] = LinearMemory
    return LinearMemory
