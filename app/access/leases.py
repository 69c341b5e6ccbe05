"""Stores the leases under which processes cache authority: one row per process, with the last act that it has seen.

A row has no time. A process counts the seconds of its lease from before it wrote the row, and whoever waits for the end
of the lease counts as many seconds from after it read the row. So no two clocks are compared.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.access.tables import LeaseRow
from app.db.upsert import insert


class Lease(NamedTuple):
    """A row, as it was read."""

    process_id: str
    renewals: int


def renew(session: Session, process_id: str, *, last_act: int) -> None:
    """Begins or renews the lease of a process whose entries are valid up to an administrative act."""
    statement = insert(session, LeaseRow).values(process_id=process_id, renewals=1, last_act=last_act)
    renewed = {"renewals": LeaseRow.renewals + 1, "last_act": last_act}
    session.execute(statement.on_conflict_do_update(index_elements=["process_id"], set_=renewed))


def behind(session: Session, last_act: int, *, besides: str) -> list[Lease]:
    """The leases of other processes that may have entries from before an act."""
    query = select(LeaseRow.process_id, LeaseRow.renewals).where(
        LeaseRow.last_act < last_act, LeaseRow.process_id != besides
    )
    return [Lease(*row) for row in session.execute(query)]


def remove(session: Session, process_id: str) -> None:
    """Removes the lease of a process that uses its cache no more."""
    session.execute(delete(LeaseRow).where(LeaseRow.process_id == process_id))


def remove_ended(session: Session, ended: Collection[Lease]) -> None:
    """Removes the leases of processes that have not renewed them, and does not wait for a process that is doing so."""
    for lease in ended:
        unchanged = select(LeaseRow).where(LeaseRow.process_id == lease.process_id, LeaseRow.renewals == lease.renewals)
        row = session.execute(unchanged.with_for_update(skip_locked=True)).scalar_one_or_none()
        if row is not None:
            session.delete(row)
