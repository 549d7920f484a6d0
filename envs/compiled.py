"""Functions of few numbers, compiled.

Four legs of three joints are too few for NumPy, a call of which costs as much as twenty products,
and too many for Python's own floats.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from foveate_extras import needs

with needs("SteppingStones-v0", "sim", "numba"):
    import numba

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function of arrays, tuples and numbers at its first call, in double precision.

    What is compiled is kept on disk, and made anew where the function's own file has changed: of
    other files it may use nothing that is compiled. Where nothing can be written it is compiled in
    each process. The environment variable NUMBA_DISABLE_JIT=1 leaves it as it is.
    """
    try:
        made = numba.njit(cache=True)(function)
    except RuntimeError:  # no folder that can be written
        made = numba.njit(function)
    return cast(Function, made)
