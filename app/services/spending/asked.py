"""Reads what a request asks of datasets, from public facts: datasets, scopes, terms,
and the priced parts of a job.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from sqlalchemy import BindParameter, bindparam, select
from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.access.tables import GrantRow, KeyRow
from app.core.stamps import is_reference
from app.datasets import catalog
from app.datasets.catalog import DatasetRow
from app.ledger import kept_states
from app.ledger.tables import AccountRow
from app.services.guarantees import of_large_amount
from app.wire.spending import PriceOut
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Event
from grovekeeper_forests.privacy.scope import Scope

_LARGE_DELTA = (
    "δ is above one in a million, or above a tenth of one over the public size. A mechanism that occasionally "
    "publishes a whole row could satisfy such a δ."
)
_NO_ROWS = (
    "The dataset has no rows yet: a job is refused until its owner has uploaded some."
)


@dataclass(frozen=True)
class AskedDataset:
    """A dataset that a request names, with the facts that price the request; none of
    them depends on rows.

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

    def continues(self, earlier: "AskedDataset") -> bool:
        """Whether what was planned from earlier facts holds: nothing but uploads came
        since.

        The first upload fixes the declaration. Until then, another transaction may
        change it after this one has read it, and before this one has its locks.
        """
        is_same_account = (self.accountant, self.delta) == (
            earlier.accountant,
            earlier.delta,
        )
        has_uploads = set(self.uploads).issuperset(earlier.uploads)
        return (
            is_same_account
            and has_uploads
            and bool(earlier.uploads) == bool(self.uploads)
            and self.dataset.is_declared_as(earlier.dataset)
        )


def read_asked(
    session: Session,
    caller: Principal,
    references: Sequence[str],
    roles: Set[Role],
) -> tuple[Principal, list[AskedDataset]]:
    """Finds datasets by id or name, and checks that the caller has one of several roles
    on each.

    One query reads everything, unless the name of a deleted dataset is among the
    references.

    Returns:
        The caller with its present roles, and the datasets in the order of the
        references.

    Raises:
        BalanceMismatch: a dataset differs from what the first entry of its account
            states.
    """
    key, rows = _query_asked(
        session,
        caller,
        [reference for reference in references if is_reference(reference)],
    )
    principal = grants.confirm_row(session, caller, key)
    asked = []
    for reference in references:
        row = rows.get(reference)
        if row is None:
            dataset_id = catalog.find(session, reference).id
            row = _query_asked(session, caller, [dataset_id])[1][dataset_id]
        dataset = catalog.Dataset(row.DatasetRow)
        account = row.AccountRow
        grants.check(
            principal,
            None if row.role is None else Role(row.role),
            roles,
            kind="dataset",
        )
        kept_states.require_declared(session, account, dataset.facts)
        uploads = catalog.uploads_of_text(row.uploads)
        delta = account.split_delta.converted_at
        asked.append(AskedDataset(dataset, uploads, account.accountant, delta))
    return principal, asked


_references: BindParameter[Any] = bindparam("references", expanding=True)
_ASKED = (
    select(
        KeyRow,
        DatasetRow,
        GrantRow.role,
        catalog.uploads_as_text().label("uploads"),
        AccountRow,
    )
    .select_from(KeyRow)
    .outerjoin(
        DatasetRow,
        DatasetRow.id.in_(_references) | DatasetRow.living_name.in_(_references),
    )
    .outerjoin(
        GrantRow,
        (GrantRow.key_id == KeyRow.id) & (GrantRow.dataset_id == DatasetRow.id),
    )
    .outerjoin(AccountRow, AccountRow.id == DatasetRow.id)
    .where(KeyRow.id == bindparam("key_id"))
    .execution_options(populate_existing=True)
)


def _query_asked(
    session: Session, caller: Principal, references: Collection[str]
) -> tuple[KeyRow | None, dict[str, Any]]:
    """The caller's key, and for each reference that is an id or the name of a living
    dataset its row of the query.
    """
    rows: Sequence[Any] = session.execute(
        _ASKED, {"key_id": caller.key_id, "references": references}
    ).all()
    of_datasets = [row for row in rows if row.DatasetRow is not None]
    by_name = {row.DatasetRow.living_name: row for row in of_datasets}
    by_id = {row.DatasetRow.id: row for row in of_datasets}
    return rows[0].KeyRow if rows else None, {**by_name, **by_id}


class SpendingBody(Protocol):
    """The fields of a request's body that :func:`ask_part` reads."""

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
class AskedPart:
    """The rows that a job reads in one dataset, and what the account pays for them; all
    from public facts.

    Attributes:
        source: the dataset and its uploads.
        scope: the requested scope; acceptance adds the uploads that exist at that time.
        terms: of the account; δ is that of the request, or else that of the account.
        amount: the price of the terms.
        schema: the declared columns, of the labels with the one that the job reads.
        label: the label that the job reads, where the dataset declares several; ``None``
            where it declares one, or the job names no label.
    """

    source: AskedDataset
    scope: Scope
    terms: Terms
    amount: int
    schema: Schema
    label: str | None

    @property
    def dataset(self) -> catalog.Dataset:
        """The dataset whose rows the part reads and whose account pays."""
        return self.source.dataset

    @property
    def public_size(self) -> int | None:
        """The declared order of magnitude of the rows in the scope; never a count."""
        n_epochs = len(self.source.uploads)
        return self.dataset.expected_rows(self.scope, n_epochs=n_epochs)

    @property
    def scope_to_charge(self) -> Scope:
        """The scope that would be charged now: :attr:`scope` with the present uploads."""
        return self.dataset.narrowed(self.scope, self.source.uploads)

    @property
    def price(self) -> PriceOut:
        """The price as answers show it: exactly the requested (ε, δ), in the account's
        unit.
        """
        return PriceOut(**self.terms.stated(self.amount))

    @property
    def warnings(self) -> list[str]:
        """Sentences about the requested numbers and the declaration."""
        usual_delta = min(
            Fraction(1, 10**6),
            Fraction(1, 10 * max(self.dataset.row.public_size or 0, 1)),
        )
        terms = self.terms
        is_large = terms.delta is not None and terms.delta > usual_delta
        return [
            *of_large_amount(
                Amount(terms.accountant, self.amount),
                delta=terms.delta,
                adjacency=terms.adjacency,
            ),
            *([_LARGE_DELTA] if is_large else []),
            *([] if self.source.uploads else [_NO_ROWS]),
            *self.dataset.warnings,
        ]


@dataclass(frozen=True)
class PricedPart:
    """A part of a job, ready to be quoted or accepted: what was asked, and the event
    that its price pays for.
    """

    asked: AskedPart
    event: Event

    def as_charged(self, uploads: Sequence[str]) -> "PricedPart":
        """The part, with the uploads that the dataset has by now, and with the scope
        that the job is charged for now.
        """
        source = replace(self.asked.source, uploads=uploads)
        scope = source.dataset.narrowed(self.asked.scope, uploads)
        return replace(self, asked=replace(self.asked, source=source, scope=scope))


def ask_part(
    source: AskedDataset, body: SpendingBody, *, label: str | None = None
) -> AskedPart:
    """Reads the scope of a request and prices its (ε, δ); the account's δ is the
    default.

    Args:
        label: of a dataset with several (:meth:`Dataset.read_label`).
    """
    dataset = source.dataset
    delta = source.delta if body.delta is None else body.delta
    scope = dataset.read_scope(body.scope, source.uploads)
    terms = Terms(
        body.epsilon, source.accountant, delta, dataset.adjacency, dataset.max_rows
    )
    schema = dataset.schema
    if label is not None:
        schema = schema.with_label(label)
    return AskedPart(source, scope, terms, terms.price(), schema, label)
