"""Modules that can be rebuilt: their tensors are determined by the constructor's arguments.

On the meta device a module has shapes but no values, and `to_empty` allocates uninitialised memory.
Random vectors and fitted parameters are buffers, which neither an initialisation of weights nor the
state of another kind of attention sets. These modules therefore set them when they leave the meta
device.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attention.options import check_keywords, spell_out


class Rebuilt(nn.Module):
    """A module that stores its constructor's arguments and initialises itself when it leaves
    "meta".

    Tensors among the arguments are copied; modules among them must also be of this class.
    """

    _made_of: tuple[tuple[Any, ...], dict[str, Any], torch.dtype]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        spell_out(cls)

    def __new__(cls, *args: Any, **options: Any) -> Self:
        check_keywords(cls, options)
        made = super().__new__(cls)
        kept = {name: _kept(value) for name, value in options.items()}
        made.__dict__["_made_of"] = tuple(map(_kept, args)), kept, torch.get_default_dtype()
        return made

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset parameters and buffers to their values after construction: random vectors drawn
        from the seed, given tensors, and the initial values of what `fit` sets.

        It does nothing on the meta device. Raises ValueError for tensors that were given on the
        meta device.
        """
        own = {name: tensor for name, tensor in _tensors(self) if not tensor.is_meta}
        fresh = _fresh(self) if own else {}
        for name in own:
            if fresh[name].is_meta:
                raise ValueError(
                    f"{type(self).__name__} cannot reset {name}, which was given as a tensor on "
                    "the meta device, where there are no numbers"
                )
        for name, tensor in own.items():
            tensor.copy_(fresh[name])

    @torch.no_grad()
    def materialise(self, device: torch.device) -> None:
        """Initialise tensors on the meta device, on `device`; other tensors do not change.

        Raises ValueError for tensors that were given on the meta device.
        """
        missing = {name: tensor for name, tensor in _tensors(self) if tensor.is_meta}
        fresh = _fresh(self) if missing else {}
        for name in missing:
            if fresh[name].is_meta:
                raise ValueError(
                    f"the state must hold {name} of {type(self).__name__}, which was given as a "
                    "tensor on the meta device, where there are no numbers"
                )
            owner, _, leaf = name.rpartition(".")
            self.get_submodule(owner)._buffers[leaf] = fresh[name].to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast and move. Tensors from `to_empty`, or that leave the meta device in another way, are
        initialised, with NaN if there are no values, until a state is loaded."""
        before, calls = dict(_tensors(self, recurse)), _EmptyCalls()

        def noted(tensor: Tensor) -> Tensor:
            with calls:
                return fn(tensor)

        super()._apply(noted, recurse)
        own = dict(_tensors(self, recurse))
        left = [n for n, t in before.items() if not own[n].is_meta and (calls.seen or t.is_meta)]
        fresh = _fresh(self) if left else {}
        with torch.no_grad():
            for name in left:
                if not fresh[name].is_meta:
                    own[name].copy_(fresh[name])
                elif own[name].is_floating_point():
                    own[name].fill_(torch.nan)
        for part in self.modules() if left else ():
            buffers_set: Any = getattr(part, "buffers_set", None)
            if buffers_set is not None:
                buffers_set()
        return self


def _tensors(module: nn.Module, recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(recurse=recurse, remove_duplicate=False)
    yield from module.named_buffers(recurse=recurse, remove_duplicate=False)


class _EmptyCalls(TorchFunctionMode):
    """Records calls of `torch.empty_like`, by which `nn.Module.to_empty` creates uninitialised
    tensors, which a submodule cannot otherwise distinguish from moved ones."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= func is torch.empty_like
        return func(*args, **(kwargs or {}))


def _fresh(module: Rebuilt) -> dict[str, Tensor]:
    """Return the tensors of the rebuilt module in the module's dtype."""
    again = _made_again(module)
    for (_, old), (_, new) in zip(_tensors(module), _tensors(again), strict=True):
        if old.is_floating_point():
            if old.dtype != new.dtype:
                again.to(dtype=old.dtype)
            break
    return dict(_tensors(again))


def _made_again(module: Rebuilt) -> Rebuilt:
    """Create a module from the same arguments on the CPU."""
    args, options, dtype = module._made_of
    if options.get("device") is not None:
        options = {**options, "device": "cpu"}
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cpu"):
            again = {name: _again(value) for name, value in options.items()}
            return type(module)(*map(_again, args), **again)
    finally:
        torch.set_default_dtype(before)


def _kept(value: Any) -> Any:
    """Return a copy of a constructor's argument that is independent of the given tensor."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def _again(value: Any) -> Any:
    """Return the original argument, with rebuilt modules."""
    if isinstance(value, Rebuilt):
        return _made_again(value)
    if isinstance(value, list | tuple | nn.ModuleList) and any(
        isinstance(part, Rebuilt) for part in value
    ):
        return [_again(part) for part in value]
    return value
