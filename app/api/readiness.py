"""Checks that the service is ready to answer requests."""

from app.core.errors import InstallationError, LedgerRewound, Unavailable
from app.services.ledger.heads import Heads

_REWOUND = "the ledger contradicts the heads that were written outside the database"
_NO_HEADS = "heads outside the database cannot be read or written"


def confirm_ready(heads: Heads) -> None:
    """Check the revision of the database, and the ledger against the heads outside the database.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a head; or heads cannot be read or
            written. The log says which.
    """
    confirm_upgraded(heads)
    try:
        heads.confirm()
    except LedgerRewound:
        raise Unavailable(_REWOUND) from None
    except InstallationError:
        raise Unavailable(_NO_HEADS) from None


def confirm_upgraded(heads: Heads) -> None:
    """Check the revision of the database alone, for requests that only read released models.

    A database that is known to be an older copy answers nothing, because it accepts keys that were revoked later.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a head.
    """
    if not heads.is_current:
        raise Unavailable("the database was not upgraded; run: grovekeeper db upgrade")
    if heads.is_rewound:
        raise Unavailable(_REWOUND)
