"""``/populations``: budgets over several datasets, and their histories."""

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from app.api import problems
from app.api.deps import Caller, Here, KeptHeads, OptionalIdempotency, Page, sent
from app.api.exact_json import ExactRoute
from app.api.routes.evidence import Asked
from app.api.routes.ledger import EXPORTED, Form, exported
from app.core.errors import (
    IdempotencyInFlight,
    IdempotencyKeyReused,
    MalformedRequest,
    NameTaken,
    NotFound,
    NotSupported,
    RoleMissing,
    TooLarge,
    UnsupportedMediaType,
)
from app.services import populations
from app.services.ledger import evidence, history
from app.services.ledger.change_population_cap import change_population_cap as change
from app.services.ledger.readable_accounts import of_population
from app.wire.evidence import ConsistencyOut, InclusionOut
from app.wire.ledger import CapIn, EntryList
from app.wire.populations import PopulationIn, PopulationList, PopulationOut

router = APIRouter(prefix="/populations", tags=["populations"], route_class=ExactRoute)


@router.post(
    "",
    operation_id="create_population",
    status_code=201,
    response_model=PopulationOut,
    responses=problems.documented(
        RoleMissing, NameTaken, NotSupported, IdempotencyKeyReused, IdempotencyInFlight, MalformedRequest, TooLarge,
        UnsupportedMediaType,
    ),
)  # fmt: skip
def create_population(here: Here, caller: Caller, body: PopulationIn, request: OptionalIdempotency) -> Response:
    """Opens a budget over all datasets about the same people. Datasets join it by its name."""
    return sent(populations.open_population(here, caller, body, request=request))


@router.get("", operation_id="list_populations", responses=problems.documented(RoleMissing))
def list_populations(here: Here, caller: Caller, page: Page) -> PopulationList:
    """The populations that the key opened, with their members; all of them for admins and auditors."""
    return populations.list_populations(here, caller, page)


@router.get("/{population}", operation_id="show_population", responses=problems.documented(NotFound))
def show_population(here: Here, caller: Caller, population: str) -> PopulationOut:
    """One population with its members, by id or name."""
    return populations.show_population(here, caller, population)


@router.get("/{population}/entries", operation_id="list_population_entries", responses=problems.documented(NotFound))
def list_population_entries(here: Here, caller: Caller, population: str, page: Page) -> EntryList:
    """The population's own history: caps, datasets that joined, and what each carried whenever that changed."""
    return history.list_entries(here, caller, population, page, readable=of_population)


@router.get(
    "/{population}/export",
    operation_id="export_population",
    response_class=StreamingResponse,
    responses={**EXPORTED, **problems.documented(NotFound)},
)
def export_population(here: Here, caller: Caller, population: str, form: Form = "jsonl") -> StreamingResponse:
    """The whole history, for `grovekeeper verify` (JSON Lines) or for a spreadsheet (CSV)."""
    return exported(here, caller, population, form=form, readable=of_population)


@router.get(
    "/{population}/checkpoint",
    operation_id="show_population_checkpoint",
    response_class=PlainTextResponse,
    responses=problems.documented(NotFound),
)
def show_population_checkpoint(here: Here, caller: Caller, heads: KeptHeads, population: str) -> str:
    """The signed head of the population's log: origin, size, Merkle root and time as a signed note."""
    return evidence.show_checkpoint(here, caller, population, signer=heads.signer, readable=of_population)


@router.get("/{population}/proofs", operation_id="show_population_proof", responses=problems.documented(NotFound))
def show_population_proof(here: Here, caller: Caller, population: str, asked: Asked) -> InclusionOut | ConsistencyOut:
    """Either `?sequence=`: that an entry is in the log; or `?from_size=`: that the log only grew since that size.

    `size` is that of the checkpoint to prove it to; the newest, if it is left out.
    """
    return evidence.prove(here, caller, population, asked, readable=of_population)


@router.post(
    "/{population}/cap",
    operation_id="change_population_cap",
    response_model=PopulationOut,
    responses=problems.documented(
        NotFound, RoleMissing, IdempotencyKeyReused, IdempotencyInFlight, MalformedRequest, TooLarge,
        UnsupportedMediaType,
    ),
)  # fmt: skip
def change_population_cap(
    here: Here, caller: Caller, population: str, body: CapIn, request: OptionalIdempotency
) -> Response:
    """Lowers the lifetime cap (the key that opened it) or raises it (an admin), with a reason. What was spent stays
    spent."""
    return sent(change(here, caller, population, body, request=request))
