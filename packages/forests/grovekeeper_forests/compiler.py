"""Compiles functions with Numba under fixed options. No other module imports Numba.

A loop runs in one thread and releases the interpreter lock. ``parallel=True`` is not
used: with one threading layer it kills a forked child, with another it aborts on
concurrent callers. Callers run threads over blocks of rows instead.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from grovekeeper_forests import code_cache

# Numba reads the folder of its cache once, when it is imported, so the choice comes
# first. Without it, an account that may write neither to the package nor to its home
# compiles nothing.
code_cache.choose()

import numba  # noqa: E402
from numba.extending import register_jitable  # noqa: E402

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MachineType = Any

integer: MachineType = numba.int64
unsigned: MachineType = numba.uint64
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
"""No C program calls a loop, and the wrapper for C takes as long to compile as a short
loop.
"""


def read(element: str, n_axes: int) -> MachineType:
    """The type of an array that the loop only reads. The caller's array may be writable
    or not.
    """
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

    Numba renews the stored code of a loop only when the loop's own file changes. So a
    compiled function calls only compiled functions of its own file. The code of a loop
    contains its helpers, so helpers are not stored. Python code gets the function as it
    is: a call from Python would need a wrapper around every helper, slow to compile.
    """
    return register_jitable(**_OPTIONS)(function)


def compiled_for(
    *types: MachineType,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Compiles a loop for exactly these argument types when its module is imported, or
    loads its stored code.

    Without fixed types, Numba would compile again in the middle of a request for an
    array that is read-only or unaligned. Other types raise ``TypeError``.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        loop = numba.njit([types], cache=True, **_OPTIONS)(function)
        return cast(Callable[Arguments, Result], loop)

    return decorate
