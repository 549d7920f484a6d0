"""What all memories of places share: a step is a write and then a read."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SteppedPlaces"]


class SteppedPlaces(nn.Module):
    """A memory of places on a circle of path, whose state is given and returned. Places on a torus,
    where there are such, have a last dimension of 2."""

    @property
    def is_alike(self) -> bool:
        """Whether a step is the same operations however many tokens it has."""
        return True

    def start(self, batch: int, like: Tensor) -> Any:
        """The state in which nothing is written yet, a NamedTuple of tensors (batch, ...)."""
        raise NotImplementedError

    def cleared(self, state: Any, where: Tensor) -> Any:
        """The state with nothing written in those of the batch that are told, (batch,) bool."""
        raise NotImplementedError

    def write(self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor) -> Any:
        """Forget, then take in tokens: places, shares of holes and weights from 0 to 1, each
        (batch, tokens)."""
        raise NotImplementedError

    def read(self, state: Any, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        raise NotImplementedError

    def unroll(
        self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor, asked_m: Tensor
    ) -> tuple[Tensor, Any]:
        """Steps of one episode each, tokens (batch, steps, tokens) and places that are asked for,
        (batch, steps, reads) -> shares of holes there (batch, steps, reads), and the state."""
        found = []
        parts = (part.unbind(1) for part in (at_m, holes, weights, asked_m))
        for *tokens, asked in zip(*parts, strict=True):
            if not torch.compiler.is_compiling():  # where no shape may depend on numbers
                some = tokens[2].any(0)  # tokens without weight in all of the batch go
                if torch.jit.is_tracing():  # but for one: without any, operations would be others
                    some = some | (~some.any() & (torch.arange(len(some)) == 0))
                written = some.nonzero().squeeze(-1)
                tokens = [part.index_select(1, written) for part in tokens]
            state = self.write(state, *tokens)
            found.append(self.read(state, asked))
        return torch.stack(found, 1), state
