"""Serves ``GET /datasets/{id}/rules``: shows the rules of a dataset, what is spent of its quotas, and a proposal."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from app.access.roles import MANAGE_DATASET, Principal, Role
from app.core import clock, limits
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import repository, rules
from app.ledger.tables import RulesRow
from app.privacy import accountants
from app.privacy.accountants import amount_text
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.rules.rules_json import json_of
from app.wire.rules import RulesOut


def show_rules(installation: Installation, principal: Principal, reference: str) -> RulesOut:
    """Shows the rules of a dataset.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only owners see rules.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        return rules_out(session, dataset, at=installation.database.now(session))


def list_frozen(installation: Installation, principal: Principal) -> list[tuple[str, str]]:
    """Lists the frozen datasets whose rows are not erased, by id and name.

    Raises:
        RoleMissing: only an admin sees the rules of all datasets.
    """
    principal.require(Role.ADMIN)
    with installation.database.read() as session:
        frozen = catalog.named(session, rules.frozen_accounts(session))
        return [(dataset_id, named.name) for dataset_id, named in sorted(frozen.items()) if named.deleted_at is None]


def living_proposal(row: RulesRow | None, *, at: datetime) -> dict[str, Any] | None:
    """The proposed rules, their owner and the time, until the proposal expires."""
    if row is None or row.proposal is None:
        return None
    expires_at = clock.from_text(row.proposal["at"]) + timedelta(seconds=limits.MAX_PROPOSAL_S)
    return row.proposal if at <= expires_at else None


def rules_out(session: Session, dataset: Dataset, *, at: datetime) -> RulesOut:
    """Formats the rules of a dataset."""
    row, accountant = rules.row_of(session, dataset.id), repository.account(session, dataset.id).accountant
    in_force = rules.rules_of(row)
    keys = frozenset[str]().union(*(quota.keys for quota in in_force.quotas))
    by_key = rules.usage(session, dataset.id, keys, key="").by_key
    shown = json_of(in_force, accountant)
    for quota, listed in zip(in_force.quotas, shown["quotas"], strict=True):
        listed["spent"] = amount_text(accountant, sum(by_key.get(key, 0) for key in quota.keys))
    return RulesOut.model_validate(
        {
            "dataset": dataset.id,
            "dataset_name": dataset.name,
            "unit": accountants.by_name(accountant).UNIT,
            **shown,
            "changed_by": None if row is None else row.changed_by,
            "changed_at": None if row is None else clock.to_text(row.changed_at),
            "proposal": living_proposal(row, at=at),
        }
    )
