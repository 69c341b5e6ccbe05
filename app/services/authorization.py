"""Authenticates callers, opens transactions on their behalf, and checks their roles on
datasets.

A caller sends a key, or a token of the identity provider. The subject of a token is a
principal like a key: it has a row with an id, to which grants, jobs, stored answers and
limits belong, and which an admin revokes. A caller is authenticated in transactions
that end before any service opens a transaction.
"""

import hashlib
import math
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from app.access import grants, keys, tokens
from app.access.grants import MANAGE_DATASET, TRAIN, Principal, Role
from app.core import stamps
from app.core.errors import NotFound, RoleMissing, SubmitterRevoked, Unauthenticated
from app.core.settings import Settings
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs.states import EndReason
from app.jobs.tables import JobRow
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.installation import Installation

_SCHEME = "bearer "


@dataclass(frozen=True)
class IdentityProvider:
    """The provider whose tokens are accepted: its keys, and what its tokens have to
    say.
    """

    rules: tokens.TokenRules
    signing_keys: tokens.SigningKeys

    @classmethod
    def of(cls, settings: Settings) -> "IdentityProvider | None":
        """The provider of the settings, if they name one."""
        if settings.oidc_issuer is None:
            return None
        assert settings.oidc_audience is not None, "checked with the settings"
        roles = {value: Role(role) for value, role in settings.oidc_roles.items()}
        rules = tokens.TokenRules(
            settings.oidc_issuer,
            settings.oidc_audience,
            settings.oidc_roles_claim,
            roles,
            settings.oidc_max_lifetime_s,
        )
        return cls(
            rules, tokens.SigningKeys(settings.oidc_jwks, issuer=settings.oidc_issuer)
        )


def confirm(installation: Installation, principal: Principal) -> Principal:
    """The principal of a request that began some time ago, with its present roles."""
    with installation.database.read() as session:
        return grants.confirm(session, principal)


def credential_of(authorization: str | None) -> str | None:
    """The key or the token of an ``Authorization`` header, whatever white space
    surrounds it; ``None`` without one.
    """
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return authorization[len(_SCHEME) :].strip()


def is_token(authorization: str | None) -> bool:
    """Whether an ``Authorization`` header has a text with the form of a token."""
    credential = credential_of(authorization)
    return credential is not None and tokens.has_form(credential)


def authenticate(
    installation: Installation,
    authorization: str | None,
    *,
    provider: IdentityProvider | None = None,
) -> Principal:
    """Finds the principal of an ``Authorization`` header, which has a key or a token.

    Raises:
        Unauthenticated: the key or the token is missing, malformed, unknown, wrong,
            expired or revoked; the error does not say which of these.
    """
    credential = credential_of(authorization)
    if credential is None:
        raise Unauthenticated(was_sent=False)
    if provider is not None and tokens.has_form(credential):
        find_key = provider.signing_keys.find
        token = tokens.verify(
            credential, provider.rules, find_key=find_key, at=stamps.now()
        )
        return replace(_subject(installation, token), token_expires_at=token.expires_at)
    with installation.database.read() as session:
        return keys.authenticate(session, credential)


def cached(installation: Installation, authorization: str | None) -> Principal | None:
    """The principal of an ``Authorization`` header, if this process has read it just
    now. Reads no database.
    """
    credential, principal = credential_of(authorization), None
    if credential is not None:
        principal = installation.authority.get(credential_digest(credential))
    return principal


def authenticate_and_keep(
    installation: Installation,
    authorization: str | None,
    *,
    provider: IdentityProvider | None = None,
) -> Principal:
    """Authenticates as :func:`authenticate`, and keeps the principal for
    :func:`cached`.
    """
    credential = credential_of(authorization)
    if credential is None:
        raise Unauthenticated(was_sent=False)

    def read() -> tuple[Principal, float]:
        principal = authenticate(installation, authorization, provider=provider)
        return principal, _valid_s(installation, principal)

    return installation.authority.read(credential_digest(credential), read)


def credential_digest(credential: str) -> bytes:
    """The name of a key or a token in the cache, which holds no secret."""
    return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()


def _valid_s(installation: Installation, principal: Principal) -> float:
    """Seconds until the key or the token of a principal ends."""
    ends = [math.inf]
    if principal.token_expires_at is not None:
        ends.append((principal.token_expires_at - stamps.now()).total_seconds())
    if principal.expires_at is not None:
        with installation.database.read() as session:
            ends.append(
                (principal.expires_at - transaction_time(session)).total_seconds()
            )
    return min(ends)


def _subject(installation: Installation, token: tokens.Token) -> Principal:
    """The principal of a token's subject, whose roles are those of its newest token.

    Only the first token of a subject and a token with other roles write.
    """
    with installation.database.read() as session:
        row = tokens.find_subject(session, token)
        if row is not None and tokens.is_current(row, token):
            return grants.read(session, row.id)
    key_id = tokens.subject_id(token.issuer, token.subject)
    with installation.database.write() as session:
        grants.lock(session, key_id, changing=key_id)
        row = tokens.find_subject(session, token)
        is_first = row is None
        if row is None:
            row = tokens.add_subject(session, token)
            control.record(
                session,
                EntryKind.SUBJECT_ADMITTED,
                actor=key_id,
                key=key_id,
                roles=row.roles,
            )
        elif row.revoked_at is None and not tokens.is_current(row, token):
            row.roles, row.roles_at = token.role_names, token.issued_at
            control.record(
                session,
                EntryKind.SUBJECT_ROLES,
                actor=key_id,
                key=key_id,
                roles=row.roles,
            )
        principal = grants.read(session, key_id)
    if not is_first:
        keys.wait_for_revocation()  # an earlier token may have had more roles
    return principal


@contextmanager
def write_as(
    installation: Installation, caller: Principal, *, changing: str | None = None
) -> Iterator[tuple[Session, Principal]]:
    """A write transaction on behalf of a caller, and the caller with its present roles.

    A request may have begun long before: its key is read again as the first statement,
    and grants that are read in the transaction are the present ones. Every effect of a
    request happens in such a transaction (tests/architecture/test_authority.py).

    Args:
        changing: the key that the transaction revokes or rotates, or whose grants it
            changes. The block then ends when no process predicts by earlier authority,
            even if nothing changed: the change may be that of another request, which
            still waits.
    """
    with installation.database.write() as session:
        grants.lock(session, caller.key_id, changing=changing)
        yield session, grants.confirm(session, caller)
    if changing is not None:
        keys.wait_for_revocation()


def authorized_dataset(
    session: Session, principal: Principal, reference: str, roles: Set[Role]
) -> catalog.Dataset:
    """Finds a dataset by id or name, and checks that the caller has one of several
    roles on it.
    """
    dataset = catalog.find(session, reference)
    grants.require(session, principal, dataset.id, roles, kind="dataset")
    return dataset


def managed_dataset(
    session: Session, principal: Principal, reference: str
) -> catalog.Dataset:
    """A dataset that the caller may manage, locked; raises what
    :func:`authorized_dataset` raises.

    Raises:
        DatasetDeleted: its rows are erased.
    """
    dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
    return catalog.locked(session, dataset.id).living()


def require_submitter(session: Session, row: JobRow) -> None:
    """Checks that the submitter of a job may still train on every dataset of the job.

    Raises:
        SubmitterRevoked: its key or a grant was revoked, or the key expired.
    """
    try:
        submitter = grants.read(session, row.submitted_by)
        for dataset_id in {row.dataset_id, *(part.dataset for part in row.parts)}:
            grants.require(session, submitter, dataset_id, TRAIN, kind="dataset")
    except Unauthenticated:
        expired = grants.has_expired(session, row.submitted_by)
        raise SubmitterRevoked(
            EndReason.KEY_EXPIRED if expired else EndReason.REVOKED
        ) from None
    except (NotFound, RoleMissing):
        raise SubmitterRevoked(EndReason.REVOKED) from None


def require_role(
    installation: Installation, principal: Principal, reference: str, roles: Set[Role]
) -> str:
    """Checks that the caller has one of several roles on a dataset, before a page or a
    body; returns its id.
    """
    with installation.database.read() as session:
        return authorized_dataset(session, principal, reference, roles).id


def has_role(
    installation: Installation, principal: Principal, reference: str, roles: Set[Role]
) -> bool:
    """Whether the caller has one of several roles on a dataset that it sees. A page
    then offers what they allow.
    """
    try:
        require_role(installation, principal, reference, roles)
    except RoleMissing:
        return False
    return True
