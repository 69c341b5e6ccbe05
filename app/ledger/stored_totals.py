"""Reads the stored totals of scopes: their sums by account, or the totals of every scope.

An account may have thousands of scopes. An admission reads the sums; the totals of all scopes are read as one text in
JSON, because a row for each scope would take longer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, bindparam, cast, func, select
from sqlalchemy.orm import Session

from app.ledger import repository
from app.ledger.tables import BoxRow

_COLUMNS = BoxRow.__table__.c
_OF_ACCOUNTS = _COLUMNS.account_id.in_(bindparam("account_ids", expanding=True))
_SCOPE = '"' + _COLUMNS.box + '":[' + cast(_COLUMNS.charged, Text) + "," + cast(_COLUMNS.reserved, Text) + "]"
_SCOPES = (
    select(_COLUMNS.account_id, func.aggregate_strings(_SCOPE, ",")).where(_OF_ACCOUNTS).group_by(_COLUMNS.account_id)
)
SUBQUERY = (
    select(
        _COLUMNS.account_id,
        func.count().label("n_scopes"),
        *(half.label(f"charged_{i}") for i, half in enumerate(repository.sum_in_halves(_COLUMNS.charged))),
        *(half.label(f"reserved_{i}") for i, half in enumerate(repository.sum_in_halves(_COLUMNS.reserved))),
    )
    .where(_OF_ACCOUNTS)
    .group_by(_COLUMNS.account_id)
    .subquery("sums")
)
"""One row for each of the accounts ``account_ids`` that has a scope."""
COLUMNS = list(SUBQUERY.c)[1:]
"""The columns of :func:`sums_of`."""


@dataclass(frozen=True)
class Sums:
    """The number of scopes of an account that carry an amount, and the sums of what they carry."""

    n_scopes: int
    charged: int
    reserved: int


def sums_of(columns: Sequence[Any]) -> Sums:
    """The sums of an account from :data:`COLUMNS`, which are ``None`` without a scope."""
    n_scopes, *halves = columns
    if n_scopes is None:
        return Sums(0, 0, 0)
    return Sums(n_scopes, repository.sum_of_halves(*halves[:2]), repository.sum_of_halves(*halves[2:]))


def by_digest(session: Session, account_ids: Sequence[str]) -> dict[str, Mapping[str, tuple[Any, Any]]]:
    """Charged and reserved amounts of every scope of some accounts, by account and by the scope's digest.

    SQLite stores texts in columns of integers. Amounts that another program wrote as texts equal no amount here.
    """
    totals: dict[str, Mapping[str, tuple[Any, Any]]] = {account_id: {} for account_id in account_ids}
    for account_id, scopes in session.execute(_SCOPES, {"account_ids": account_ids}):
        try:
            totals[account_id] = {digest: (each[0], each[1]) for digest, each in json.loads(f"{{{scopes}}}").items()}
        except (ValueError, IndexError):
            totals[account_id] = {scopes: ("", "")}
    return totals
