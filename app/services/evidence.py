"""``/ledger/{dataset}/checkpoint`` and ``/proofs``, and ``/signer``: what an outsider can hold the ledger to."""

from app.access.roles import SEE_LEDGER, Principal
from app.core.errors import InvalidRequest
from app.ledger import notes
from app.ledger import service as ledger
from app.ledger.log import Log
from app.ledger.notes import Signer
from app.services.heads import checkpoint_of
from app.services.installation import Installation
from app.services.permitted import permitted
from app.wire.evidence import ConsistencyOut, InclusionOut, SignerOut


def show_checkpoint(installation: Installation, principal: Principal, reference: str, *, signer: Signer) -> str:
    """The signed head of a dataset's account, as a note.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, SEE_LEDGER)
        head = checkpoint_of(session, dataset.id, ledger.size(session, dataset.id))
    return signer.sign(head)


def prove_inclusion(
    installation: Installation, principal: Principal, reference: str, *, sequence: int, size: int | None
) -> InclusionOut:
    """That the entry with a sequence is among the first ``size`` entries; of all, if that is left out.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
        InvalidRequest: there are fewer entries than that.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, SEE_LEDGER)
        size = _in_range("/size", size, at_most=ledger.size(session, dataset.id))
        sequence = _in_range("/sequence", sequence, at_most=size)
        (entry,) = ledger.entries(session, dataset.id, after=sequence - 1, limit=1)
        path = Log(session, dataset.id).inclusion(sequence, size)
    return InclusionOut(
        kind="inclusion",
        origin=notes.origin(dataset.id),
        size=size,
        sequence=sequence,
        entry=entry.to_json(),
        path=[digest.hex() for digest in path],
    )


def prove_consistency(
    installation: Installation, principal: Principal, reference: str, *, from_size: int, size: int | None
) -> ConsistencyOut:
    """That the first ``from_size`` entries are a beginning of the first ``size``; of all, if that is left out.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
        InvalidRequest: there are fewer entries than that.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, SEE_LEDGER)
        size = _in_range("/size", size, at_most=ledger.size(session, dataset.id))
        from_size = _in_range("/from_size", from_size, at_most=size)
        path = Log(session, dataset.id).consistency(from_size, size)
    return ConsistencyOut(
        kind="consistency",
        origin=notes.origin(dataset.id),
        from_size=from_size,
        size=size,
        path=[digest.hex() for digest in path],
    )


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
