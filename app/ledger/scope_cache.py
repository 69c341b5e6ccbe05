"""Scopes by the digest that stands for them in the database, so that an admission reads digests and not texts.

A digest means the same scope for ever, in every account and whatever becomes of the transaction that wrote it: there
is nothing here that could be out of date. What is kept is bounded; a scope that is not here is read.
"""

import hashlib
import json
from collections.abc import Collection
from threading import Lock
from typing import Final

import rfc8785
from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.ledger.tables import BoxRow
from app.privacy.composition import Numbering, Partitions, Scope

MAX_SIZE: Final = 2**21
"""Scopes and cells that are kept in all. What was asked for least recently goes first, and is read anew."""
MAX_WAYS: Final = 256
"""Sets of partition names whose scopes are kept."""

_AT_ONCE = 500
"""Digests in one question to the database."""

_by_names: dict[tuple[str, ...], Numbering] = {}
_changing = Lock()


def digest_of(scope: Scope) -> str:
    """SHA-256 of a scope's canonical JSON, in lower-case hexadecimal."""
    return hashlib.sha256(rfc8785.dumps({name: list(cells) for name, cells in scope.items()})).hexdigest()


def numbering(session: Session, account_id: str, partitions: Partitions, digests: Collection[str]) -> Numbering:
    """Scopes of an account by digest: all of these, but those that the account does not have any more."""
    found = _kept(tuple(partition.name for partition in partitions.declared))
    unknown = [digest for digest in digests if digest not in found]
    query = select(BoxRow.box, type_coerce(BoxRow.scope, Text)).where(BoxRow.account_id == account_id)
    for start in range(0, len(unknown), _AT_ONCE):
        for digest, written in session.execute(query.where(BoxRow.box.in_(unknown[start : start + _AT_ONCE]))):
            found.add(digest, {name: tuple(cells) for name, cells in json.loads(written).items()})
    return found


def _kept(names: tuple[str, ...]) -> Numbering:
    """The scopes over some partitions that are known, and now the last to go. Who has them may go on using them."""
    with _changing:
        found = _by_names.pop(names, None)
        if found is None or found.size > MAX_SIZE:
            found = Numbering(names)
        while _by_names and (len(_by_names) >= MAX_WAYS or sum(each.size for each in _by_names.values()) > MAX_SIZE):
            del _by_names[next(iter(_by_names))]
        _by_names[names] = found
    return found
