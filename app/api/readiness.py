"""Checks that the service is ready to answer requests."""

import asyncio
import shutil
from contextvars import Context
from pathlib import Path

from app.api.capacity import Capacities, Work
from app.core import limits
from app.core.errors import InstallationError, LedgerRewound, Unavailable
from app.services.ledger.heads import Heads

DISK_RETRY_S = 60
"""Seconds after which a request that met a full disk may be sent again."""
_REWOUND = "the ledger contradicts the heads that were written outside the database"
_NO_HEADS = "heads outside the database cannot be read or written, or a key is missing"


class Readiness:
    """Runs one check of readiness at a time, in a separate thread, for all requests that wait for the result."""

    def __init__(self, home: Path, heads: Heads, capacities: Capacities) -> None:
        self._home = home
        self._heads = heads
        self._capacities = capacities
        self._check: asyncio.Task[None] | None = None

    async def confirm(self) -> None:
        """Check as :func:`confirm_ready` does, and the disk, for at most ``limits.READINESS_WAIT_S`` seconds.

        Raises:
            Unavailable: the service is not ready, its disk is full, or the check takes too long.
        """
        if self._check is None or self._check.done():
            check = self._capacities.run(Work.READINESS, self._confirm)
            self._check = asyncio.create_task(check, context=Context())  # the check of no client, who may go away
            # Nobody may be left to see the error of a check that took too long.
            self._check.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(limits.READINESS_WAIT_S):
                await asyncio.shield(self._check)
        except TimeoutError:
            raise Unavailable("the database does not answer in time") from None

    def _confirm(self) -> None:
        self._heads.read_revision()  # asks the database now: requests go by an answer from before an outage
        confirm_ready(self._heads)
        if shutil.disk_usage(self._home).free < limits.MIN_FREE_DISK_BYTES:
            raise Unavailable("the disk is full", DISK_RETRY_S)


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
