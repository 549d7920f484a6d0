"""Linear attention as a memory: a state of fixed size with write, forget and read operations."""

from attention.memory.delta import DeltaState
from attention.memory.module import LinearMemory
from attention.sums import LinearAttentionState

__all__ = ["DeltaState", "LinearAttentionState", "LinearMemory"]
