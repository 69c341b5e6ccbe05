"""Who is calling? Opens, reads and closes a session of its own before any service opens one."""

from app.access import keys
from app.access.roles import Principal
from app.core.errors import Unauthenticated
from app.services.installation import Installation

_SCHEME = "bearer "


def authenticate(installation: Installation, authorization: str | None) -> Principal:
    """The principal behind an ``Authorization`` header.

    Raises:
        Unauthenticated: missing, malformed, unknown, wrong or revoked: all alike.
    """
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise Unauthenticated
    with installation.database.read() as session:
        return keys.authenticate(session, authorization[len(_SCHEME) :].strip())
