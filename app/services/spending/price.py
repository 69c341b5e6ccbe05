"""Reads what a request asks to spend, and prices it: the caller's roles, and the public facts of each dataset.

A part of a job is asked (:class:`Asked`, then :class:`RequestedPart`), priced (:class:`PricedPart`), reserved
(:class:`app.ledger.reservations.NewReservation`) and stored (:class:`app.jobs.tables.JobPart`).
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from sqlalchemy import BindParameter, bindparam, select
from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.access.tables import GrantRow, KeyRow
from app.core import amounts
from app.core.stamps import is_reference
from app.datasets import catalog
from app.datasets.catalog import DatasetRow
from app.ledger.tables import AccountRow
from app.privacy import accountants
from app.privacy.calibration import AccountRequest, price_of
from app.privacy.composition import Scope
from app.privacy.events import Event
from app.privacy.guarantees import SplitDelta
from app.services.guarantees import of_large_amount
from app.services.installation import Installation
from app.wire.spending import PriceOut

_LARGE_DELTA = (
    "δ is above one in a million, or above a tenth of one over the public size. A mechanism that occasionally "
    "publishes a whole row could satisfy such a δ."
)


@dataclass(frozen=True)
class Asked:
    """A dataset that a request names, with the facts that price the request; none of them depends on rows.

    Attributes:
        dataset: the dataset.
        uploads: ids of its uploads, in order.
        accountant: of its account.
        delta: the δ of its account; ``None`` on accounts without a δ.
    """

    dataset: catalog.Dataset
    uploads: Sequence[str]
    accountant: str
    delta: Fraction | None

    def expected_rows(self, scope: Scope) -> int | None:
        """The expected number of rows in a scope, from declared sizes alone; ``None`` where no size is declared."""
        return self.dataset.expected_rows(scope, n_epochs=len(self.uploads))


def read_asked(
    installation: Installation, session: Session, caller: Principal, references: Sequence[str], roles: Set[Role]
) -> tuple[Principal, list[Asked]]:
    """Finds datasets by id or name, and checks that the caller has one of several roles on each.

    One query reads everything, unless the name of a deleted dataset is among the references.

    Returns:
        The caller with its present roles, and the datasets in the order of the references.

    Raises:
        Unauthenticated: the caller's key was revoked or rotated meanwhile, or has expired.
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may see a dataset, but has none of these roles there.
    """
    key, rows = _read(session, caller, [reference for reference in references if is_reference(reference)])
    principal = grants.confirm_row(session, caller, key, now=installation.database.now)
    asked = []
    for reference in references:
        row = rows.get(reference)
        if row is None:
            dataset_id = catalog.find(session, reference).id
            row = _read(session, caller, [dataset_id])[1][dataset_id]
        _, dataset, role, uploads, accountant, delta, set_aside = row
        grants.check(principal, None if role is None else Role(role), roles, kind="dataset")
        split = SplitDelta(None if delta is None else Fraction(delta), Fraction(set_aside or 0))
        asked.append(Asked(catalog.Dataset(dataset), catalog.uploads_of_text(uploads), accountant, split.converted_at))
    return principal, asked


_references: BindParameter[Any] = bindparam("references", expanding=True)
_ASKED = (
    select(
        KeyRow,
        DatasetRow,
        GrantRow.role,
        catalog.uploads_as_text(),
        AccountRow.accountant,
        AccountRow.delta,
        AccountRow.delta_set_aside,
    )
    .select_from(KeyRow)
    .outerjoin(DatasetRow, DatasetRow.id.in_(_references) | DatasetRow.living_name.in_(_references))
    .outerjoin(GrantRow, (GrantRow.key_id == KeyRow.id) & (GrantRow.dataset_id == DatasetRow.id))
    .outerjoin(AccountRow, AccountRow.id == DatasetRow.id)
    .where(KeyRow.id == bindparam("key_id"))
    .execution_options(populate_existing=True)
)


def _read(session: Session, caller: Principal, references: Collection[str]) -> tuple[KeyRow | None, dict[str, Any]]:
    """The caller's key, and for each reference that is an id or the name of a living dataset its row of the query."""
    rows: Sequence[Any] = session.execute(_ASKED, {"key_id": caller.key_id, "references": references}).all()
    datasets = [row for row in rows if row[1] is not None]
    by_name = {row[1].living_name: row for row in datasets}
    return rows[0][0] if rows else None, {**by_name, **{row[1].id: row for row in datasets}}


class SpendingBody(Protocol):
    """The fields of a request's body that :func:`price_part` reads."""

    @property
    def epsilon(self) -> Fraction:
        """The ε of the request."""

    @property
    def delta(self) -> Fraction | None:
        """The δ of the request, on accounts that take one."""

    @property
    def scope(self) -> Mapping[str, object]:
        """The scope as the client sent it."""


@dataclass(frozen=True)
class RequestedPart:
    """A part of a job before its work is planned. Everything in it follows from public facts.

    Attributes:
        asked: the dataset and its uploads.
        scope: the requested scope in normal form; acceptance adds the uploads that exist at that time.
        public_size: the declared order of magnitude of the rows in the scope; never a count.
        accountant: name of the account's accountant.
        amount: steps of the account's unit.
        epsilon: the ε of the request.
        delta: the δ of the request, or else of the account; ``None`` on accounts without a δ.
    """

    asked: Asked
    scope: Scope
    public_size: int | None
    accountant: str
    amount: int
    epsilon: Fraction
    delta: Fraction | None

    @property
    def dataset(self) -> catalog.Dataset:
        """The dataset whose rows the part reads and whose account pays."""
        return self.asked.dataset

    @property
    def charged_scope(self) -> Scope:
        """The scope that would be charged now."""
        return self.dataset.with_uploads(self.scope, self.asked.uploads)

    @property
    def price(self) -> PriceOut:
        """The price as answers show it: exactly the requested (ε, δ), in the account's unit."""
        return PriceOut(
            accountant=self.accountant,
            unit=accountants.by_name(self.accountant).UNIT,
            amount=accountants.amount_text(self.accountant, self.amount),
            epsilon=amounts.to_text(self.epsilon),
            delta=None if self.delta is None else amounts.to_text(self.delta),
        )

    @property
    def account_request(self) -> AccountRequest:
        """The part as an argument of planning."""
        return AccountRequest(
            epsilon=self.epsilon,
            public_size=self.public_size,
            accountant=self.accountant,
            delta=self.delta,
            adjacency=self.dataset.adjacency,
            max_rows=self.dataset.max_rows,
        )

    @property
    def warnings(self) -> list[str]:
        """Sentences about the requested numbers and the declaration."""
        usual_delta = min(Fraction(1, 10**6), Fraction(1, 10 * max(self.dataset.row.public_size or 0, 1)))
        is_large = self.delta is not None and self.delta > usual_delta
        return [
            *of_large_amount(self.accountant, self.amount, delta=self.delta, adjacency=self.dataset.adjacency),
            *([_LARGE_DELTA] if is_large else []),
            *self.dataset.schema.warnings,
        ]

    def paying_for(self, event: Event) -> "PricedPart":
        """The part with the event that its price pays for."""
        return PricedPart(**vars(self), event=event)


@dataclass(frozen=True)
class PricedPart(RequestedPart):
    """A part of a job, ready to be quoted or accepted: dataset, scope, amount, and the event that is released."""

    event: Event


def price_part(asked: Asked, body: SpendingBody) -> RequestedPart:
    """Reads the scope of a request and converts its (ε, δ) to an amount; the account's δ is the default.

    Raises:
        InvalidRequest: scope, ε or δ break a rule.
    """
    scope = asked.dataset.read_scope(body.scope, asked.uploads)
    delta = asked.delta if body.delta is None else body.delta
    return RequestedPart(
        asked=asked,
        scope=scope,
        accountant=asked.accountant,
        amount=price_of(body.epsilon, accountant=asked.accountant, delta=delta),
        epsilon=body.epsilon,
        delta=delta,
        public_size=asked.expected_rows(scope),
    )
