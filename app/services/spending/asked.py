"""Reads the datasets that a request names: the caller's roles on them, and the public facts that price the request."""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlalchemy import BindParameter, bindparam, select
from sqlalchemy.orm import Session

from app.access import authority, grants
from app.access.roles import Principal, Role
from app.access.tables import GrantRow, KeyRow
from app.core.ids import is_reference
from app.datasets import catalog
from app.datasets.tables import DatasetRow
from app.ledger.tables import AccountRow
from app.privacy.composition import Scope
from app.privacy.guarantees import SplitDelta
from app.services.installation import Installation


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
    principal = authority.confirm_row(session, caller, key, now=installation.database.now)
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
