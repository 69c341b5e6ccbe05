"""Caches what a read transaction has read, whose snapshot never changes, so that it reads every fact once."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from sqlalchemy.orm import Session

Value = TypeVar("Value")
_MEMORY = "snapshot"


def begin(session: Session) -> None:
    """Starts the memory of a read transaction on one snapshot."""
    session.info[_MEMORY] = {}


def remembered(session: Session, key: Hashable, read: Callable[[], Value]) -> Value:
    """What ``read`` returned when the read transaction first asked for ``key``. A write transaction reads each time."""
    memory: dict[Hashable, Value] | None = session.info.get(_MEMORY)
    if memory is None:
        return read()
    if key not in memory:
        memory[key] = read()
    return memory[key]


def remember(session: Session, key: Hashable, value: object) -> None:
    """Stores what the read transaction has read for ``key`` beside something else."""
    session.info[_MEMORY][key] = value
