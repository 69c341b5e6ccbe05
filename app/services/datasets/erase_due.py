"""Erases the rows of datasets whose rules name a date of erasure that has come, and ends jobs of deleted datasets."""

from app.datasets import catalog
from app.ledger import rules
from app.services.datasets.delete_dataset import end_jobs, erase_remains, mark_deleted
from app.services.installation import Installation

SWEEPER = "sweeper"
"""The actor of the erasure in the control chain: the date was set by the owners' rules."""


def erase_due(installation: Installation) -> list[str]:
    """Deletes every dataset whose date has come: the rows go, and the spend, the ledger and the models stay. Then ends
    jobs of all datasets that were deleted.

    Workers and API processes repeat the search. Each dataset has its own transaction, which reads the dataset again
    under its lock, so several processes may search at once. If the process dies before the files are erased,
    :func:`app.services.execution.sweep.tidy_rows` erases them.

    Returns:
        Ids of the datasets that this call deleted.
    """
    database, erased = installation.database, list[str]()
    with database.read() as session:
        due = rules.due_accounts(session, at=database.now(session))
        named = catalog.named(session, due)
        living = [dataset_id for dataset_id in due if named[dataset_id].deleted_at is None]
    for dataset_id in living:
        if _is_deleted_now(installation, dataset_id):
            erase_remains(installation, dataset_id)
            erased.append(dataset_id)
    with database.read() as session:
        closing = catalog.closing_ids(session)
    for dataset_id in sorted(closing):
        end_jobs(installation, dataset_id, actor=SWEEPER)
    return erased


def _is_deleted_now(installation: Installation, dataset_id: str) -> bool:
    """Deletes a dataset unless another process did, or an admin moved the date."""
    with installation.database.write() as session:
        at = installation.database.now(session)
        is_deleted = catalog.locked(session, dataset_id).is_deleted
        if is_deleted or dataset_id not in rules.due_accounts(session, at=at):
            return False
        mark_deleted(session, dataset_id, actor=SWEEPER, at=at)
        return True
