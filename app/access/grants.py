"""Grants of roles on datasets."""

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.access.roles import Principal, Role
from app.access.tables import GrantRow
from app.core.errors import NotFound, RoleMissing
from app.db.upsert import insert


def granted(session: Session, principal: Principal, dataset_id: str) -> Role | None:
    """The role that was granted to a key on a dataset, if any."""
    row = session.get(GrantRow, (principal.key_id, dataset_id))
    return None if row is None else Role(row.role)


def require(session: Session, principal: Principal, dataset_id: str, needed: Collection[Role], *, kind: str) -> None:
    """Checks that the principal may act on a dataset.

    Args:
        needed: any one of these roles is enough.
        kind: what the caller asked for (``dataset``, ``job``, ``model``): the word of a ``NotFound``.

    Raises:
        NotFound: the principal may not even know that the dataset exists.
        RoleMissing: it may see the dataset but holds none of ``needed``.
    """
    held = principal.acts_as(granted(session, principal, dataset_id))
    if not held:
        raise NotFound(kind)
    if held.isdisjoint(needed):
        raise RoleMissing(sorted(role.value for role in needed))


def datasets_with(session: Session, principal: Principal, wanted: Collection[Role]) -> list[str] | None:
    """Ids of the datasets on which the principal holds one of ``wanted``; ``None`` = on all of them."""
    if not principal.acts_as(None).isdisjoint(wanted):
        return None
    rows = session.execute(select(GrantRow).where(GrantRow.key_id == principal.key_id)).scalars()
    return [row.dataset_id for row in rows if not principal.acts_as(Role(row.role)).isdisjoint(wanted)]


def granted_as(session: Session, principal: Principal, role: Role) -> list[str]:
    """Ids of the datasets on which a key was granted exactly a role; what an admin may do everywhere is no grant."""
    rows = select(GrantRow.dataset_id).where(GrantRow.key_id == principal.key_id, GrantRow.role == role.value)
    return list(session.execute(rows.order_by(GrantRow.dataset_id)).scalars())


def put(session: Session, *, dataset_id: str, key_id: str, role: Role) -> None:
    """Grants a role, in place of the one the key had there."""
    new = insert(session, GrantRow).values(key_id=key_id, dataset_id=dataset_id, role=role.value)
    session.execute(new.on_conflict_do_update(index_elements=["key_id", "dataset_id"], set_={"role": role.value}))


def remove(session: Session, *, dataset_id: str, key_id: str) -> None:
    """Takes a grant back; nothing happens where there was none."""
    session.execute(delete(GrantRow).where(GrantRow.key_id == key_id, GrantRow.dataset_id == dataset_id))
