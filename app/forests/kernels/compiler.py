"""The one door to Numba: its options, and where compiled code is kept.

Loops are compiled for one thread each and release the interpreter lock: ``parallel=True`` kills a forked child with
one threading layer and aborts on concurrent callers with another. Callers put threads over blocks of rows instead.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from app.forests.kernels import code_cache

code_cache.choose()

import numba  # noqa: E402 - it reads its cache folder when it is imported

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compiles a function at its first call, or loads what an earlier process compiled.

    The stored code is renewed when the file of the function changes, not when another file does. So a compiled
    function calls only compiled functions of its own file.
    """
    return cast(Callable[Arguments, Result], numba.njit(nogil=True, cache=True)(function))
