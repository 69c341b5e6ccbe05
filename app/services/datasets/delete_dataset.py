"""``DELETE /datasets/{id}``: rows are erased; spend, ledger and predictions stay."""

from app.access.roles import MANAGE_DATASET, Principal
from app.datasets import catalog, row_files
from app.jobs import queue
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.jobs import show_jobs


def delete_dataset(installation: Installation, principal: Principal, reference: str) -> None:
    """Leaves a tombstone and erases the rows; repeating it is legal.

    Jobs that wait are cancelled and their reservations voided; jobs that run are cancelled and stay charged. The
    tombstone commits first: if the process dies before the files are gone, the sweeper erases them.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: only the owner erases.
    """
    with installation.database.write() as session:
        dataset = permitted(session, principal, reference, MANAGE_DATASET)
        row = catalog.locked(session, dataset.id).row  # before its jobs: no new one can slip in
        at = installation.database.now(session)
        # All jobs before the account: a worker that holds one of them may be waiting for it.
        unfinished = [queue.locked(session, job_id) for job_id in queue.unfinished_of(session, dataset.id)]
        show_jobs.cancel_locked(session, unfinished, actor=principal.key_id, at=at)
        if row.deleted_at is None:
            catalog.mark_deleted(row, at=at)
    row_files.erase_dataset(installation.home, dataset.id)
