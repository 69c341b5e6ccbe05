"""Checkpoints and proofs of a dataset's ledger or a population's, and ``/signer``: what an outsider can hold it to."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.roles import Principal
from app.core.errors import InvalidRequest
from app.ledger import notes
from app.ledger import service as ledger
from app.ledger.log import Log
from app.ledger.notes import Signer
from app.services.installation import Installation
from app.services.ledger.publish_heads import checkpoint_of
from app.services.ledger.readable_accounts import Readable, of_dataset
from app.wire.evidence import ConsistencyOut, InclusionOut, SignerOut


def show_checkpoint(
    installation: Installation, principal: Principal, reference: str, *, signer: Signer, readable: Readable = of_dataset
) -> str:
    """The signed head of an account, as a note.

    Raises:
        NotFound: no such dataset or population, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account_id = readable(session, principal, reference)
        head = checkpoint_of(session, account_id, ledger.size(session, account_id))
    return signer.sign(head)


@dataclass(frozen=True)
class AskedProof:
    """What is to be proven, to the checkpoint over ``size`` entries (the newest, if that is left out): that the entry
    with a sequence is among them, or that the first ``from_size`` are a beginning of them. One of the two is given."""

    sequence: int | None
    from_size: int | None
    size: int | None


def prove(
    installation: Installation,
    principal: Principal,
    reference: str,
    asked: AskedProof,
    *,
    readable: Readable = of_dataset,
) -> InclusionOut | ConsistencyOut:
    """A proof of inclusion or of consistency.

    Raises:
        NotFound: no such dataset or population, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
        InvalidRequest: there are fewer entries than that.
    """
    with installation.database.read() as session:
        account_id = readable(session, principal, reference)
        size = _in_range("/size", asked.size, at_most=ledger.size(session, account_id))
        if asked.sequence is None:
            from_size = _in_range("/from_size", asked.from_size, at_most=size)
            return _consistency(session, account_id, from_size=from_size, size=size)
        sequence = _in_range("/sequence", asked.sequence, at_most=size)
        return _inclusion(session, account_id, sequence=sequence, size=size)


def show_signer(signer: Signer) -> SignerOut:
    """The key that checkpoints are to be checked with. It is no secret: every key may ask."""
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
    (entry,) = ledger.entries(session, account_id, after=sequence - 1, limit=1)
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
