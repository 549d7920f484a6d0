"""Peak memory of tensors that a computation makes, exactly and alike on every machine.

Counted are the storages of all results of PyTorch operations while any tensor holds them; a
kernel's own scratch space is not seen. Gradients must be off, so that nothing is kept in a graph.
"""

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _LiveStorages(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.holders: Counter[int] = Counter()
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.peak = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if _is(t)}
        result = function(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if not _is(t):
                continue
            storage = t.untyped_storage()
            pointer = storage.data_ptr()
            if pointer == 0 or (pointer in given and pointer not in self.sizes):
                continue
            if pointer not in self.sizes:
                self.sizes[pointer] = storage.nbytes()
                self.live += storage.nbytes()
            self.holders[pointer] += 1
            weakref.finalize(t, self._drop, pointer)
        self.peak = max(self.peak, self.live)
        return result

    def _drop(self, pointer: int) -> None:
        self.holders[pointer] -= 1
        if self.holders[pointer] == 0:
            self.live -= self.sizes.pop(pointer)


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


@torch.no_grad()
def peak_bytes(compute: Callable[[], Any]) -> int:
    """The most bytes alive at once in tensors that `compute` made, its result included."""
    with _LiveStorages() as storages:
        compute()
    return storages.peak
