"""Finds the entries that a backup lacks, and closes their accounts.

An account may spend again only if a signed head outside the database is there and the backup reaches it. The entries
after the backup, which nobody has any more, may have charged everything that was left. So they count as spent: the cap
of the account becomes 0 for ever (docs/adr/0031-lost-entries-count-as-spent.md).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import grants
from app.access.tables import GrantRow, KeyRow
from app.core.errors import InstallationError
from app.datasets import catalog
from app.jobs import queue
from app.jobs.states import EndReason, JobState
from app.ledger import caps, control, populations, repository, statements
from app.ledger.checkpoints import Checkpoint
from app.ledger.entries import EntryKind
from app.ledger.log import Log
from app.registry import models
from app.services.guarantees import of_account


@dataclass(frozen=True)
class Loss:
    """An account whose entries are not proven to be complete.

    Attributes:
        account_id: of a dataset or a population, or the control chain.
        n_entries: in the backup; 0 where the backup does not have the account.
        head: the head that the backup does not reach; ``None`` where the account has no head.
    """

    account_id: str
    n_entries: int
    head: Checkpoint | None

    def __str__(self) -> str:
        stated = "no head" if self.head is None else f"a head of {self.head.size}"
        return f"{self.account_id}: {self.n_entries} entries in the backup, {stated}"


class EntriesMissing(InstallationError):
    """The backup does not reach the heads."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        lines = "\n".join(f"  {loss}" for loss in losses)
        super().__init__(
            "the backup does not reach the heads that were written outside the database, so budget that was spent "
            f"could be spent again. Nothing was restored. See the operator's guide, Restore\n{lines}"
        )


def find_losses(session: Session, heads: Collection[Checkpoint]) -> list[Loss]:
    """The accounts of the backup or of the heads whose entries are not proven to be complete, in order of id."""
    sizes, by_account = repository.sizes(session), {head.account_id: head for head in heads}
    losses = []
    for account_id in sorted(sizes.keys() | by_account.keys()):
        size, head = sizes.get(account_id, 0), by_account.get(account_id)
        if head is None or size < head.size or Log(session, account_id).root(head.size) != head.root:
            losses.append(Loss(account_id, size, head))
    return losses


def accept(session: Session, losses: Sequence[Loss], *, at: datetime) -> None:
    """Records losses in the control chain, closes their accounts, and ends the jobs that these would have paid.

    The population of a closed account is closed, too: the load of that member is not known any more. If the control
    chain itself lost entries, keys may have been revoked and grants removed in them, so no key of the backup is
    accepted any more.
    """
    for loss in losses:
        control.record(session, EntryKind.HISTORY_LOST, actor=control.OPERATOR, **_details(loss))
    present = {loss.account_id for loss in losses if loss.n_entries} - {control.CHAIN}
    for account_id in sorted({*present, *populations.ids_of(session, present).values()}):
        _close(session, account_id, at=at)
    if any(loss.account_id == control.CHAIN for loss in losses):
        _revoke_everybody(session, at=at)


def is_recorded(session: Session, head: Checkpoint) -> bool:
    """Whether the control chain records that the entries up to a head were lost."""
    return any(
        details["account"] == head.account_id and details.get("head") == _head(head)
        for details in control.details_of(session, EntryKind.HISTORY_LOST)
    )


def _details(loss: Loss) -> dict[str, object]:
    details: dict[str, object] = {"account": loss.account_id, "entries": loss.n_entries}
    return details if loss.head is None else {**details, "head": _head(loss.head)}


def _head(head: Checkpoint) -> dict[str, object]:
    return {"size": head.size, "root": head.root.hex()}


def _close(session: Session, account_id: str, *, at: datetime) -> None:
    """Closes an account. The reservations of its unfinished jobs stay, because the jobs may have been charged."""
    for job_id in queue.unfinished_of(session, account_id):
        queue.finish(queue.locked(session, job_id), state=JobState.FAILED, reason=EndReason.LOST, at=at)
    caps.close(session, account_id, reason="entries were lost in a restore and count as spent", actor=control.OPERATOR)
    if account_id in catalog.named(session, [account_id]):
        dataset = catalog.find(session, account_id)
        limit = statements.printable(session, account_id)
        models.put_guarantee(session, account_id, of_account(session, dataset, limit))


def _revoke_everybody(session: Session, *, at: datetime) -> None:
    """Revokes every key, and removes every grant of the identity provider's subjects, whose roles it states anew."""
    subjects = set()
    for key in session.execute(select(KeyRow).where(KeyRow.revoked_at.is_(None)).order_by(KeyRow.id)).scalars():
        if key.issuer is not None:
            subjects.add(key.id)
            continue
        key.revoked_at = at
        control.record(session, EntryKind.KEY_REVOKED, actor=control.OPERATOR, key=key.id)
    for grant in session.execute(select(GrantRow).order_by(GrantRow.key_id, GrantRow.dataset_id)).scalars().all():
        if grant.key_id in subjects and grants.remove(session, dataset_id=grant.dataset_id, key_id=grant.key_id):
            acted = {"dataset": grant.dataset_id, "key": grant.key_id}
            control.record(session, EntryKind.GRANT_REMOVED, actor=control.OPERATOR, **acted)
