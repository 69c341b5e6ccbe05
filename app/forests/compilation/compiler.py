"""Compiles functions with Numba under fixed options. No other module imports Numba.

A loop runs in one thread and releases the interpreter lock. ``parallel=True`` is not used: with one threading layer it
kills a forked child, with another it aborts on concurrent callers. Callers run threads over blocks of rows instead.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from app.forests.compilation import code_cache

code_cache.choose()

import numba  # noqa: E402 - it reads its cache folder when it is imported

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MachineType: TypeAlias = Any

integer: MachineType = numba.int64
unsigned: MachineType = numba.uint64


def read(element: str, n_axes: int) -> MachineType:
    """The type of an array that the loop only reads. The caller's array may be writable or not."""
    return numba.types.Array(getattr(numba, element), n_axes, "C", readonly=True)


def written(element: str, n_axes: int) -> MachineType:
    """The type of an array that the loop writes to."""
    return numba.types.Array(getattr(numba, element), n_axes, "C")


def pair(first: MachineType, second: MachineType) -> MachineType:
    """The type of a tuple of two arguments."""
    return cast(MachineType, numba.types.Tuple)((first, second))


def triple(first: MachineType, second: MachineType, third: MachineType) -> MachineType:
    """The type of a tuple of three arguments."""
    return cast(MachineType, numba.types.Tuple)((first, second, third))


def integers(count: int) -> MachineType:
    """The type of a tuple of so many integers."""
    return cast(MachineType, numba.types.UniTuple)(numba.int64, count)


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compiles a helper function for the loops of its file.

    Numba renews the stored code of a loop only when the loop's own file changes. So a compiled function calls only
    compiled functions of its own file.
    """
    return cast(Callable[Arguments, Result], numba.njit(nogil=True, cache=True)(function))


def compiled_for(*types: MachineType) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Compiles a loop for exactly these argument types when its module is imported, or loads its stored code.

    Without fixed types, Numba would compile again in the middle of a request for an array that is read-only or
    unaligned. Other types raise ``TypeError``.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        return cast(Callable[Arguments, Result], numba.njit([types], nogil=True, cache=True)(function))

    return decorate
