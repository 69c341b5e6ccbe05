"""Values of the functions that are generated from the proofs, and Python's own.

A value of :mod:`tests.support.checked_ledger` is a tuple: a constructor and what it
takes.
"""

import sys
from collections.abc import Iterable
from functools import cache, partial
from types import ModuleType
from typing import Any


def listed(items: Iterable[Any]) -> Any:
    """A list."""
    result: Any = ("Nil",)
    for item in reversed(list(items)):
        result = ("Cons", item, result)
    return result


def some(numbers: Iterable[int]) -> Any:
    """A list of numbers from 0 that is there; ``("None",)`` is one that is not."""
    return ("Some", listed(map(natural, numbers)))


@cache
def natural(value: int) -> Any:
    """A number from 0, in unary."""
    result: Any = ("O",)
    for _ in range(value):
        result = ("S", result)
    return result


def size(value: Any) -> int:
    """The number of a :func:`natural`."""
    steps = 0
    while value[0] == "S":
        steps, value = steps + 1, value[1]
    return steps


def integer(value: int) -> Any:
    """A whole number, in binary."""
    if value == 0:
        return ("Z0",)
    digits: Any = ("XH",)  # the first digit is inmost
    for digit in f"{abs(value):b}"[1:]:
        digits = ("XI" if digit == "1" else "XO", digits)
    return ("Zpos" if value > 0 else "Zneg", digits)


def number(value: Any) -> int:
    """The number of an :func:`integer`."""
    if value[0] == "Z0":
        return 0
    digits, text = value[1], ""
    while digits[0] != "XH":
        digits, text = digits[1], ("1" if digits[0] == "XI" else "0") + text
    return int("1" + text, 2) * (1 if value[0] == "Zpos" else -1)


class Deep:
    """The functions of a module whose calls nest as deep as numbers and lists are long.

    The limit of Python is higher during a call alone: with a high one, a deep text ends
    a parser that is written in C with a crash of the process, and not with an error.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return partial(self._called, getattr(self._module, name))

    @staticmethod
    def _called(function: Any, *arguments: Any) -> Any:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, 100_000))
        try:
            return function(*arguments)
        finally:
            sys.setrecursionlimit(usual)
