"""Runs the sweeper at a time that the test chooses."""

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from app.core import limits
from app.services.execution import sweep
from app.services.installation import Installation
from tests.support.clocks import database_tells


def expired_at(installation: Installation, at: datetime) -> int:
    """Settles jobs as if the database's clock told this time, and workers then had the
    time of another lease.
    """
    with (
        database_tells(at),
        patch.object(limits, "SWEEP_INTERVAL_S", installation.settings.lease_ttl_s),
    ):
        return sweep.settle_overdue(installation) + sweep.settle_overdue(installation)


def tidy_after_a_lease(installation: Installation) -> None:
    """Removes folders of jobs as if those that were cancelled had been for the term of a
    lease.
    """
    at = datetime.now(UTC) + timedelta(seconds=installation.settings.lease_ttl_s)
    with database_tells(at):
        sweep.tidy_jobs(installation)


def tidy_all_rows(installation: Installation) -> None:
    """Removes unfinished uploads however young they are."""
    with patch.object(sweep, "STALE_UPLOAD", -timedelta(hours=1)):
        sweep.tidy_rows(installation)
