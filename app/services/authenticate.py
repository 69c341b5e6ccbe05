"""Authenticates the caller of a request, in a session that closes before any service opens a session."""

from app.access import keys
from app.access.roles import Principal
from app.core.errors import Unauthenticated
from app.services.authorization import present
from app.services.installation import Installation

_SCHEME = "bearer "


def confirm(installation: Installation, principal: Principal) -> Principal:
    """The principal of a request that began some time ago, with its present roles.

    Raises:
        Unauthenticated: the key was revoked or rotated meanwhile, or has expired.
    """
    with installation.database.read() as session:
        return present(installation, session, principal)


def authenticate(installation: Installation, authorization: str | None) -> Principal:
    """Finds the principal of an ``Authorization`` header.

    Raises:
        Unauthenticated: the key is missing, malformed, unknown, wrong, expired or revoked; the error does not say
            which.
    """
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise Unauthenticated
    with installation.database.read() as session:
        return keys.authenticate(session, authorization[len(_SCHEME) :].strip(), now=installation.database.now)
