"""Defines the routes of accounts: balances, entries, caps, charges for external mechanisms, and evidence.

``/audit`` shows administrative acts, their export and their signed head.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from app.api.capacity import Work
from app.api.problems import JSON_BODY, QUOTED, REPEATABLE, SPENDING, documented
from app.api.requests import BodyRoute, By, Caller, Idempotency, KeptHeads, OptionalIdempotency, Page, limited, sent
from app.api.streams import exported
from app.core import json_text, limits
from app.core.errors import (
    BalanceMismatch,
    DatasetDeleted,
    InvalidRequest,
    MalformedRequest,
    NeedsApproval,
    NotFound,
    RoleMissing,
    TooLarge,
)
from app.ledger.tables import EntryKind
from app.services.ledger import audit, balances, evidence, external, history
from app.services.ledger.evidence import ProofRequest
from app.services.ledger.history import Search
from app.wire import ledger as wire
from grovekeeper_forests.errors import AccountantMismatch

ledger_routes = APIRouter(prefix="/ledger", tags=["ledger"], route_class=BodyRoute)

_Id: TypeAlias = Annotated[str | None, Query(max_length=limits.MAX_REFERENCE_CHARS)]
_ScopeText: TypeAlias = Annotated[str | None, Query(max_length=limits.MAX_SCOPE_CHARS)]

_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"description": "A header line, then every entry.", "content": {"application/x-ndjson": {}, "text/csv": {}}}
}


def _scope(text: str | None) -> Mapping[str, object]:
    if text is None:
        return {}
    try:
        scope = json_text.loads_exactly(text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES)
    except MalformedRequest:
        raise InvalidRequest.at("/scope", "not-json") from None
    except TooLarge:
        raise InvalidRequest.at("/scope", "too-many") from None
    if not isinstance(scope, dict):
        raise InvalidRequest.at("/scope", "not-an-object")
    return scope


def _search(
    kind: Annotated[wire.AccountEntryKind | None, Query(description="entries of one kind")] = None,
    job: Annotated[_Id, Query(description="entries of a job, or of a reservation")] = None,
    actor: Annotated[_Id, Query(description="entries of a key, by id or name, or of `worker`")] = None,
    scope: Annotated[_ScopeText, Query(description='entries on some of these cells: `{"shard": [0]}`')] = None,
) -> Search:
    """The entries that a request asks for; all of them without a parameter."""
    kinds = None if kind is None else [EntryKind(kind)]
    return Search(kinds=kinds, job_id=job, actor=actor, scope=_scope(scope))


@ledger_routes.get("", responses=documented(RoleMissing))
def list_balances(by: By, page: Page) -> wire.BalanceList:
    """List cap, charged, reserved and remaining of every dataset whose ledger the key may read."""
    return balances.list_balances(*by, page)


@ledger_routes.get("/{account}", responses=documented(NotFound, RoleMissing))
def show_balance(
    by: By,
    account: str,
    scope: Annotated[_ScopeText, Query(description='Cells of a dataset as JSON: `{"shard": [0, 1]}`')] = None,
) -> wire.AccountBalance:
    """Show the balance of a dataset (id or name) at the tightest joint cell of a scope, or of a population (id)."""
    return balances.show_balance(*by, account, scope=_scope(scope))


@ledger_routes.get("/{account}/entries", responses=documented(NotFound, RoleMissing))
def list_entries(by: By, account: str, page: Page, search: Annotated[Search, Depends(_search)]) -> wire.EntryList:
    """List the entries of an account in order, with their events, exactly as they were hashed."""
    return history.list_entries(*by, account, page, search)


@ledger_routes.get(
    "/{account}/export", response_class=StreamingResponse, responses={**_EXPORT, **documented(NotFound, RoleMissing)}
)
@limited(work=Work.EXPORT)
def export_ledger(
    request: Request, by: By, account: str, form: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl"
) -> StreamingResponse:
    """Export the whole history of an account, for `grovekeeper verify` (JSON Lines) or for a spreadsheet (CSV)."""
    if form == "csv":
        return exported(request, history.export_csv(*by, account), "ledger.csv", media_type="text/csv")
    return exported(request, history.export_json_lines(*by, account), "ledger.jsonl")


@ledger_routes.post(
    "/{account}/cap",
    response_model=wire.ChangedCap,
    responses=documented(NotFound, RoleMissing, DatasetDeleted, BalanceMismatch, *JSON_BODY, *REPEATABLE),
)
def change_cap(by: By, account: str, body: wire.CapIn, request: OptionalIdempotency) -> Response:
    """Lower the lifetime cap (the owner, or the key that opened the population) or raise it (an admin).

    The entries record the reason. Charges stay.
    """
    return sent(balances.change_cap(*by, account, body, request=request))


reservation_routes = APIRouter(prefix="/ledger/{dataset}", tags=["ledger"], route_class=BodyRoute)


@reservation_routes.post("/quotes", responses=documented(*QUOTED, AccountantMismatch))
def create_quote(by: By, dataset: str, body: wire.ExternalIn) -> wire.ExternalQuote:
    """Quote an external mechanism: its price, and whether it fits. A quote costs nothing."""
    return external.quote_external(*by, dataset, body)


@reservation_routes.post(
    "/reservations",
    status_code=201,
    response_model=wire.ReservationOut,
    responses=documented(NotFound, RoleMissing, AccountantMismatch, NeedsApproval, *SPENDING),
)
def create_reservation(by: By, dataset: str, body: wire.ExternalIn, request: Idempotency) -> Response:
    """Charge the dataset's account for an external mechanism, for good. Request it before the mechanism runs."""
    return sent(external.charge_external(*by, dataset, body, request=request))


@reservation_routes.get("/reservations", responses=documented(NotFound, RoleMissing))
def list_reservations(by: By, dataset: str, page: Page) -> wire.ReservationList:
    """List the charges for external mechanisms, and who attests them."""
    return external.list_reservations(*by, dataset, page)


@reservation_routes.get("/reservations/{reservation_id}", responses=documented(NotFound, RoleMissing))
def show_reservation(by: By, dataset: str, reservation_id: str) -> wire.ReservationOut:
    """Show one charge for an external mechanism."""
    return external.show_reservation(*by, dataset, reservation_id)


evidence_routes = APIRouter(tags=["ledger"], route_class=BodyRoute)
_YAML = "application/yaml"

Count = Annotated[int | None, Query(ge=1, le=2**53 - 1)]


def _proof(sequence: Count = None, from_size: Count = None, size: Count = None) -> ProofRequest:
    if (sequence is None) == (from_size is None):
        raise InvalidRequest.at("/sequence", "give-sequence-or-from-size")
    return ProofRequest(sequence=sequence, from_size=from_size, size=size)


@evidence_routes.get(
    "/ledger/{account}/checkpoint", response_class=PlainTextResponse, responses=documented(NotFound, RoleMissing)
)
def show_checkpoint(by: By, heads: KeptHeads, account: str) -> str:
    """Show the signed head of the account's log: origin, size, Merkle root and time, as a signed note."""
    return evidence.show_checkpoint(*by, account, signer=heads.signer)


@evidence_routes.get("/ledger/{account}/proofs", responses=documented(NotFound, RoleMissing))
def show_proof(
    by: By, account: str, proof: Annotated[ProofRequest, Depends(_proof)]
) -> wire.InclusionOut | wire.ConsistencyOut:
    """Prove that an entry is in the log (`?sequence=`), or that the log only grew since a size (`?from_size=`).

    `size` is the size of the checkpoint that the proof refers to; by default the newest.
    """
    return evidence.show_proof(*by, account, proof)


@evidence_routes.get(
    "/ledger/{account}/deployment",
    response_model=wire.DeploymentOut,
    responses={200: {"content": {_YAML: {}}}, **documented(NotFound, RoleMissing)},
)
def show_deployment(
    by: By,
    heads: KeptHeads,
    account: str,
    accept: Annotated[str, Header(description="`application/yaml` for YAML")] = "application/json",
) -> Response:
    """Show the deployment document of an account: a record for the public registry of deployments, and further facts.

    It is organised after the questions of NIST SP 800-226. What only the owner knows is listed as missing.
    """
    shown = evidence.show_deployment(*by, account, signer=heads.signer)
    if _YAML in accept:
        text = yaml.safe_dump(shown.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
        return Response(text, media_type=_YAML)
    return Response(shown.model_dump_json(), media_type="application/json")


@evidence_routes.get("/signer", responses=documented())
def show_signer(_caller: Caller, heads: KeptHeads) -> wire.SignerOut:
    """Show the public key that verifies the signatures of checkpoints."""
    return evidence.show_signer(heads.signer)


audit_routes = APIRouter(prefix="/audit", tags=["audit"], route_class=BodyRoute)


@audit_routes.get("", responses=documented(RoleMissing))
def list_acts(by: By, page: Page) -> wire.ActList:
    """List administrative acts in order: keys, grants, declarations, erasures, caps, rules, aliases and others."""
    return audit.list_acts(*by, page)


@audit_routes.get(
    "/export",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A header line, then every act.", "content": {"application/x-ndjson": {}}},
        **documented(RoleMissing),
    },
)
@limited(work=Work.EXPORT)
def export_acts(request: Request, by: By) -> StreamingResponse:
    """Export every administrative act, for `grovekeeper verify`."""
    return exported(request, audit.export_acts(*by), "acts.jsonl")


@audit_routes.get(
    "/checkpoint",
    summary="Show Checkpoint Of Acts",
    response_class=PlainTextResponse,
    responses=documented(RoleMissing),
)
def show_head(by: By, heads: KeptHeads) -> str:
    """Show the signed head of the administrative acts, as a signed note."""
    return audit.show_checkpoint_of_acts(*by, signer=heads.signer)
