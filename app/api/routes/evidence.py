"""Defines the routes of checkpoints, proofs and the signer."""

from typing import Annotated

import yaml
from fastapi import Depends, Header, Response
from fastapi.responses import PlainTextResponse

from app.api.requests import By, Caller, KeptHeads, Router
from app.api.routes.ledger import Count
from app.core.errors import InvalidRequest
from app.services.ledger import evidence
from app.wire.evidence import ConsistencyOut, DeploymentOut, InclusionOut, SignerOut
from app.wire.ledger import VerificationIn, VerificationList

evidence_routes = Router(tags=["ledger"])


_YAML = "application/yaml"


def _proof(
    sequence: Count = None, from_size: Count = None, size: Count = None
) -> evidence.ProofRequest:
    if (sequence is None) == (from_size is None):
        raise InvalidRequest.at("/sequence", "give-sequence-or-from-size")
    return evidence.ProofRequest(sequence=sequence, from_size=from_size, size=size)


@evidence_routes.get(
    "/ledger/{account}/checkpoint",
    response_class=PlainTextResponse,
)
def show_checkpoint(by: By, heads: KeptHeads, account: str) -> str:
    """Show the signed head of the account's log: origin, size, Merkle root and time, as
    a signed note.
    """
    return evidence.show_checkpoint(*by, account, signer=heads.signer)


@evidence_routes.get("/ledger/{account}/proofs")
def show_proof(
    by: By, account: str, proof: Annotated[evidence.ProofRequest, Depends(_proof)]
) -> InclusionOut | ConsistencyOut:
    """Prove that an entry is in the log (`?sequence=`), or that the log only grew since
    a size (`?from_size=`).

    `size` is the size of the checkpoint that the proof refers to; by default the
    newest.
    """
    return evidence.show_proof(*by, account, proof)


@evidence_routes.get(
    "/ledger/{account}/deployment",
    response_model=DeploymentOut,
    responses={200: {"content": {_YAML: {}}}},
)
def show_deployment(
    by: By,
    heads: KeptHeads,
    account: str,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Show the deployment document of an account: a record for the public registry of
    deployments, and further facts.

    It is organised after the questions of NIST SP 800-226. What only the owner knows is
    listed as missing.
    """
    shown = evidence.show_deployment(*by, account, signer=heads.signer)
    if _YAML in accept:
        text = yaml.safe_dump(
            shown.model_dump(mode="json"),
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        return Response(text, media_type=_YAML)
    return Response(shown.model_dump_json(), media_type="application/json")


@evidence_routes.put("/ledger/{account}/verification")
def put_verification(by: By, account: str, body: VerificationIn) -> VerificationList:
    """State what your verifier said of the account, in place of your last statement. It
    is shown under the name of your key. For auditors.

    The service checks that the checkpoint or the last entry is one of the account, and
    believes the verdict.
    """
    return evidence.state_verification(*by, account, body)


@evidence_routes.get("/signer")
def show_signer(_caller: Caller, heads: KeptHeads) -> SignerOut:
    """Show the public key that verifies the signatures of checkpoints."""
    return evidence.show_signer(heads.signer)
