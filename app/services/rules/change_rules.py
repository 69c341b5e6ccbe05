"""Serves ``PUT /datasets/{id}/rules``: puts rules in force, or keeps a loosening until a second owner sends it, too."""

from sqlalchemy.orm import Session

from app.access import authority, grants, keys
from app.access.roles import MANAGE_DATASET, Principal, Role
from app.core import clock, ids
from app.core.errors import DatasetDeleted, InvalidRequest, NotFound, Unauthenticated
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.jobs import queue
from app.ledger import control, repository, rules
from app.ledger.entries import EntryKind
from app.ledger.rules import Rules, loosens, put
from app.services.authorization import acting, authorized_dataset
from app.services.installation import Installation
from app.services.rules.rules_json import json_of, rules_of
from app.services.rules.show_rules import living_proposal, rules_out
from app.wire.rules import RulesIn, RulesOut


def change_rules(installation: Installation, principal: Principal, reference: str, body: RulesIn) -> RulesOut:
    """Replaces the rules of a dataset.

    A tightening is in force at once, and so is every change by an admin. A loosening by an owner is kept as a proposal.
    It is in force once another owner sends the same rules within ``limits.MAX_PROPOSAL_S``. Any other change drops the
    proposal; so does sending the rules in force again.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only owners change rules.
        DatasetDeleted: the dataset's rows are erased, or their date has come.
        InvalidRequest: an amount or a date is out of range, or a quota names an unknown key.
    """
    with acting(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        catalog.locked(session, dataset.id).living()
        _require_keys(session, body)
        change = _Change(session, principal, dataset, installation.database.now)
        change.request(rules_of(body, change.accountant))
        return rules_out(session, dataset, at=change.at)


class _Change:
    """One change, under the lock of the dataset."""

    def __init__(self, session: Session, principal: Principal, dataset: Dataset, now: authority.Now) -> None:
        self._session = session
        self._principal = principal
        self._dataset = dataset
        self._now = now
        self.at = now(session)
        self.accountant = repository.account(session, dataset.id).accountant
        self._row = rules.row_of(session, dataset.id)
        self._before = rules.rules_of(self._row)
        if self._before.is_due(self.at):
            raise DatasetDeleted
        self._proposal = living_proposal(self._row, at=self.at)

    def request(self, rules: Rules) -> None:
        """Puts rules in force or proposes them."""
        erase_at = rules.erase_rows_at
        if erase_at is not None and erase_at <= self.at:
            raise InvalidRequest.at("/erase_rows_at", "past")
        if self._principal.is_admin or not loosens(self._before, rules):
            if rules != self._before or self._proposal is not None:
                self._put(rules, proposed_by=None)
            return
        by = None if self._proposal is None else str(self._proposal["by"])
        is_proposed = self._proposal is not None and self._proposal["rules"] == json_of(rules, self.accountant)
        if is_proposed and by is not None and by != self._principal.key_id and self._is_owner(by):
            self._put(rules, proposed_by=by)
        elif not is_proposed or by != self._principal.key_id:
            self._propose(rules)

    def _is_owner(self, key_id: str) -> bool:
        """Whether the key of a proposal is an owner still."""
        try:
            proposer = authority.read(self._session, key_id, now=self._now)
        except Unauthenticated:
            return False
        return grants.granted(self._session, proposer, self._dataset.id) is Role.OWNER

    def _put(self, rules: Rules, *, proposed_by: str | None) -> None:
        if self._before.is_frozen and not rules.is_frozen:
            queue.restart_waits(self._session, self._dataset.id, at=self.at)
        repository.locked_account(self._session, self._dataset.id)
        put(self._session, self._dataset.id, rules, actor=self._principal.key_id, at=self.at)
        self._record(EntryKind.RULES_CHANGED, rules, proposed_by=proposed_by)

    def _propose(self, rules: Rules) -> None:
        assert self._row is not None, "without rules no change is a loosening"
        proposed = json_of(rules, self.accountant)
        self._row.proposal = {"rules": proposed, "by": self._principal.key_id, "at": clock.to_text(self.at)}
        self._session.flush()
        self._record(EntryKind.RULES_PROPOSED, rules)

    def _record(self, kind: EntryKind, rules: Rules, **details: object) -> None:
        facts = {"dataset": self._dataset.id, "rules": json_of(rules, self.accountant), **details}
        control.record(self._session, kind, actor=self._principal.key_id, **facts)


def _require_keys(session: Session, body: RulesIn) -> None:
    """Refuses quotas of keys that do not exist, which would limit nothing."""
    for number, quota in enumerate(body.quotas):
        for key_id in quota.keys:
            try:
                if not ids.is_reference(key_id):
                    raise NotFound("key")
                keys.find(session, key_id)
            except NotFound:
                raise InvalidRequest.at(f"/quotas/{number}/keys", "unknown-key") from None
