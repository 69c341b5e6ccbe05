"""Serves checkpoints and proofs of an account's log, and the signer's public key (``GET /signer``)."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.roles import SEE_LEDGER, Principal
from app.core.errors import InvalidRequest
from app.ledger import notes, statements
from app.ledger.log import Log
from app.ledger.notes import Signer
from app.services.installation import Installation
from app.services.ledger.accounts import find_account
from app.services.ledger.heads import checkpoint_of
from app.wire.ledger import ConsistencyOut, InclusionOut, SignerOut


@dataclass(frozen=True)
class ProofRequest:
    """A request for a proof against the checkpoint over ``size`` entries, or over all entries where it is ``None``.

    Exactly one of ``sequence`` and ``from_size`` is given.

    Attributes:
        sequence: prove that the entry with this sequence is in the log.
        from_size: prove that the log begins with the log of this size.
        size: number of entries that the checkpoint covers.
    """

    sequence: int | None
    from_size: int | None
    size: int | None


def show_checkpoint(installation: Installation, principal: Principal, reference: str, *, signer: Signer) -> str:
    """Shows the signed head of an account, as a note.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        head = checkpoint_of(session, account_id, statements.size(session, account_id))
    return signer.sign(head)


def show_proof(
    installation: Installation, principal: Principal, reference: str, proof: ProofRequest
) -> InclusionOut | ConsistencyOut:
    """Shows a proof of inclusion or of consistency.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
        InvalidRequest: the log has fewer entries.
    """
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        size = _in_range("/size", proof.size, at_most=statements.size(session, account_id))
        if proof.sequence is None:
            from_size = _in_range("/from_size", proof.from_size, at_most=size)
            return _consistency(session, account_id, from_size=from_size, size=size)
        sequence = _in_range("/sequence", proof.sequence, at_most=size)
        return _inclusion(session, account_id, sequence=sequence, size=size)


def show_signer(signer: Signer) -> SignerOut:
    """Shows the public key that verifies the signatures of checkpoints; any key may read it."""
    return SignerOut(
        name=notes.KEY_NAME,
        algorithm="ed25519",
        public_key=signer.public_pem,
        verifier_key=signer.verifier_key,
    )


def _in_range(field: str, value: int | None, *, at_most: int) -> int:
    if value is None:
        return at_most
    if not 1 <= value <= at_most:
        raise InvalidRequest.at(field, "out-of-range")
    return value


def _inclusion(session: Session, account_id: str, *, sequence: int, size: int) -> InclusionOut:
    (entry,) = statements.entries(session, account_id, after=sequence - 1, limit=1)
    return InclusionOut(
        kind="inclusion",
        origin=notes.origin(account_id),
        size=size,
        sequence=sequence,
        entry=entry.to_json(),
        path=[digest.hex() for digest in Log(session, account_id).inclusion(sequence, size)],
    )


def _consistency(session: Session, account_id: str, *, from_size: int, size: int) -> ConsistencyOut:
    return ConsistencyOut(
        kind="consistency",
        origin=notes.origin(account_id),
        from_size=from_size,
        size=size,
        path=[digest.hex() for digest in Log(session, account_id).consistency(from_size, size)],
    )
