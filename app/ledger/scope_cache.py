"""Caches scopes in memory by digest, so that an admission reads digests rather than texts.

A digest always denotes the same scope, in every account and whether or not the transaction that wrote it committed. So
a cached scope is never stale. The size is bounded; a scope that is not cached is read from the database.
"""

import json
from collections.abc import Set
from threading import Lock
from typing import TYPE_CHECKING, Final

from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.ledger.scope_digest import digest_of
from app.ledger.tables import BoxRow
from app.privacy.composition import Partitions

if TYPE_CHECKING:  # numpy takes time and memory to import, which a process that admits no request need not spend
    from app.privacy.composition.numbering import Numbering

MAX_SIZE: Final = 2**21
"""The most scopes and cells in the cache. The least recently used scopes are dropped first."""
MAX_WAYS: Final = 256
"""Sets of partition names whose scopes are kept."""

_BATCH_SIZE = 500
"""Digests in one query."""

_by_names: "dict[tuple[str, ...], Numbering]" = {}
_changing = Lock()


def numbering(
    session: Session, account_id: str, partitions: Partitions, digests: Set[str]
) -> "tuple[Numbering, set[str]]":
    """Scopes of an account by digest: all of ``digests``, except those that the account no longer has.

    A scope whose digest is another one counts as missing, so its total differs from the entries.

    Returns:
        The scopes, and the digests that are missing.
    """
    scopes = _cached(tuple(partition.name for partition in partitions.declared))
    unknown = sorted(scopes.missing(digests))
    missing = set(unknown)
    query = select(BoxRow.box, type_coerce(BoxRow.scope, Text)).where(BoxRow.account_id == account_id)
    for start in range(0, len(unknown), _BATCH_SIZE):
        for digest, text in session.execute(query.where(BoxRow.box.in_(unknown[start : start + _BATCH_SIZE]))):
            scope = {name: tuple(cells) for name, cells in json.loads(text).items()}
            if (own := digest_of(scope)) == digest:
                scopes.add(own, scope)
                missing.discard(digest)
    return scopes, missing


def _cached(names: tuple[str, ...]) -> "Numbering":
    """The scopes over some partitions that are in memory, marked as the most recently used.

    A caller may keep using scopes that the cache has dropped.
    """
    from app.privacy.composition.numbering import Numbering

    with _changing:
        scopes = _by_names.pop(names, None)
        if scopes is None or scopes.size > MAX_SIZE:
            scopes = Numbering(names)
        while _by_names and (len(_by_names) >= MAX_WAYS or sum(cache.size for cache in _by_names.values()) > MAX_SIZE):
            del _by_names[next(iter(_by_names))]
        _by_names[names] = scopes
    return scopes
