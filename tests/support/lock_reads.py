"""Records what the write transactions of a use case read before they lock rows."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

import app
from app.db.database import ACCESS
from app.ledger import control

_APP = Path(app.__file__).parent
_LOCKS = re.compile(r"FROM (\w+).* FOR (NO KEY UPDATE|UPDATE|SHARE|KEY SHARE)", re.S)
_NAMES = re.compile(r"INSERT INTO (datasets|populations)\b")
_READS = re.compile(r"(SELECT|WITH)\b.*\bFROM\b", re.S)


@contextmanager
def recorded(engine: Engine) -> Iterator[list[str]]:
    """The write transactions of the block on PostgreSQL that lock anything, in order,
    known when the block ends.

    Each is one text of words up to its last lock, without those that repeat between two
    locks: ``datasets!`` for a lock of rows that the transaction has not locked,
    ``key!`` for that of a key's authority, ``datasets+!`` for a new row, whose unique
    name others wait for, and for every other read the function that sends it. The
    control chain, which is locked last, is left out.
    """
    transactions: list[_Transaction] = []
    result: list[str] = []

    def begin(connection: Any) -> None:
        if _writes(connection):
            transactions.append(_Transaction())

    def note(connection: Any, _cursor: Any, *sent: Any) -> None:
        if _writes(connection):
            transactions[-1].note(*sent[:2])

    event.listen(engine, "begin", begin)
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield result
    finally:
        event.remove(engine, "begin", begin)
        event.remove(engine, "before_cursor_execute", note)
    result += filter(None, (each.until_last_lock() for each in transactions))


class _Transaction:
    """The words of one write transaction; a thread has at most one at a time."""

    def __init__(self) -> None:
        self._locked = {("accounts", control.CHAIN)}
        self._words: list[str] = []
        self._n_at_lock = 0

    def note(self, statement: str, given: Any) -> None:
        """Adds the word of a statement, if it reads or locks."""
        if "pg_advisory" in statement:
            self._lock("key")
        elif (lock := _LOCKS.search(statement)) is not None:
            rows = {(lock[1], str(value)) for value in given.values()}
            if " IN (" not in statement and not rows:
                rows = {(lock[1], "all")}  # and not those of an empty list
            if not rows <= self._locked:
                self._lock(lock[1])
            self._locked |= rows
        elif (new := _NAMES.match(statement)) is not None:
            self._lock(f"{new[1]}+")
        elif _READS.match(statement):
            sender = _sender()
            if sender not in self._words[self._n_at_lock :]:
                self._words.append(sender)

    def _lock(self, what: str) -> None:
        self._words.append(f"{what}!")
        self._n_at_lock = len(self._words)

    def until_last_lock(self) -> str:
        """The words up to the last lock; nothing without a lock."""
        return " ".join(self._words[: self._n_at_lock])


def _writes(connection: Any) -> bool:
    return bool(connection.get_execution_options().get(ACCESS) == "write")


def _sender() -> str:
    """The innermost function of the product, outside ``app.db``, that runs now."""
    frame = sys._getframe(1)
    while True:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_APP) and not file.is_relative_to(_APP / "db"):
            return f"{file.stem}.{frame.f_code.co_name}"
        assert frame.f_back is not None, "every statement comes from the product"
        frame = frame.f_back
