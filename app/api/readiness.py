"""Whether requests may be answered at all."""

from app.core.errors import InstallationError, LedgerRewound, Unavailable
from app.services.ledger.heads import Heads

_REWOUND = "the ledger is not the one whose heads were written outside the database"
_NO_HEADS = "heads outside the database cannot be read or written"


def confirm_ready(heads: Heads) -> None:
    """Holds requests back while the database is old, or is not the one that was written to.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a head outside it, or heads cannot
            be kept there. The log says which.
    """
    confirm_upgraded(heads)
    try:
        heads.confirm()
    except LedgerRewound:
        raise Unavailable(_REWOUND) from None
    except InstallationError:
        raise Unavailable(_NO_HEADS) from None


def confirm_upgraded(heads: Heads) -> None:
    """Enough for what reads released models alone: that needs no ledger, so none is compared for it.

    A database that is known to be an old one answers nothing: keys that were revoked since live in it again.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or was found to be rewound.
    """
    if not heads.is_current:
        raise Unavailable("the database was not upgraded; run: grovekeeper db upgrade")
    if heads.is_rewound:
        raise Unavailable(_REWOUND)
