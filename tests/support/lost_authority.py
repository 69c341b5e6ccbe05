"""Takes a caller's authority away at the last moment before a write transaction of its
request.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import current_thread
from typing import Literal

import pytest
from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.access import keys
from app.access.tables import GrantRow
from app.core import stamps
from app.db.database import Database

Loss = Literal["key", "roles", "grants"]


@dataclass
class Writes:
    """Counts the write transactions that a server has begun."""

    n: int = 0


@contextmanager
def lost_before_write(
    database: Database, key_id: str, loss: Loss, *, write: int
) -> Iterator[Writes]:
    """Revokes a key, its roles or its grants between the beginning of a request and its
    ``write``-th transaction.

    Every check that the request passed before the transaction is out of date then.
    Requests use the database in AnyIO's threads; the server's periodic tasks, which
    belong to no request, in threads of their own.
    """
    begin, writes = database.write, Writes()

    def counted() -> AbstractContextManager[Session]:
        if not current_thread().name.startswith("AnyIO"):
            return begin()
        writes.n += 1
        if writes.n == write:
            with begin() as session:
                _take(session, key_id, loss)
        return begin()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "write", counted)
        yield writes


def _take(session: Session, key_id: str, loss: Loss) -> None:
    if loss == "key":
        keys.find(session, key_id).revoked_at = stamps.now()
    elif loss == "roles":
        keys.find(session, key_id).roles = []
    else:
        session.execute(delete(GrantRow).where(GrantRow.key_id == key_id))
