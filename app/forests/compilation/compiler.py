"""Compiles functions with Numba under fixed options. No other module imports Numba.

Loops are compiled for one thread each and release the interpreter lock: ``parallel=True`` kills a forked child with
one threading layer and aborts on concurrent callers with another. Callers put threads over blocks of rows instead.
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
    """An array that the loop only reads. The caller's array may be writable or not."""
    return numba.types.Array(getattr(numba, element), n_axes, "C", readonly=True)


def written(element: str, n_axes: int) -> MachineType:
    """An array that the loop writes to."""
    return numba.types.Array(getattr(numba, element), n_axes, "C")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compiles a function into the loops of its file that call it.

    The stored code of a loop is renewed when its own file changes, not when another file does. So a compiled function
    calls only compiled functions of its own file.
    """
    return cast(Callable[Arguments, Result], numba.njit(nogil=True, cache=True)(function))


def compiled_for(*types: MachineType) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Compiles a loop for exactly these arguments, when its module is imported, or loads what was compiled before.

    One form only: Numba would otherwise compile again, in the middle of a request, for an array that happens to be
    read-only or unaligned. Other types are refused with ``TypeError``.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        return cast(Callable[Arguments, Result], numba.njit([types], nogil=True, cache=True)(function))

    return decorate
