"""Notes which keys were used, to the hour, and writes the notes to the keys' rows in batches.

A request does not write: it would wait for the write lock, and one key can send thousands of requests in a second.
"""

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from app.access.tables import KeyRow
from app.core import limits

_HOUR = timedelta(hours=1)


class LastUses:
    """The uses of keys that one process has noted and not written yet. Threads may share an instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, datetime] = {}
        self._written: dict[str, datetime] = {}

    def note(self, key_id: str, *, at: datetime) -> None:
        """Notes a use of a key at the beginning of its hour."""
        last = self._noted.get(key_id) or self._written.get(key_id)
        if last is not None and last <= at < last + _HOUR:
            return
        hour = at.replace(minute=0, second=0, microsecond=0)
        with self._lock:
            if self._written.get(key_id) != hour:
                self._noted[key_id] = hour

    def take(self) -> Mapping[str, datetime]:
        """Returns notes that are not written yet, by key: as many as one short transaction can write."""
        with self._lock:
            return dict(islice(self._noted.items(), limits.MAX_PAGE_SIZE))

    def forget(self, written: Mapping[str, datetime]) -> None:
        """Drops notes that were written."""
        with self._lock:
            self._written = {**{key: at for key, at in self._written.items() if at >= max(written.values())}, **written}
            self._noted = {key: at for key, at in self._noted.items() if written.get(key) != at}


def write(session: Session, uses: Mapping[str, datetime]) -> None:
    """Writes uses to the keys' rows, in order of id. A later use that another process wrote stays."""
    for key_id, at in sorted(uses.items()):
        is_later = or_(KeyRow.last_used_at.is_(None), KeyRow.last_used_at < at)
        session.execute(update(KeyRow).where(KeyRow.id == key_id, is_later).values(last_used_at=at))
