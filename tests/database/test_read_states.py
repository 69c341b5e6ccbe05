"""The state that a balance is read from ends at the head of its account, whatever this
process kept before.
"""

import dataclasses
from typing import Any

import pytest
from sqlalchemy import update

from app.core.errors import BalanceMismatch
from app.ledger import kept_states, statements, tables
from app.ledger.state import State
from app.ledger.tables import AccountRow, Entry
from app.services.installation import Installation
from tests.support import population_accounts as members
from tests.support.databases import on_one_database

pytestmark = pytest.mark.contract


@pytest.fixture
def account(installation: Installation) -> Installation:
    """An account with six entries."""
    with installation.database.write() as session:
        members.account(session, "ds_a")
        for number in range(5):
            members.reserve(session, "ds_a", 10, f"jb_{number}", number % 3)
    return installation


def _entries(session: Any) -> list[Entry]:
    return list(tables.entries(session, "ds_a", after=0, limit=100))


def _keep(session: Any, n_entries: int, **changes: Any) -> None:
    """What the process knows: the state after some entries."""
    state = State("ds_a").advanced(_entries(session)[:n_entries])
    kept_states._keep(session, dataclasses.replace(state, **changes))


@on_one_database
@pytest.mark.parametrize(
    ("n_known", "head"),
    [
        (None, {"last_hash": "0" * 64}),
        (4, {"last_hash": "0" * 64}),
        (6, {"last_hash": "0" * 64}),
        (None, {"last_sequence": 7}),
        (4, {"last_sequence": 7}),
        (6, {"last_sequence": 7}),
        (None, {"last_sequence": 5}),
        (4, {"last_sequence": 5}),
    ],
)
def test_no_balance_is_read_where_the_head_is_not_the_last_entry(
    account: Installation, head: dict[str, Any], n_known: int | None
) -> None:
    """Not only an admission, whose entry would follow another hash."""
    account.database.kept.clear()
    with account.database.write() as session:
        if n_known:
            _keep(session, n_known)
        session.execute(update(AccountRow).values(head))
        session.expire_all()
        with pytest.raises(BalanceMismatch):
            statements.balance(session, "ds_a")
        session.rollback()


@on_one_database
def test_a_known_state_of_another_history_is_not_continued(
    account: Installation,
) -> None:
    """As after a restore at the same address while the process runs."""
    with account.database.read() as session:
        _keep(session, 4, hash="f" * 64, cap=1_000, totals={})
        balance = statements.balance(session, "ds_a")
    assert (balance.cap, balance.load) == (100, 20)


@on_one_database
@pytest.mark.parametrize("n_known", [None, 2, 3])
def test_entries_after_the_head_that_was_read_are_left_for_the_next_transaction(
    account: Installation, monkeypatch: pytest.MonkeyPatch, n_known: int | None
) -> None:
    """And no more entries are read at once than one may."""
    account.database.kept.clear()
    entries, limits = tables.entries, list[int]()

    def noted(*of: Any, limit: int, **more: Any) -> Any:
        limits.append(limit)
        return entries(*of, limit=limit, **more)

    with account.database.read() as session:
        *_, read, _ = _entries(session)
        if n_known:
            _keep(session, n_known)
        row = tables.account(session, "ds_a")
        session.expunge(row)
        row.last_sequence, row.last_hash = read.sequence, read.hash
        monkeypatch.setattr(tables, "entries", noted)
        monkeypatch.setattr(kept_states, "_READ_AT_ONCE", 2)
        assert kept_states.state_of(session, row).hash == read.hash
    assert set(limits) <= {1, 2}


@on_one_database
def test_a_session_that_was_rolled_back_has_no_state_of_its_own(
    account: Installation,
) -> None:
    with account.database.write() as session:
        members.reserve(session, "ds_a", 1, "jb_lost")
        assert kept_states._OF_TRANSACTION in session.info
        session.rollback()
        assert kept_states._OF_TRANSACTION not in session.info


def test_a_state_weighs_the_longest_cell_of_all_its_partitions() -> None:
    def weight(*names: list[str]) -> int:
        partitions = [{"kind": "column", "cells": cells} for cells in names]
        facts = {"partitions": partitions}
        return kept_states._size(State("ds_a", facts=facts, scopes_size=5))

    alone = weight()
    assert weight(["x" * 500, "y"]) - alone > 5 * 500
    assert weight(["y"], ["x" * 500]) - alone > 5 * 500
    bare = State("ds_a")
    scoped = dataclasses.replace(bare, scopes_size=7)
    cells = kept_states._size(scoped) - kept_states._size(bare)
    assert cells == 7 * kept_states._CELL_BYTES
