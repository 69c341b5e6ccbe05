"""Compares the balances of all accounts with their entries; a serving process does so at its start and at intervals."""

import threading
from contextlib import suppress

from app.core.errors import BalanceMismatch
from app.ledger import control, reconciliation, repository
from app.ledger.reconciliation import Unverified
from app.services.installation import Installation

_PAUSE_S = 0.01
"""Seconds between two accounts, or two parts of a long account, in which requests have the processor."""


def check_balances(installation: Installation, *, stopping: threading.Event | None = None) -> list[str]:
    """Compares every account with its entries, and returns the ids of the accounts that differ.

    Raises:
        Unavailable: the database cannot be reached.
    """
    stopping = stopping or threading.Event()
    with installation.database.read() as session:
        account_ids = sorted(repository.sizes(session).keys() - {control.CHAIN})  # a chain without a balance
    return [account_id for account_id in account_ids if not _is_equal(installation, account_id, stopping)]


def _is_equal(installation: Installation, account_id: str, stopping: threading.Event) -> bool:
    """Compares one account in as many transactions as its entries need; takes its lock only to confirm a difference."""
    while not stopping.wait(_PAUSE_S):
        with suppress(Unverified):
            with installation.database.read() as session:
                is_equal = reconciliation.is_everything_equal(session, repository.account(session, account_id))
            return is_equal or _is_equal_when_locked(installation, account_id)
    return True


def _is_equal_when_locked(installation: Installation, account_id: str) -> bool:
    try:
        with installation.database.write() as session:
            reconciliation.confirm_everything(session, repository.locked_account(session, account_id))
    except BalanceMismatch:
        return False
    return True
