"""Serves ``/audit``: lists and exports the control chain, and shows its signed head."""

from collections.abc import Iterator

from app.access.roles import Principal, Role
from app.ledger import control, statements
from app.ledger.notes import Signer
from app.services.installation import Installation
from app.services.ledger.heads import checkpoint_of
from app.services.ledger.history import entries_up_to, json_lines
from app.services.pages import PageRequest, page_of
from app.wire.ledger import ActList, ActOut


def list_acts(installation: Installation, principal: Principal, page: PageRequest) -> ActList:
    """Lists a page of administrative acts, in order.

    Raises:
        RoleMissing: the key is neither an auditor of all datasets nor an admin.
    """
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        shown, following = page_of(
            page,
            lambda limit: statements.entries(session, control.CHAIN, after=page.sequence(), limit=limit),
            lambda entry: str(entry.sequence),
        )
        return ActList(acts=[ActOut.model_validate(entry.to_json()) for entry in shown], next=following)


def export_acts(installation: Installation, principal: Principal) -> Iterator[bytes]:
    """Exports the whole control chain as JSON Lines, for the verifier.

    Raises:
        RoleMissing: the key is neither an auditor of all datasets nor an admin.
    """
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        header, last = control.export_header(session)
    return json_lines(header, entries_up_to(installation, control.CHAIN, last))


def show_checkpoint_of_acts(installation: Installation, principal: Principal, *, signer: Signer) -> str:
    """Shows the signed head of the control chain, as a note.

    Raises:
        RoleMissing: the key is neither an auditor of all datasets nor an admin.
    """
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        head = checkpoint_of(session, control.CHAIN, statements.size(session, control.CHAIN))
    return signer.sign(head)
