"""Defines the routes of checkpoints and proofs of an account's log, and of the signer's public key."""

from typing import Annotated

import yaml
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import PlainTextResponse

from app.api import problems
from app.api.requests import Caller, CurrentInstallation, KeptHeads
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.services.ledger import deployment, evidence
from app.services.ledger.evidence import ProofRequest
from app.wire.ledger import ConsistencyOut, DeploymentOut, InclusionOut, SignerOut

router = APIRouter(tags=["ledger"])
_YAML = "application/yaml"

Count = Annotated[int | None, Query(ge=1, le=2**53 - 1)]


def _proof(sequence: Count = None, from_size: Count = None, size: Count = None) -> ProofRequest:
    if (sequence is None) == (from_size is None):
        raise InvalidRequest.at("/sequence", "give-sequence-or-from-size")
    return ProofRequest(sequence=sequence, from_size=from_size, size=size)


@router.get(
    "/ledger/{account}/checkpoint",
    operation_id="show_checkpoint",
    response_class=PlainTextResponse,
    responses=problems.documented(NotFound, RoleMissing),
)
def show_checkpoint(installation: CurrentInstallation, caller: Caller, heads: KeptHeads, account: str) -> str:
    """Show the signed head of the account's log: origin, size, Merkle root and time, as a signed note."""
    return evidence.show_checkpoint(installation, caller, account, signer=heads.signer)


@router.get("/ledger/{account}/proofs", operation_id="show_proof", responses=problems.documented(NotFound, RoleMissing))
def show_proof(
    installation: CurrentInstallation, caller: Caller, account: str, proof: Annotated[ProofRequest, Depends(_proof)]
) -> InclusionOut | ConsistencyOut:
    """Prove that an entry is in the log (`?sequence=`), or that the log only grew since a size (`?from_size=`).

    `size` is the size of the checkpoint that the proof refers to; by default the newest.
    """
    return evidence.show_proof(installation, caller, account, proof)


@router.get(
    "/ledger/{account}/deployment",
    operation_id="show_deployment",
    response_model=DeploymentOut,
    responses={200: {"content": {_YAML: {}}}, **problems.documented(NotFound, RoleMissing)},
)
def show_deployment(
    installation: CurrentInstallation,
    caller: Caller,
    heads: KeptHeads,
    account: str,
    accept: Annotated[str, Header(description="`application/yaml` for YAML")] = "application/json",
) -> Response:
    """Show the deployment document of an account: a record for the public registry of deployments, and further facts.

    It is organised after the questions of NIST SP 800-226. What only the owner knows is listed as missing.
    """
    shown = deployment.show_deployment(installation, caller, account, signer=heads.signer)
    if _YAML in accept:
        text = yaml.safe_dump(shown.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
        return Response(text, media_type=_YAML)
    return Response(shown.model_dump_json(), media_type="application/json")


@router.get("/signer", operation_id="show_signer", responses=problems.documented())
def show_signer(_caller: Caller, heads: KeptHeads) -> SignerOut:
    """Show the public key that verifies the signatures of checkpoints."""
    return evidence.show_signer(heads.signer)
