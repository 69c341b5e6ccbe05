"""Implements the accountants, one module per unit: :class:`~app.privacy.accountants.accountant.Accountant`."""

from app.privacy.accountants import gdp, pure, zcdp
from app.privacy.accountants.accountant import Accountant
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event, UnknownPrivacyEvent

ALL: tuple[Accountant, ...] = (pure, zcdp, gdp)
NAMES = tuple(accountant.NAME for accountant in ALL)


def by_name(name: str) -> Accountant:
    """The accountant that requests and exports call ``name``.

    Raises:
        KeyError: no accountant has this name.
    """
    return {accountant.NAME: accountant for accountant in ALL}[name]


def accepting(event: Event, *, adjacency: Adjacency) -> tuple[str, ...]:
    """Names of the accountants in whose unit an event has a proven bound on an account of ``adjacency``."""
    return tuple(accountant.NAME for accountant in ALL if _has_bound(accountant, event, adjacency))


def _has_bound(accountant: Accountant, event: Event, adjacency: Adjacency) -> bool:
    try:
        accountant.loss(event, adjacency=adjacency)
    except UnknownPrivacyEvent:
        return False
    return True
