"""Reads the totals of all scopes of an account as three lists, because a row for each scope would take longer.

An account may have thousands of scopes, and every admission compares all totals with the entries.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any, Self

from sqlalchemy import Text, bindparam, cast, func, select

from app.ledger.tables import BoxRow

_COLUMNS = BoxRow.__table__.c
_LISTED = ("box", "charged", "reserved")
SUBQUERY = (
    select(
        _COLUMNS.account_id,
        *(func.aggregate_strings(cast(_COLUMNS[name], Text), ",").label(name) for name in _LISTED),
    )
    .where(_COLUMNS.account_id.in_(bindparam("account_ids", expanding=True)))
    .group_by(_COLUMNS.account_id)
    .subquery("totals")
)
"""One row for each of the accounts ``account_ids`` that has a scope; all texts list the scopes in one order."""
QUERY = select(SUBQUERY)
COLUMNS = [SUBQUERY.c[name] for name in _LISTED]
"""The texts of :meth:`ListedTotals.of`."""
NO_SCOPE = (None, None, None)
"""Their values without a scope."""


@dataclass(frozen=True)
class Digests:
    """The digests of the scopes of an account, in the order of one reading, which most readings repeat.

    Attributes:
        text: as the database lists them.
        listed: one by one.
        n_distinct: number of different digests; fewer than listed if another program wrote the table.
    """

    text: str
    listed: Sequence[str]
    n_distinct: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Splits a text; an empty text lists nothing."""
        listed = text.split(",") if text else []
        return cls(text, listed, len(set(listed)))


@dataclass(frozen=True)
class ListedTotals:
    """The totals of all scopes of an account, as the database has them.

    Attributes:
        digests: of the scopes.
        charged: the charged amounts, in the order of ``digests``.
        reserved: the reserved amounts, in the same order.
    """

    digests: Digests
    charged: Sequence[Any]
    reserved: Sequence[Any]

    @classmethod
    def of(cls, texts: Sequence[str | None], *, known: Digests | None = None) -> Self:
        """Reads the texts of :data:`COLUMNS`. Other texts than the ledger writes give totals that equal no entries.

        Args:
            texts: digests, charged and reserved amounts; or :data:`NO_SCOPE`.
            known: an earlier reading of the digests, which is used again if the text is the same.
        """
        digests, charged, reserved = texts
        text = digests or ""
        listed = known if known is not None and known.text == text else Digests.of(text)
        return cls(listed, _integers(charged), _integers(reserved))

    def equal(self, totals: Mapping[str, tuple[int, int]]) -> bool:
        """Whether these are the totals of the given scopes, by digest, and of no other."""
        digests = self.digests.listed
        if not len(totals) == self.digests.n_distinct == len(digests) == len(self.charged) == len(self.reserved):
            return False
        return all(map(eq, map(totals.get, digests), zip(self.charged, self.reserved, strict=True)))

    def by_digest(self) -> dict[str, tuple[int, int]]:
        """Charged and reserved amounts of every scope, by digest."""
        return dict(zip(self.digests.listed, zip(self.charged, self.reserved, strict=False), strict=False))


def _integers(listed: str | None) -> list[Any]:
    try:
        integers: list[Any] = json.loads(f"[{listed or ''}]")
    except ValueError:
        return str(listed).split(",")
    return integers
