"""Serves ``/keys``: creates, lists, rotates and revokes keys; creates the first admin key of an installation."""

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from app.access import grants, keys
from app.access.keys import NewKey, NotAKey
from app.access.roles import Principal, Role
from app.access.tables import KeyRow
from app.core import limits, stamps
from app.core.errors import InstallationError, InvalidRequest, NotFound
from app.datasets import catalog
from app.db.database import Database
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import acting
from app.services.installation import Installation
from app.services.pages import PageRequest, page_of
from app.wire.keys import KeyCreated, KeyIn, KeyList, KeyOut, RotationIn


def create_key(installation: Installation, principal: Principal, body: KeyIn) -> KeyCreated:
    """Makes a key. Only this answer shows the secret.

    Raises:
        RoleMissing: only an admin makes keys.
        InvalidRequest: the key would expire in the past, or too late.
    """
    roles = [Role(role) for role in body.roles]
    with acting(installation, principal) as (session, principal):
        principal.require(Role.ADMIN)
        at = installation.database.now(session)
        _check_expiry(body.expires_at, at=at)
        new_key = keys.create(session, name=body.name, roles=roles, at=at, expires_at=body.expires_at)
        row = keys.find(session, new_key.id)
        _record_made(session, row, actor=principal.key_id)
        return _key_created(row, new_key)


def rotate_key(installation: Installation, principal: Principal, key_id: str, body: RotationIn) -> KeyCreated:
    """Replaces a key's secret, which only this answer shows. Requests with the earlier secret have no effect from here.

    The id stays, and with it grants, jobs and stored answers: a request that is repeated with the present secret
    spends nothing again.

    Raises:
        RoleMissing: only an admin rotates.
        NotFound: no such key, or it is revoked.
        InvalidRequest: the key would be expired, or expire too late.
    """
    principal.require(Role.ADMIN)  # the transaction delays the requests of the other key
    with acting(installation, principal, changing=key_id) as (session, principal):
        principal.require(Role.ADMIN)
        row = keys.find(session, key_id)
        if row.revoked_at is not None or row.issuer is not None:
            raise NotFound("key")
        at = installation.database.now(session)
        row.expires_at = body.expires_at or row.expires_at
        _check_expiry(row.expires_at, at=at)
        rotated = keys.rotate(row, at=at)
        control.record(session, EntryKind.KEY_ROTATED, actor=principal.key_id, key=key_id, **_expiry(row))
        return _key_created(row, rotated)


def end_sessions(installation: Installation, principal: Principal) -> None:
    """Ends every session of the caller's key in the dashboard; the key itself stays valid."""
    with acting(installation, principal) as (session, principal):
        keys.end_sessions(session, principal.key_id)


def list_keys(
    installation: Installation, principal: Principal, page: PageRequest, *, part: str | None = None
) -> KeyList:
    """Lists keys without their secrets, including expired and revoked keys; only those with ``part`` in id or name.

    Raises:
        RoleMissing: only an admin lists keys.
    """
    principal.require(Role.ADMIN)
    with installation.database.read() as session:
        shown, following = page_of(
            page, lambda limit: keys.page(session, after=page.cursor, limit=limit, part=part), lambda row: row.id
        )
        return KeyList(keys=[_key_out(row) for row in shown], next=following)


def revoke_key(installation: Installation, principal: Principal, key_id: str) -> None:
    """Revokes a key. Every effect of the key was committed before; none follows. Revoking a revoked key succeeds.

    Raises:
        RoleMissing: only an admin revokes.
        NotFound: no such key.
    """
    principal.require(Role.ADMIN)  # the transaction delays the requests of the other key
    with acting(installation, principal, changing=key_id) as (session, principal):
        principal.require(Role.ADMIN)
        row = keys.find(session, key_id)
        if row.revoked_at is None:
            row.revoked_at = installation.database.now(session)
            control.record(session, EntryKind.KEY_REVOKED, actor=principal.key_id, key=key_id)


def show_revocation(installation: Installation, principal: Principal, key_id: str) -> tuple[KeyOut, dict[str, str]]:
    """Shows a key before it is revoked, with the names, by id, of the datasets that no other working key owns.

    A revocation is a matter of security, so it leaves datasets without an owner if it must; admins act there then.

    Raises:
        RoleMissing: only an admin revokes.
        NotFound: no such key.
    """
    principal.require(Role.ADMIN)
    with installation.database.read() as session:
        row = keys.find(session, key_id)
        owned = grants.only_owner_of(session, key_id, at=installation.database.now(session))
        return _key_out(row), {dataset_id: named.name for dataset_id, named in catalog.named(session, owned).items()}


def record_uses(installation: Installation) -> None:
    """Writes the uses of keys that this process has noted.

    Raises:
        Unavailable: the database cannot be reached or is too busy; the next call writes the same uses.
    """
    uses = installation.last_uses.take()
    if uses:
        with installation.database.write() as session:
            keys.write_uses(session, uses)
        installation.last_uses.forget(uses)


def ensure_first_admin(database: Database, configured: str | None) -> NewKey | None:
    """Makes sure that an admin key exists before the service listens.

    Args:
        configured: the operator's key text, if one is configured; it is registered if it is new.

    Returns:
        A generated key, if no admin key existed; else ``None``.

    Raises:
        InstallationError: the configured key is malformed, or its id belongs to another secret.
    """
    with database.write() as session:
        at = database.now(session)
        if configured is not None:
            _register_configured(database, session, configured)
            return None
        if keys.living_admin_exists(session, at=at):
            return None
        return _create_admin(session, "first admin", at=at)


def create_admin(database: Database, name: str) -> NewKey:
    """Makes an admin key on the installation itself, for operators who lost all admin keys."""
    with database.write() as session:
        return _create_admin(session, name, at=database.now(session))


def _create_admin(session: Session, name: str, *, at: datetime) -> NewKey:
    new_key = keys.create(session, name=name, roles=[Role.ADMIN], at=at)
    _record_made(session, keys.find(session, new_key.id), actor=control.OPERATOR)
    return new_key


def _record_made(session: Session, row: KeyRow, *, actor: str) -> None:
    control.record(session, EntryKind.KEY_MADE, actor=actor, key=row.id, roles=row.roles, **_expiry(row))


def _expiry(row: KeyRow) -> dict[str, str]:
    """The time of expiry as a detail of an act; nothing for a key that does not expire."""
    return {} if row.expires_at is None else {"expires_at": stamps.to_text(row.expires_at)}


def _check_expiry(expires_at: datetime | None, *, at: datetime) -> None:
    """Checks that a key expires later than now, and not too late.

    Raises:
        InvalidRequest: it does not.
    """
    if expires_at is None:
        return
    if expires_at <= at:
        raise InvalidRequest.at("/expires_at", "too-early")
    if expires_at > at + timedelta(days=limits.MAX_KEY_LIFETIME_DAYS):
        latest = f"at most {limits.MAX_KEY_LIFETIME_DAYS} days from now"
        raise InvalidRequest.at("/expires_at", "too-late", accepted=[latest])


def _register_configured(database: Database, session: Session, configured: str) -> None:
    try:
        key_id, secret = keys.split(configured)
    except NotAKey:
        raise InstallationError("the configured admin key is not of the form <id>.<secret>") from None
    row = session.get(KeyRow, key_id)
    if row is None:
        keys.add(
            session,
            key_id=key_id,
            secret=secret,
            name="configured admin",
            roles=[Role.ADMIN],
            at=database.now(session),
        )
        _record_made(session, keys.find(session, key_id), actor=control.OPERATOR)
    elif not keys.secret_matches(row, secret):
        raise InstallationError("the id of the configured admin key belongs to a key with another secret")


def _key_created(row: KeyRow, shown: NewKey) -> KeyCreated:
    return KeyCreated(
        id=row.id, name=row.name, key=shown.text, roles=row.roles, expires_at=_text_or_none(row.expires_at)
    )


def _key_out(row: KeyRow) -> KeyOut:
    return KeyOut(
        id=row.id,
        name=row.name,
        issuer=row.issuer,
        roles=row.roles,
        created_at=stamps.to_text(row.created_at),
        expires_at=_text_or_none(row.expires_at),
        rotated_at=_text_or_none(row.rotated_at),
        revoked_at=_text_or_none(row.revoked_at),
        last_used_at=_text_or_none(row.last_used_at),
    )


def _text_or_none(at: datetime | None) -> str | None:
    return None if at is None else stamps.to_text(at)
