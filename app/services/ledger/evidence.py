"""Serves checkpoints, proofs and the signer's public key; runs the verifier, which shares no code with the service."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access.grants import SEE_LEDGER, Principal, Role
from app.core import limits
from app.core.errors import InvalidRequest
from app.core.processes import scrubbed_environment
from app.ledger import checkpoints, control, statements
from app.ledger.checkpoints import Checkpoint, Signer
from app.ledger.log import Log
from app.services.installation import Installation
from app.services.ledger.balances import find_account
from app.services.ledger.heads import checkpoint_of
from app.services.ledger.history import entries_up_to, json_lines
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
        name=checkpoints.KEY_NAME,
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
        origin=checkpoints.origin(account_id),
        size=size,
        sequence=sequence,
        entry=entry.to_json(),
        path=[digest.hex() for digest in Log(session, account_id).inclusion(sequence, size)],
    )


def _consistency(session: Session, account_id: str, *, from_size: int, size: int) -> ConsistencyOut:
    return ConsistencyOut(
        kind="consistency",
        origin=checkpoints.origin(account_id),
        from_size=from_size,
        size=size,
        path=[digest.hex() for digest in Log(session, account_id).consistency(from_size, size)],
    )


@dataclass(frozen=True)
class Verification:
    """What the verifier says about an export and its checkpoint.

    Attributes:
        entries: in the export.
        checkpoint: the signed head of these entries.
        result: the verifier's JSON; ``None`` where it was not run, because the export is too large or the time ran out.
    """

    entries: int
    checkpoint: str
    result: dict[str, Any] | None


def verify_ledger(installation: Installation, principal: Principal, reference: str, *, signer: Signer) -> Verification:
    """Runs the verifier over the export of an account, its signed head and the signer's public key.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        header, last = statements.export_header(session, account_id)
        head = checkpoint_of(session, account_id, last)
    return _verified(installation, header, head, signer)


def verify_acts(installation: Installation, principal: Principal, *, signer: Signer) -> Verification:
    """Runs the verifier over the export of the control chain, its signed head and the signer's public key.

    Raises:
        RoleMissing: the key is neither an auditor of all datasets nor an admin.
    """
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        header, last = control.export_header(session)
        head = checkpoint_of(session, control.CHAIN, last)
    return _verified(installation, header, head, signer)


def _verified(installation: Installation, header: Mapping[str, Any], head: Checkpoint, signer: Signer) -> Verification:
    """Runs the verifier over the entries that a head covers."""
    note, last = signer.sign(head), head.size
    if last > limits.MAX_VERIFIED_ENTRIES:
        return Verification(last, note, None)
    with ExitStack() as opened:
        export, checkpoint, key = (opened.enter_context(installation.spool()) for _ in range(3))
        export.writelines(json_lines(header, entries_up_to(installation, head.account_id, last)))
        checkpoint.write(note.encode("utf-8"))
        key.write(signer.public_pem.encode("ascii"))
        descriptors = []
        for file in (export, checkpoint, key):
            file.seek(0)
            descriptors.append(file.fileno())
        return Verification(last, note, _run(*descriptors))


def _run(export: int, checkpoint: int, key: int) -> dict[str, Any] | None:
    """The verifier's result for files without a name, which it opens by their descriptors."""
    files = {"--checkpoint": checkpoint, "--public-key": key}
    options = [text for name, file in files.items() for text in (name, f"/dev/fd/{file}")]
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "app.verifier", f"/dev/fd/{export}", *options, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=scrubbed_environment(),
            pass_fds=(export, checkpoint, key),
            timeout=limits.MAX_VERIFICATION_S,
            check=False,
        )
        result: dict[str, Any] = json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return result
