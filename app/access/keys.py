"""Creates, authenticates, rotates and lists access keys, and caches what a process has
read about callers and models.

A key is ``<id>.<secret>``; only a hash of the secret is stored.

The cache lives for less than a second, so that predictions read no database. Whatever
takes authority away answers :data:`limits.REVOCATION_S` after its commit
(:func:`wait_for_revocation`). An entry lives for less, counted from before it was read.
So a request that begins after the answer finds nothing in any process that was read
before the commit (docs/adr/0038-predictions-use-cached-authority.md).
"""

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.access.tables import KeyRow, is_working
from app.core import limits, stamps
from app.core.errors import Unauthenticated
from app.db.base import find_row
from app.db.database import transaction_time

_HOUR = timedelta(hours=1)
_KEY = re.compile(r"([a-z0-9_]{4,32})\.([A-Za-z0-9_-]{43,512})", re.ASCII)

Value = TypeVar("Value")
# A revocation may be answered by another machine while this one sleeps. On Linux,
# CLOCK_BOOTTIME counts the seconds of sleep; CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW do
# not. macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC_RAW is mach_continuous_time,
# which counts them (clock_gettime(3): only the CLOCK_UPTIME clocks stop). Python's
# time.monotonic() stops on both systems.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC_RAW)
_SHARE_OF_WAIT = 0.95
"""Life of an entry as a share of the wait, because the clocks of two machines run at
slightly different rates.
"""


class NotAKey(ValueError):
    """The text does not have the form of a key."""


@dataclass(frozen=True)
class NewKey:
    """A new key with its secret, which is not stored."""

    id: str
    text: str


def split(key: str) -> tuple[str, str]:
    """Splits a key's text into id and secret.

    Raises:
        NotAKey: the text has another form.
    """
    matched = _KEY.fullmatch(key)
    if matched is None:
        raise NotAKey
    return matched[1], matched[2]


def create(
    session: Session,
    *,
    name: str,
    roles: Sequence[Role],
    expires_at: datetime | None = None,
) -> NewKey:
    """Creates a key whose secret has 256 random bits."""
    key_id, secret = stamps.new(stamps.KEY), _new_secret()
    row = add(session, key_id=key_id, secret=secret, name=name, roles=roles)
    row.expires_at = expires_at
    return NewKey(key_id, f"{key_id}.{secret}")


def add(
    session: Session,
    *,
    key_id: str,
    secret: str,
    name: str,
    roles: Sequence[Role],
) -> KeyRow:
    """Stores a key whose secret the caller chose, and which does not expire."""
    row = KeyRow(
        id=key_id,
        name=name,
        secret_sha256=_digest(secret),
        roles=sorted({role.value for role in roles}),
        created_at=transaction_time(session),
    )
    session.add(row)
    session.flush()
    return row


def rotate(row: KeyRow, *, at: datetime) -> NewKey:
    """Replaces the secret of a key. The id stays, and with it grants, jobs and stored
    answers.
    """
    secret = _new_secret()
    row.secret_sha256, row.rotated_at = _digest(secret), at
    return NewKey(row.id, f"{row.id}.{secret}")


def authenticate(session: Session, key: str) -> Principal:
    """Authenticates a caller by the text of its key.

    Raises:
        Unauthenticated: the key is malformed, unknown, wrong, expired or revoked; the
            error does not say which.
    """
    try:
        key_id, secret = split(key)
    except NotAKey:
        raise Unauthenticated from None
    row = session.get(KeyRow, key_id)
    if not secret_matches(row, secret):
        raise Unauthenticated
    return grants.authority(session, row)


def end_sessions(session: Session, key_id: str) -> None:
    """Ends every session that began with a key: each names the number of times that
    they were ended before.
    """
    ended = (
        update(KeyRow)
        .where(KeyRow.id == key_id)
        .values(sign_outs=func.coalesce(KeyRow.sign_outs, 0) + 1)
    )
    session.execute(ended.execution_options(synchronize_session=False))


def find(session: Session, key_id: str) -> KeyRow:
    """Finds a key by its id."""
    return find_row(session, KeyRow, key_id, kind="key")


def existing(session: Session, key_ids: Collection[str]) -> set[str]:
    """Those of several ids that keys have."""
    ids = filter(stamps.is_reference, key_ids)  # PostgreSQL refuses a text with a NUL
    return set(session.scalars(select(KeyRow.id).where(KeyRow.id.in_(ids))))


def page(
    session: Session, *, after: str | None, limit: int, part: str | None = None
) -> list[KeyRow]:
    """Reads a page of keys in order of id, including revoked keys; only those with
    ``part`` in their id or name.

    Raises:
        NotFound: ``after`` is no key.
    """
    query = select(KeyRow).order_by(KeyRow.id).limit(limit)
    if after is not None:
        find(session, after)
        query = query.where(KeyRow.id > after)
    if part is not None:
        contains = (
            column.icontains(part, autoescape=True)
            for column in (KeyRow.id, KeyRow.name)
        )
        query = query.where(or_(*contains))
    return list(session.scalars(query))


def ending(
    session: Session,
    *,
    after: datetime,
    until: datetime,
    only: str | None,
    limit: int,
) -> list[KeyRow]:
    """Reads keys that work and end between two times, the first first.

    Args:
        only: the id of the one key that may be read; ``None`` for all keys.
    """
    query = select(KeyRow).where(
        KeyRow.expires_at > after,
        KeyRow.expires_at <= until,
        KeyRow.revoked_at.is_(None),
    )
    if only is not None:
        query = query.where(KeyRow.id == only)
    query = query.order_by(KeyRow.expires_at, KeyRow.id).limit(limit)
    return list(session.scalars(query))


def secret_matches(row: KeyRow | None, secret: str) -> bool:
    """Compares a secret with a key's secret in a time that does not depend on either.
    Without a key, it differs.
    """
    expected = None if row is None else row.secret_sha256
    # The comparison comes first, also without a key: an unknown id takes as long.
    is_equal = hmac.compare_digest(expected or bytes(32), _digest(secret))
    return is_equal and expected is not None


def living_admin_exists(session: Session) -> bool:
    """Whether any key that was not revoked and has not expired has the role ``admin``."""
    is_living = is_working(transaction_time(session))
    living = select(KeyRow).where(KeyRow.issuer.is_(None), is_living)
    rows = session.scalars(living)
    return any(Role.ADMIN.value in row.roles for row in rows)


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


class LastUses:
    """The uses of keys, to the hour, that one process has noted and not written yet.
    Threads may share an instance.

    A request does not write: it would wait for the write lock, and one key can send
    thousands of requests in a second.
    """

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
        """Returns notes that are not written yet, by key: as many as one short
        transaction can write.
        """
        with self._lock:
            return dict(islice(self._noted.items(), limits.MAX_PAGE_SIZE))

    def forget(self, written: Mapping[str, datetime]) -> None:
        """Drops notes that were written."""
        if not written:
            return
        newest = max(written.values())
        with self._lock:
            # those of earlier hours would only fill the memory
            recent = {key: at for key, at in self._written.items() if at >= newest}
            self._written = recent | dict(written)
            # a later use may have been noted since :meth:`take`
            self._noted = {
                key: at for key, at in self._noted.items() if written.get(key) != at
            }


def write_uses(session: Session, uses: Mapping[str, datetime]) -> None:
    """Writes uses to the keys' rows, in order of id. A later use that another process
    wrote stays.
    """
    for key_id, at in sorted(uses.items()):
        is_later = or_(KeyRow.last_used_at.is_(None), KeyRow.last_used_at < at)
        session.execute(
            update(KeyRow).where(KeyRow.id == key_id, is_later).values(last_used_at=at)
        )


class _Entry(NamedTuple):
    value: Any
    ends_s: float


elapsed_s = partial(time.clock_gettime, _CLOCK)
"""Seconds of a clock that nobody sets, and that also counts while the machine sleeps."""


def wait_for_revocation() -> None:
    """Waits, after the commit that takes authority away, until no process has an entry
    from before the commit.
    """
    time.sleep(limits.REVOCATION_S)


@dataclass(eq=False, repr=False)
class CachedAuthority:
    """What one process has read. Threads may share an instance."""

    elapsed_s: Callable[[], float] = elapsed_s
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _entries: dict[Hashable, _Entry] = field(default_factory=dict)

    def get(self, name: Hashable) -> Any:
        """Returns an entry, or ``None`` if there is none or it has ended. A process
        that was stopped asks, too.
        """
        entry = self._entries.get(name)
        if entry is None or self.elapsed_s() >= entry.ends_s:
            return None
        return entry.value

    def read(self, name: Hashable, reader: Callable[[], tuple[Value, float]]) -> Value:
        """Reads a value from the database and keeps it.

        Args:
            reader: returns the value and the number of seconds for which it is valid,
                counted from the call.
        """
        # Before the read: a revocation that commits during it is not in the value.
        began_s = self.elapsed_s()
        value, valid_s = reader()
        longest_s = _SHARE_OF_WAIT * limits.REVOCATION_S
        entry = _Entry(value, began_s + min(valid_s, longest_s))
        with self._lock:
            if len(self._entries) >= limits.MAX_CACHED_AUTHORITIES:
                self._entries = {}
            self._entries[name] = entry
        return value
