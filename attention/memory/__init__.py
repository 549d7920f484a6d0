"""Linear attention as a memory: a state of fixed size that is written, forgotten and read."""

from attention.memory.delta import DeltaState
from attention.memory.module import LinearMemory
from attention.sums import LinearAttentionState

__all__ = ["DeltaState", "LinearAttentionState", "LinearMemory"]
