"""Properties that are computed once for each object."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any, TypeVar

Value = TypeVar("Value")


def kept_property(compute: Callable[[Any], Value]) -> cached_property[Value]:
    """A property whose value the object keeps once it was computed, for objects of
    which a process has many.

    In Python 3.11 a ``cached_property`` has one lock for all objects: while the
    declaration of one dataset is read, everybody waits who needs that of another.
    Without it, as in later versions, two threads may compute one value.
    """
    kept = cached_property(compute)
    vars(kept)["lock"] = nullcontext()
    return kept
