"""Defines the roles of keys and the access policy, grants roles on datasets, and checks
them.

Globally a key may have the roles ``admin`` (every call on every dataset), ``owner``
(may declare datasets) and ``auditor`` (reads every ledger). On a dataset a key is
granted one of ``owner``, ``attester``, ``analyst``, ``predictor`` and ``auditor``;
owner includes attester, attester includes analyst, and analyst includes predictor. An
attester may charge the account for external mechanisms, whose privacy loss it states.

A transaction that acts on a key's authority locks the key's id ``shared`` before
anything else; a transaction that changes the authority, which is the key's row and its
grants, locks it ``exclusive``. So when a revocation is answered, every effect of the
key has been committed, and none follows.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Select, delete, or_, select
from sqlalchemy.orm import Session

from app.access.tables import GrantRow, KeyRow, is_working
from app.core import limits, stamps
from app.core.errors import InvalidRequest, NotFound, RoleMissing, Unauthenticated
from app.db import database
from app.db.base import find_row
from app.db.database import insert, transaction_time
from app.db.locks import lock_names


class Role(StrEnum):
    """A role of a key, globally or on one dataset."""

    ADMIN = "admin"
    OWNER = "owner"
    ATTESTER = "attester"
    ANALYST = "analyst"
    PREDICTOR = "predictor"
    AUDITOR = "auditor"


INCLUDED: dict[Role, frozenset[Role]] = {
    Role.ADMIN: frozenset(Role),
    Role.OWNER: frozenset({Role.OWNER, Role.ATTESTER, Role.ANALYST, Role.PREDICTOR}),
    Role.ATTESTER: frozenset({Role.ATTESTER, Role.ANALYST, Role.PREDICTOR}),
    Role.ANALYST: frozenset({Role.ANALYST, Role.PREDICTOR}),
    Role.PREDICTOR: frozenset({Role.PREDICTOR}),
    Role.AUDITOR: frozenset({Role.AUDITOR}),
}
"""All roles that a key has on a dataset where it was granted a role."""

# The roles that an action takes and that its refusal names. A role that includes one of
# them suffices: owners train, because an owner is an analyst, too. ``TRAIN`` is for
# jobs and quotes of every kind.
SEE_DATASET = frozenset({Role.OWNER, Role.ANALYST, Role.PREDICTOR, Role.AUDITOR})
MANAGE_DATASET = frozenset({Role.OWNER})
TRAIN = frozenset({Role.ANALYST})
SEE_JOB = frozenset({Role.ANALYST, Role.AUDITOR})
ATTEST = frozenset({Role.ATTESTER})
SEE_MODEL = frozenset({Role.ANALYST, Role.PREDICTOR})
TAKE_MODEL = frozenset({Role.ANALYST})
NAME_MODEL = frozenset({Role.ANALYST})
PREDICT = frozenset({Role.PREDICTOR})
SEE_BALANCE = frozenset({Role.AUDITOR, Role.OWNER, Role.ANALYST})
SEE_RESERVATIONS = frozenset({Role.AUDITOR, Role.OWNER, Role.ATTESTER})
SEE_GRANTS = frozenset({Role.AUDITOR, Role.OWNER})
SEE_LEDGER = frozenset({Role.AUDITOR, Role.OWNER})
STATE_VERIFICATION = frozenset({Role.AUDITOR})


@dataclass(frozen=True)
class Principal:
    """An authenticated caller, with its global roles.

    Attributes:
        rotated_at: when the secret that the caller sent replaced another secret, if
            ever. A later rotation ends the authority of the caller, and not of the key.
        token_expires_at: when the token that the caller sent ends, if the caller sent a
            token.
        expires_at: when the key ends, if ever, by the clock of the database.
        sign_outs: how often the sessions of the key in the dashboard were ended.
    """

    key_id: str
    roles: frozenset[Role] = field(default_factory=frozenset)
    rotated_at: datetime | None = None
    token_expires_at: datetime | None = None
    expires_at: datetime | None = None
    sign_outs: int = field(default=0, compare=False)
    name: str = field(default="", compare=False)

    @property
    def is_admin(self) -> bool:
        return Role.ADMIN in self.roles

    def require(self, *needed: Role) -> None:
        """Checks that the key has one of several global roles, or ``admin``.

        Raises:
            RoleMissing: the key has neither ``admin`` nor one of ``needed``.
        """
        if not self.is_admin and self.roles.isdisjoint(needed):
            raise RoleMissing(
                [role.value for role in needed] or [Role.ADMIN.value], is_global=True
            )

    def acts_as(self, granted: Role | None) -> frozenset[Role]:
        """All roles of the principal on a dataset where it was granted ``granted``;
        empty if the dataset is hidden.
        """
        # the other global roles say nothing about a dataset
        held = self.roles & {Role.ADMIN, Role.AUDITOR}
        if granted is not None:
            held |= {granted}
        return frozenset[Role]().union(*(INCLUDED[role] for role in held))


def lock(session: Session, key_id: str, *, changing: str | None = None) -> None:
    """Keeps the authority of a key unchanged until the write transaction ends.

    Args:
        session: a write transaction that has locked nothing yet.
        changing: the key whose row or grants the transaction changes, if any.
    """
    lock_names(
        session, shared=[key_id], exclusive=[] if changing is None else [changing]
    )


def confirm(session: Session, principal: Principal) -> Principal:
    """The present authority of a caller that was authenticated some time ago; raises
    what :func:`confirm_row` raises.
    """
    return confirm_row(session, principal, session.get(KeyRow, principal.key_id))


def confirm_row(
    session: Session, principal: Principal, row: KeyRow | None
) -> Principal:
    """The present authority of a caller whose key's row the transaction has read.

    Raises:
        Unauthenticated: the key was revoked, has expired or got another secret, or the
            caller's token has expired.
    """
    present = authority(session, row)
    if present.rotated_at != principal.rotated_at:
        raise Unauthenticated
    if (
        principal.token_expires_at is not None
        and principal.token_expires_at <= stamps.now()
    ):
        raise Unauthenticated
    return replace(present, token_expires_at=principal.token_expires_at)


def read(session: Session, key_id: str) -> Principal:
    """The authority of a key at the time of the transaction, whatever its secret is.

    Raises:
        Unauthenticated: the key was revoked or has expired.
    """
    return authority(session, session.get(KeyRow, key_id))


def has_expired(session: Session, key_id: str) -> bool:
    """Whether a key without authority has come to its end: nobody revoked it."""
    row = session.get(KeyRow, key_id)
    return row is not None and row.revoked_at is None


def authority(session: Session, row: KeyRow | None) -> Principal:
    """The authority of a key by its row; raises what :func:`read` raises."""
    if row is None or row.revoked_at is not None:
        raise Unauthenticated
    # not the time of the transaction, which would then lie before its waits for locks
    if row.expires_at is not None and row.expires_at <= database.now(session):
        raise Unauthenticated
    roles = frozenset(map(Role, row.roles))
    return Principal(
        row.id,
        roles,
        row.rotated_at,
        expires_at=row.expires_at,
        sign_outs=row.sign_outs or 0,
        name=row.name,
    )


def granted(session: Session, principal: Principal, dataset_id: str) -> Role | None:
    """The role that a key was granted on a dataset, if any."""
    row = session.get(GrantRow, (principal.key_id, dataset_id))
    return None if row is None else Role(row.role)


def require(
    session: Session,
    principal: Principal,
    dataset_id: str,
    needed: Collection[Role],
    *,
    kind: str,
) -> None:
    """Checks that the principal has one of several roles on a dataset; raises what
    :func:`check` raises.

    Args:
        kind: kind of the requested resource (``dataset``, ``job``, ``model``), for the
            text of ``NotFound``.
    """
    check(principal, granted(session, principal, dataset_id), needed, kind=kind)


def check(
    principal: Principal, role: Role | None, needed: Collection[Role], *, kind: str
) -> None:
    """Checks that the principal, with the role that it was granted on a resource, has
    one of several roles there.

    Raises:
        NotFound: the principal has no role there.
        RoleMissing: it has other roles there.
    """
    roles = principal.acts_as(role)
    if not roles:
        raise NotFound(kind)
    if roles.isdisjoint(needed):
        raise RoleMissing(sorted(role.value for role in needed))


def datasets_with(
    session: Session,
    principal: Principal,
    needed: Collection[Role],
    roles: Mapping[str, str] | None = None,
) -> list[str] | None:
    """Ids of the datasets on which the principal has one of several roles; ``None`` if
    on every dataset.

    Args:
        roles: those of :func:`granted_to`, where the caller has read them.
    """
    if not principal.acts_as(None).isdisjoint(needed):
        return None
    if roles is None:
        roles = granted_to(session, principal)
    return [
        dataset_id
        for dataset_id, role in roles.items()
        if not principal.acts_as(Role(role)).isdisjoint(needed)
    ]


def granted_as(session: Session, principal: Principal, role: Role) -> list[str]:
    """Ids of the datasets on which the key was granted a role. An admin's global rights
    do not count as grants.
    """
    roles = granted_to(session, principal)
    return sorted(dataset_id for dataset_id in roles if roles[dataset_id] == role)


def granted_to(session: Session, principal: Principal) -> dict[str, str]:
    """The roles that a key was granted, by dataset."""
    rows = session.execute(
        select(GrantRow.dataset_id, GrantRow.role).where(
            GrantRow.key_id == principal.key_id
        )
    )
    return {row.dataset_id: row.role for row in rows}


def put(session: Session, *, dataset_id: str, key_id: str, role: Role, by: str) -> None:
    """Grants a key a role on a dataset, in place of an earlier grant."""
    granted = {
        "role": role.value,
        "granted_by": by,
        "granted_at": transaction_time(session),
    }
    statement = insert(session, GrantRow).values(
        key_id=key_id, dataset_id=dataset_id, **granted
    )
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["key_id", "dataset_id"], set_=granted
        )
    )


def page(
    session: Session, dataset_id: str, *, after: str | None, limit: int
) -> list[tuple[GrantRow, KeyRow]]:
    """Reads a page of the grants on a dataset, each with its key, in order of the keys'
    ids.

    Raises:
        NotFound: ``after`` is no key.
    """
    query = (
        select(GrantRow, KeyRow)
        .join(KeyRow, KeyRow.id == GrantRow.key_id)
        .where(GrantRow.dataset_id == dataset_id)
        .order_by(GrantRow.key_id)
        .limit(limit)
    )
    if after is not None:
        # not the grant, which may have been removed since the page before
        find_row(session, KeyRow, after, kind="key")
        query = query.where(GrantRow.key_id > after)
    return [(grant, key) for grant, key in session.execute(query)]


def names_of_keys(
    session: Session, principal: Principal, dataset_id: str | None, ids: Collection[str]
) -> dict[str, str]:
    """The names of those keys whose names a principal may know, by id, in the order of
    ``ids``.

    Who sees the grants of all datasets knows every key. Who sees the grants of one
    dataset knows the keys with a grant. Everybody knows the own key.

    Args:
        ids: of keys; texts that are no key's id have no name.
    """
    names = {principal.key_id: principal.name} if principal.name else {}
    query = _known(session, principal, dataset_id)
    if query is not None:
        named = session.execute(query.where(KeyRow.id.in_(sorted(ids))))
        names |= {row.id: row.name for row in named}
    return {key_id: names[key_id] for key_id in ids if key_id in names}


def names_on_datasets(
    session: Session, principal: Principal, pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """The names of keys beside datasets, by dataset and key, where a principal may know
    them: as :func:`names_of_keys`, for many datasets at once, and its own.
    """
    named = select(KeyRow.id, KeyRow.name).where(
        KeyRow.id.in_(sorted({key for _, key in pairs}))
    )
    among = datasets_with(session, principal, SEE_GRANTS)
    if among is None:
        names = dict(iter(session.execute(named)))
        return {pair: names[pair[1]] for pair in pairs if pair[1] in names}
    granted_keys = named.join(GrantRow, GrantRow.key_id == KeyRow.id)
    rows = session.execute(
        granted_keys.add_columns(GrantRow.dataset_id).where(
            GrantRow.dataset_id.in_(among)
        )
    )
    known = {(dataset_id, key): name for key, name, dataset_id in rows}
    own = {pair: principal.name for pair in pairs if pair[1] == principal.key_id}
    return {pair: name for pair, name in (own | known).items() if name}


def keys_of_name(
    session: Session,
    principal: Principal,
    dataset_id: str | None,
    name: str,
    *,
    among: Select[str],
) -> list[str]:
    """The ids of the keys of a name, among those whose names a principal may know, in
    the order of their ids.

    Args:
        among: selects the ids that are searched, before the answer is cut at
            ``limits.MAX_KEYS_OF_A_NAME``.
    """
    query = _known(session, principal, dataset_id)
    if query is None:
        return []
    query = query.where(KeyRow.name == name, KeyRow.id.in_(among))
    return [
        row.id
        for row in session.execute(
            query.order_by(KeyRow.id).limit(limits.MAX_KEYS_OF_A_NAME)
        )
    ]


def keys_meant(session: Session, principal: Principal, named: str) -> list[str]:
    """The ids of the keys that a filter of several datasets means by an id or a name:
    keys whose names the principal may know on one of them.
    """
    query = select(KeyRow.id).where(KeyRow.name == named)
    among = datasets_with(session, principal, SEE_GRANTS)
    if among is not None:
        granted_keys = select(GrantRow.key_id).where(GrantRow.dataset_id.in_(among))
        known = or_(KeyRow.id.in_(granted_keys), KeyRow.id == principal.key_id)
        query = query.where(known)
    query = query.order_by(KeyRow.id).limit(limits.MAX_KEYS_OF_A_NAME)
    return [named, *session.scalars(query)]


def key_named(
    session: Session, principal: Principal, dataset_id: str, named: str, *, at: str
) -> str | None:
    """The id of the key that a caller names by its id, or by the name of a key that was
    not revoked and whose name the caller may know; ``None`` if there is none.

    Args:
        at: a JSON pointer to the name in the request.

    Raises:
        InvalidRequest: several keys have the name; the error lists their ids.
    """
    if stamps.is_reference(named) and session.get(KeyRow, named) is not None:
        return named
    living = select(KeyRow.id).where(KeyRow.revoked_at.is_(None))
    ids = []
    if named.isprintable():  # PostgreSQL refuses a text with a NUL
        ids = keys_of_name(session, principal, dataset_id, named, among=living)
    if len(ids) > 1:
        raise InvalidRequest.at(at, "ambiguous", accepted=ids)
    return ids[0] if ids else None


def _known(
    session: Session, principal: Principal, dataset_id: str | None
) -> Select[str, str] | None:
    """Selects the ids and names of the keys whose names a principal may know; ``None``
    if it may know none.
    """
    query = select(KeyRow.id, KeyRow.name)
    if not principal.acts_as(None).isdisjoint(SEE_GRANTS):
        return query
    role = None
    if dataset_id is not None:
        role = granted(session, principal, dataset_id)
    if principal.acts_as(role).isdisjoint(SEE_GRANTS):
        return None
    return query.join(GrantRow, GrantRow.key_id == KeyRow.id).where(
        GrantRow.dataset_id == dataset_id
    )


def only_owner_of(
    session: Session, key_id: str, *, dataset_id: str | None = None
) -> list[str]:
    """The datasets, in order of id, that a working key owns and no other working key;
    ``dataset_id`` names one.

    Keys that were revoked or have expired are no owners. A caller that changes grants
    has locked the dataset.
    """
    owners = select(GrantRow.dataset_id).join(KeyRow, KeyRow.id == GrantRow.key_id)
    is_now = is_working(transaction_time(session))
    owners = owners.where(GrantRow.role == Role.OWNER.value, is_now)
    owned = owners.where(GrantRow.key_id == key_id)
    if dataset_id is not None:
        owned = owned.where(GrantRow.dataset_id == dataset_id)
    shared = owners.where(GrantRow.key_id != key_id)
    rows = session.execute(
        owned.where(GrantRow.dataset_id.not_in(shared)).order_by(GrantRow.dataset_id)
    )
    return list(rows.scalars())


def remove(session: Session, *, dataset_id: str, key_id: str) -> bool:
    """Revokes a grant. Returns whether it existed."""
    removed = session.execute(
        delete(GrantRow)
        .where(GrantRow.key_id == key_id, GrantRow.dataset_id == dataset_id)
        .returning(GrantRow.key_id)
    )
    return removed.first() is not None
