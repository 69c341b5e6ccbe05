"""Checkpoints and proofs of a ledger, and the key that signs them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import PlainTextResponse

from app.api import problems
from app.api.deps import Caller, Here, KeptHeads
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.services.ledger import evidence
from app.services.ledger.evidence import AskedProof
from app.wire.evidence import ConsistencyOut, InclusionOut, SignerOut

router = APIRouter(tags=["ledger"])

Count = Annotated[int | None, Query(ge=1, le=2**53 - 1)]


def _asked(sequence: Count = None, from_size: Count = None, size: Count = None) -> AskedProof:
    if (sequence is None) == (from_size is None):
        raise InvalidRequest.at("/sequence", "give-sequence-or-from-size")
    return AskedProof(sequence=sequence, from_size=from_size, size=size)


Asked = Annotated[AskedProof, Depends(_asked)]
"""What a proof is asked of: an entry, or an earlier size."""


@router.get(
    "/ledger/{dataset}/checkpoint",
    operation_id="show_checkpoint",
    response_class=PlainTextResponse,
    responses=problems.documented(NotFound, RoleMissing),
)
def show_checkpoint(here: Here, caller: Caller, heads: KeptHeads, dataset: str) -> str:
    """The signed head of the account's log: origin, size, Merkle root and time as a signed note."""
    return evidence.show_checkpoint(here, caller, dataset, signer=heads.signer)


@router.get("/ledger/{dataset}/proofs", operation_id="show_proof", responses=problems.documented(NotFound, RoleMissing))
def show_proof(here: Here, caller: Caller, dataset: str, asked: Asked) -> InclusionOut | ConsistencyOut:
    """Either `?sequence=`: that an entry is in the log; or `?from_size=`: that the log only grew since that size.

    `size` is that of the checkpoint to prove it to; the newest, if it is left out.
    """
    return evidence.prove(here, caller, dataset, asked)


@router.get("/signer", operation_id="show_signer", responses=problems.documented())
def show_signer(_caller: Caller, heads: KeptHeads) -> SignerOut:
    """The public key that checkpoints are checked with."""
    return evidence.show_signer(heads.signer)
