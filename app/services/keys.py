"""Serves ``/keys`` and ``/datasets/{id}/grants``: makes, lists and revokes keys, and
gives them roles on datasets.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from app.access import grants, keys
from app.access.grants import MANAGE_DATASET, SEE_DATASET, SEE_GRANTS, Principal, Role
from app.access.idempotency import Answer, IdempotentRequest, once
from app.access.keys import NewKey, NotAKey
from app.access.tables import GrantRow, KeyRow
from app.core import limits, stamps
from app.core.errors import InstallationError, InvalidRequest, LastOwner, NotFound
from app.datasets import catalog
from app.db.database import Database, transaction_time
from app.db.locks import lock_names
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.authorization import authorized_dataset, write_as
from app.services.installation import Installation
from app.services.pagination import PageRequest, page_of
from app.wire.grants import GrantList, GrantOut, ListedGrant
from app.wire.keys import KeyCreated, KeyIn, KeyList, KeyOut, RotationIn


def create_key(
    installation: Installation,
    principal: Principal,
    body: KeyIn,
    *,
    request: IdempotentRequest | None = None,
) -> KeyCreated:
    """Makes a key. Only this answer shows the secret, and the answer to a form that is
    sent again.

    Raises:
        InvalidRequest: the key would expire in the past, or too late.
    """
    roles = list(map(Role, body.roles))
    with write_as(installation, principal) as (session, principal):
        principal.require(Role.ADMIN)

        def work() -> Answer:
            _check_expiry(session, body.expires_at)
            new_key = keys.create(
                session, name=body.name, roles=roles, expires_at=body.expires_at
            )
            row = keys.find(session, new_key.id)
            _record_made(session, row, actor=principal.key_id)
            return _key_created(row, new_key)

        return KeyCreated.model_validate_json(once(session, request, work).body)


def rotate_key(
    installation: Installation,
    principal: Principal,
    key_id: str,
    body: RotationIn,
    *,
    request: IdempotentRequest | None = None,
) -> KeyCreated:
    """Replaces a key's secret, which only this answer shows. Requests with the earlier
    secret have no effect from here.

    The id stays, and with it grants, jobs and stored answers: a request that is
    repeated with the present secret spends nothing again.

    Raises:
        NotFound: no such key, or it is revoked.
        InvalidRequest: the key would be expired, or expire too late.
    """
    # the transaction delays the requests of the other key
    principal.require(Role.ADMIN)
    with write_as(installation, principal, changing=key_id) as (session, principal):
        principal.require(Role.ADMIN)
        row = keys.find(session, key_id)
        if row.revoked_at is not None or row.issuer is not None:
            raise NotFound("key")

        def work() -> Answer:
            row.expires_at = body.expires_at or row.expires_at
            _check_expiry(session, row.expires_at)
            rotated = keys.rotate(row, at=transaction_time(session))
            control.record(
                session,
                EntryKind.KEY_ROTATED,
                actor=principal.key_id,
                key=key_id,
                **_expiry(row),
            )
            return _key_created(row, rotated)

        return KeyCreated.model_validate_json(once(session, request, work).body)


def end_sessions(installation: Installation, principal: Principal) -> None:
    """Ends every session of the caller's key in the dashboard; the key itself stays
    valid.
    """
    with write_as(installation, principal) as (session, principal):
        keys.end_sessions(session, principal.key_id)


def list_keys(
    installation: Installation,
    principal: Principal,
    page: PageRequest,
    *,
    part: str | None = None,
) -> KeyList:
    """Lists keys without their secrets, including expired and revoked keys; only those
    with ``part`` in id or name.
    """
    principal.require(Role.ADMIN)
    with installation.database.read() as session:
        shown, following = page_of(
            page,
            lambda limit: keys.page(session, after=page.cursor, limit=limit, part=part),
            lambda row: row.id,
        )
        return KeyList(keys=list(map(_key_out, shown)), next=following)


def revoke_key(installation: Installation, principal: Principal, key_id: str) -> None:
    """Revokes a key. Every effect of the key was committed before; none follows.
    Revoking a revoked key succeeds.
    """
    # the transaction delays the requests of the other key
    principal.require(Role.ADMIN)
    with write_as(installation, principal, changing=key_id) as (session, principal):
        principal.require(Role.ADMIN)
        row = keys.find(session, key_id)
        if row.revoked_at is None:
            row.revoked_at = transaction_time(session)
            control.record(
                session, EntryKind.KEY_REVOKED, actor=principal.key_id, key=key_id
            )


def show_revocation(
    installation: Installation, principal: Principal, key_id: str
) -> tuple[KeyOut, dict[str, str]]:
    """Shows a key before it is revoked, with the names, by id, of the datasets that no
    other working key owns.

    A revocation is a matter of security, so it leaves datasets without an owner if it
    must; admins act there then.
    """
    principal.require(Role.ADMIN)
    with installation.database.read() as session:
        row = keys.find(session, key_id)
        owned = grants.only_owner_of(session, key_id)
        return _key_out(row), {
            dataset_id: named.name
            for dataset_id, named in catalog.named(session, owned).items()
        }


def record_uses(installation: Installation) -> None:
    """Writes the uses of keys that this process has noted."""
    uses = installation.last_uses.take()
    if uses:
        with installation.database.write() as session:
            keys.write_uses(session, uses)
        installation.last_uses.forget(uses)


def _keeps_none(_: NewKey) -> None:
    raise InstallationError("no admin key exists")


def ensure_first_admin(
    database: Database,
    configured: str | None,
    *,
    of_file: str | None = None,
    keep: Callable[[NewKey], None] = _keeps_none,
) -> NewKey | None:
    """Makes sure that an admin key exists before the service listens.

    Args:
        configured: the operator's key text, if one is configured; it is registered if
            it is new.
        of_file: the text in the file of the first key, if there is one. It becomes the
            first admin key unless this database knows it, so a home has one such key,
            whatever its database is.
        keep: stores a generated key, before the commit: a key that is committed and
            lost could not be made again.

    Returns:
        A generated key, if no admin key existed; else ``None``.

    Raises:
        InstallationError: the configured key is malformed, or its id belongs to another
            secret.
    """
    with database.write() as session:
        # several servers may start on one new database
        lock_names(session, exclusive=["first admin key"])
        if configured is not None:
            _register_configured(session, configured)
            return None
        if keys.living_admin_exists(session):
            return None
        if _registered(session, of_file):
            return None
        generated = _create_admin(session, "first admin")
        keep(generated)
        return generated


def _registered(session: Session, of_file: str | None) -> bool:
    """Registers the key of a file as the first admin key, if it is a key that this
    database has never had.
    """
    try:
        key_id, secret = keys.split(of_file or "")
    except NotAKey:
        return False
    if session.get(KeyRow, key_id) is not None:
        return False
    _add_admin(session, key_id, secret, name="first admin")
    return True


def create_admin(database: Database, name: str) -> NewKey:
    """Makes an admin key on the installation itself, for operators who lost all admin
    keys.
    """
    with database.write() as session:
        return _create_admin(session, name)


def _create_admin(session: Session, name: str) -> NewKey:
    new_key = keys.create(session, name=name, roles=[Role.ADMIN])
    _record_made(session, keys.find(session, new_key.id), actor=control.OPERATOR)
    return new_key


def _add_admin(session: Session, key_id: str, secret: str, *, name: str) -> None:
    row = keys.add(session, key_id=key_id, secret=secret, name=name, roles=[Role.ADMIN])
    _record_made(session, row, actor=control.OPERATOR)


def _record_made(session: Session, row: KeyRow, *, actor: str) -> None:
    control.record(
        session,
        EntryKind.KEY_MADE,
        actor=actor,
        key=row.id,
        roles=row.roles,
        **_expiry(row),
    )


def _expiry(row: KeyRow) -> dict[str, str]:
    """The time of expiry as a detail of an act; nothing for a key that does not expire."""
    if row.expires_at is None:
        return {}
    return {"expires_at": stamps.to_text(row.expires_at)}


def _check_expiry(session: Session, expires_at: datetime | None) -> None:
    if expires_at is None:
        return
    at = transaction_time(session)
    if expires_at <= at:
        raise InvalidRequest.at("/expires_at", "too-early")
    if expires_at > at + timedelta(days=limits.MAX_KEY_LIFETIME_DAYS):
        latest = f"at most {limits.MAX_KEY_LIFETIME_DAYS} days from now"
        raise InvalidRequest.at("/expires_at", "too-late", accepted=[latest])


def _register_configured(session: Session, configured: str) -> None:
    try:
        key_id, secret = keys.split(configured)
    except NotAKey:
        raise InstallationError(
            "the configured admin key is not of the form <id>.<secret>"
        ) from None
    row = session.get(KeyRow, key_id)
    if row is None:
        _add_admin(session, key_id, secret, name="configured admin")
    elif not keys.secret_matches(row, secret):
        raise InstallationError(
            "the id of the configured admin key belongs to a key with another secret"
        )


def _key_created(row: KeyRow, shown: NewKey) -> Answer:
    fields = row.fields("id", "name", "roles", "expires_at")
    return Answer.of(201, KeyCreated(**fields, key=shown.text))


def _key_out(row: KeyRow) -> KeyOut:
    return KeyOut(
        **row.fields(
            "id", "name", "issuer", "roles", "created_at", "expires_at", "rotated_at", "revoked_at", "last_used_at",
        )
    )  # fmt: skip


def list_grants(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> GrantList:
    """Lists the grants on a dataset, in order of the keys' ids. Grants of expired and
    revoked keys have no effect.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_GRANTS)
        shown, following = page_of(
            page,
            lambda limit: grants.page(
                session, dataset.id, after=page.cursor, limit=limit
            ),
            lambda item: item[0].key_id,
        )
        listed = [_listed(grant, key) for grant, key in shown]
        return GrantList(**dataset.named, grants=listed, next=following)


def names_of_keys(
    installation: Installation,
    principal: Principal,
    reference: str,
    ids: Collection[str],
) -> dict[str, str]:
    """Reads the names of those of several keys whose names the caller may know, by id."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_DATASET)
        return grants.names_of_keys(session, principal, dataset.id, ids)


def key_named(
    installation: Installation, principal: Principal, reference: str, named: str
) -> str:
    """The id of the key that an owner names by its id or its name; what is named, if
    there is none.

    Raises:
        InvalidRequest: several keys have the name.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        key_id = grants.key_named(session, principal, dataset.id, named, at="/key_id")
        return key_id or named


def put_grant(
    installation: Installation,
    principal: Principal,
    reference: str,
    key_id: str,
    *,
    role: str,
) -> GrantOut:
    """Grants a role to a key, in place of its earlier role on the dataset.

    Raises:
        NotFound: no such dataset or key, or the key is revoked.
        LastOwner: the key is the only owner, and the role is another.
    """
    with _changing(installation, principal, reference, key_id) as (
        session,
        principal,
        dataset,
    ):
        if keys.find(session, key_id).revoked_at is not None:
            raise NotFound("key")
        if role != Role.OWNER:
            _require_another_owner(session, dataset.id, key_id)
        grants.put(
            session,
            dataset_id=dataset.id,
            key_id=key_id,
            role=Role(role),
            by=principal.key_id,
        )
        control.record(
            session,
            EntryKind.GRANT_MADE,
            actor=principal.key_id,
            dataset=dataset.id,
            key=key_id,
            role=role,
        )
        return GrantOut(**dataset.named, key_id=key_id, role=role)


def remove_grant(
    installation: Installation, principal: Principal, reference: str, key_id: str
) -> None:
    """Revokes a grant. Revoking a grant that does not exist succeeds.

    Raises:
        LastOwner: the key is the only owner. An admin can still revoke the key itself.
    """
    with _changing(installation, principal, reference, key_id) as (
        session,
        principal,
        dataset,
    ):
        keys.find(session, key_id)
        _require_another_owner(session, dataset.id, key_id)
        if grants.remove(session, dataset_id=dataset.id, key_id=key_id):
            control.record(
                session,
                EntryKind.GRANT_REMOVED,
                actor=principal.key_id,
                dataset=dataset.id,
                key=key_id,
            )


def show_grant(
    installation: Installation, principal: Principal, reference: str, key_id: str
) -> tuple[ListedGrant, bool]:
    """Shows a grant before it is revoked, and whether its key is the only owner.

    Raises:
        NotFound: no such dataset or grant, or the dataset is not visible to this key.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        row = None
        if stamps.is_reference(key_id):
            row = session.get(GrantRow, (key_id, dataset.id))
        if row is None:
            raise NotFound("grant")
        is_last = bool(grants.only_owner_of(session, key_id, dataset_id=dataset.id))
        return _listed(row, keys.find(session, key_id)), is_last


@contextmanager
def _changing(
    installation: Installation, principal: Principal, reference: str, key_id: str
) -> Iterator[tuple[Session, Principal, catalog.Dataset]]:
    """Opens a transaction that changes a grant of a key on a dataset, whose other
    grants nobody changes meanwhile.

    The transaction delays the requests of that key, so nobody opens it without a first
    check of the role.
    """
    with installation.database.read() as session:
        authorized_dataset(session, principal, reference, MANAGE_DATASET)
    with write_as(installation, principal, changing=key_id) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        yield session, principal, catalog.locked(session, dataset.id)


def _require_another_owner(session: Session, dataset_id: str, key_id: str) -> None:
    if grants.only_owner_of(session, key_id, dataset_id=dataset_id):
        raise LastOwner


def _listed(grant: GrantRow, key: KeyRow) -> ListedGrant:
    return ListedGrant(
        key_id=key.id,
        key_name=key.name,
        **grant.fields("role", "granted_at", "granted_by"),
        **key.fields("expires_at", "revoked_at", "last_used_at"),
    )
