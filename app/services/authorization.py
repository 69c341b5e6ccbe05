"""Opens transactions on behalf of callers, and checks their roles on the dataset that a request names."""

from collections.abc import Iterator, Set
from contextlib import contextmanager

from sqlalchemy.orm import Session

from app.access import grants
from app.access.cached_authority import wait_for_revocation
from app.access.roles import Principal, Role
from app.core.errors import RoleMissing
from app.datasets import catalog
from app.services.installation import Installation


@contextmanager
def acting(
    installation: Installation, caller: Principal, *, changing: str | None = None
) -> Iterator[tuple[Session, Principal]]:
    """A write transaction on behalf of a caller, and the caller with its present roles.

    A request may have begun long before: its key is read again as the first statement, and grants that are read in the
    transaction are the present ones. Every effect of a request happens in such a transaction
    (tests/architecture/test_authority.py).

    Args:
        installation: this installation.
        caller: the caller, who was authenticated when the request began.
        changing: the key that the transaction revokes or rotates, or whose grants it changes. The block then ends when
            no process predicts by earlier authority, even if nothing changed: the change may be that of another
            request, which still waits.

    Raises:
        Unauthenticated: the caller's key was revoked or rotated meanwhile, or has expired.
        Unavailable: the database cannot be reached or is too busy; nothing was committed.
    """
    with installation.database.write() as session:
        grants.lock(session, caller.key_id, changing=changing)
        yield session, present(installation, session, caller)
    if changing is not None:
        wait_for_revocation()


def present(installation: Installation, session: Session, caller: Principal) -> Principal:
    """The caller of a request that began some time ago, with its present roles.

    Raises:
        Unauthenticated: the caller's key was revoked or rotated meanwhile, or has expired.
    """
    return grants.confirm(session, caller, now=installation.database.now)


def authorized_dataset(session: Session, principal: Principal, reference: str, roles: Set[Role]) -> catalog.Dataset:
    """Finds a dataset by id or name, and checks that the caller has one of several roles on it.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may see the dataset, but has none of these roles.
    """
    dataset = catalog.find(session, reference)
    grants.require(session, principal, dataset.id, roles, kind="dataset")
    return dataset


def require_role(installation: Installation, principal: Principal, reference: str, roles: Set[Role]) -> str:
    """Checks that the caller has one of several roles on a dataset, before a page or a body; returns the dataset's id.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may see the dataset, but has none of these roles.
    """
    with installation.database.read() as session:
        return authorized_dataset(session, principal, reference, roles).id


def has_role(installation: Installation, principal: Principal, reference: str, roles: Set[Role]) -> bool:
    """Whether the caller has one of several roles on a dataset that it sees. A page then offers what they allow.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
    """
    try:
        require_role(installation, principal, reference, roles)
    except RoleMissing:
        return False
    return True
