"""Runs the sweeper at a time that the test chooses."""

from datetime import datetime, timedelta
from unittest.mock import patch

from app.services.execution import sweep
from app.services.installation import Installation


def expired_at(installation: Installation, at: datetime) -> int:
    """Settles jobs as if the database's clock told this time."""
    with patch.object(type(installation.database), "now", lambda *_: at):
        return sweep.expire_jobs(installation)


def tidy_all_rows(installation: Installation) -> None:
    """Removes unfinished uploads however young they are."""
    with patch.object(sweep, "STALE_UPLOAD", -timedelta(hours=1)):
        sweep.tidy_rows(installation)
