"""Defines the routes of datasets, their rows, grants, rules and webhooks, and of populations.

The ledgers of populations are under ``/ledger/{account}``.
"""

from dataclasses import replace
from email.message import Message
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.access.grants import Role
from app.api.problems import JSON_BODY, REPEATABLE, documented
from app.api.requests import (
    SHOWS_SECRET,
    Body,
    BodyRoute,
    By,
    Caller,
    NameFilter,
    OptionalIdempotency,
    Page,
    Precondition,
    checked_key,
    limited,
    sent,
    with_etag,
)
from app.api.streams import receive_upload
from app.core.errors import (
    AccountDiffers,
    BalanceMismatch,
    CellsUnread,
    ChangedMeanwhile,
    DatasetDeleted,
    ErasureDue,
    LastOwner,
    NameTaken,
    NoRowsOfUnit,
    NotFound,
    PopulationMismatch,
    RoleMissing,
    RowsInvalid,
    SameSubmitter,
    UnsupportedMediaType,
    UploadEmpty,
    UploadRepeated,
)
from app.datasets.upload_bodies import BodyForm
from app.services import dataset_rules, keys, populations, webhooks
from app.services.datasets import declare, erase, show
from app.services.datasets.upload import UploadTerms
from app.wire import datasets as wire
from app.wire.rules import RulesIn, RulesOut, WebhookIn, WebhookList, WebhookRotationIn, WebhookWithSecret
from grovekeeper_forests.errors import NotSupported

dataset_routes = APIRouter(prefix="/datasets", tags=["datasets"], route_class=BodyRoute)
declaration_routes = APIRouter(prefix="/declarations", tags=["datasets"], route_class=BodyRoute)

_DECLARING = (
    RoleMissing, SameSubmitter, NotFound, NameTaken, AccountDiffers, PopulationMismatch, BalanceMismatch,
    *JSON_BODY,
)  # fmt: skip

_FORMS = {
    "text/csv": BodyForm.CSV,
    "application/csv": BodyForm.CSV,
    "application/vnd.apache.parquet": BodyForm.PARQUET,
    "application/vnd.apache.arrow.stream": BodyForm.ARROW_STREAM,
    "application/vnd.apache.arrow.file": BodyForm.ARROW_FILE,
}
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_ACCEPTED = ["text/csv", "text/csv with Content-Encoding: gzip", *(name for name in _FORMS if "vnd" in name)]
_ROWS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "CSV with a header row, UTF-8, plain or with `Content-Encoding: gzip`; empty = missing. Or "
        "Parquet or Arrow IPC with columns of numbers, booleans and texts; null = missing.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            **{name: {"schema": {"type": "string", "format": "binary"}} for name in _FORMS if "vnd" in name},
        },
    }
}


@dataset_routes.post(
    "", status_code=201, response_model=wire.DatasetOut, responses=documented(*_DECLARING, *REPEATABLE)
)
@limited(body=Body.DECLARATION, needs=Role.OWNER)
def declare_dataset(by: By, body: wire.DatasetIn, request: OptionalIdempotency) -> Response:
    """Declare a dataset: public schema, lifetime budget, partitions. The calling key becomes its owner."""
    return sent(declare.register_dataset(*by, body, request=request))


@declaration_routes.post("", responses=documented(*_DECLARING))
@limited(body=Body.DECLARATION, needs=Role.OWNER)
def check_declaration(by: By, body: wire.DatasetIn) -> wire.DeclarationOut:
    """Check a declaration by the rules of `POST /datasets`, and store nothing."""
    return declare.check_declaration(*by, body)


@dataset_routes.get("", responses=documented())
def list_datasets(by: By, page: Page, name: NameFilter = None) -> wire.DatasetList:
    """List the public facts and the balance of every dataset on which the key has a grant.

    With `name`, only datasets whose names contain it, in upper or lower case.
    """
    return show.list_datasets(*by, page, name=name)


@dataset_routes.get("/{dataset}", responses=documented(NotFound))
def show_dataset(by: By, dataset: str) -> wire.DatasetOut:
    """Show the public facts and the balance of one dataset, by id or name."""
    return show.show_dataset(*by, dataset)


@dataset_routes.delete("/{dataset}", status_code=204, responses=documented(NotFound, RoleMissing))
def delete_dataset(by: By, dataset: str) -> None:
    """Erase the rows of a dataset. Spend, ledger and models stay.

    No job of the dataset begins any more. If many are queued, some are cancelled after the answer; until then, they
    show as queued and their prices as reserved.
    """
    erase.delete_dataset(*by, dataset)


@dataset_routes.get("/{dataset}/grants", responses=documented(NotFound, RoleMissing))
def list_grants(by: By, dataset: str, page: Page) -> wire.GrantList:
    """List who has which role on the dataset, since when and by whom. For owners and auditors."""
    return keys.list_grants(*by, dataset, page)


@dataset_routes.put("/{dataset}/grants/{key_id}", responses=documented(NotFound, RoleMissing, LastOwner, *JSON_BODY))
def put_grant(by: By, dataset: str, key_id: str, body: wire.GrantIn) -> wire.GrantOut:
    """Grant a key a role on the dataset, in place of its earlier role."""
    return keys.put_grant(*by, dataset, key_id, role=body.role)


@dataset_routes.delete(
    "/{dataset}/grants/{key_id}", status_code=204, responses=documented(NotFound, RoleMissing, LastOwner)
)
def delete_grant(by: By, dataset: str, key_id: str) -> None:
    """Revoke a key's role on the dataset. The last owner keeps the role until another key is an owner."""
    keys.remove_grant(*by, dataset, key_id)


@dataset_routes.get("/{dataset}/rules", responses=documented(NotFound, RoleMissing))
def show_rules(by: By, dataset: str, response: Response) -> RulesOut:
    """Show the rules of the dataset, what is spent of its quotas, and a proposal of looser rules. For owners."""
    return with_etag(response, dataset_rules.show_rules(*by, dataset))


@dataset_routes.put(
    "/{dataset}/rules",
    responses=documented(NotFound, RoleMissing, DatasetDeleted, ErasureDue, ChangedMeanwhile, *JSON_BODY),
)
def change_rules(by: By, dataset: str, body: RulesIn, condition: Precondition, response: Response) -> RulesOut:
    """Replace the rules of the dataset. Looser rules are in force once a second owner or an admin sends them."""
    return with_etag(response, dataset_rules.change_rules(*by, dataset, body, condition=condition))


@dataset_routes.post(
    "/{dataset}/erasures", responses=documented(NotFound, NoRowsOfUnit, RoleMissing, DatasetDeleted, *JSON_BODY)
)
@limited(body=Body.ERASURE)
def erase_unit(by: By, dataset: str, body: wire.ErasureIn) -> wire.ErasureOut:
    """Erase the rows of one unit. Spend stays spent, and the unit's places stay taken."""
    return erase.erase_unit(*by, dataset, unit=body.unit)


@dataset_routes.get("/{dataset}/overlaps", responses=documented(NotFound, RoleMissing))
def show_overlaps(by: By, dataset: str) -> wire.OverlapOut:
    """Count the rows that the dataset shares with others of the same owner. For that owner only; changes nothing."""
    return show.show_overlaps(*by, dataset)


@dataset_routes.get("/{dataset}/uploads", responses=documented(NotFound, RoleMissing))
def list_uploads(by: By, dataset: str, page: Page) -> wire.UploadList:
    """List the uploads of the dataset, with the stored rows for owners by a grant. For owners."""
    return show.list_uploads(*by, dataset, page)


@dataset_routes.delete("/{dataset}/uploads/{upload}", responses=documented(NotFound, RoleMissing, DatasetDeleted))
def erase_upload(by: By, dataset: str, upload: str) -> wire.UploadErasureOut:
    """Erase the rows of one upload. Spend stays spent; `places` says if units' places are free. May be repeated."""
    return erase.erase_upload(*by, dataset, upload=upload)


@dataset_routes.put(
    "/{dataset}/population",
    responses=documented(NotFound, RoleMissing, DatasetDeleted, PopulationMismatch, BalanceMismatch, *JSON_BODY),
)
def join_population(by: By, dataset: str, body: wire.JoinIn) -> wire.DatasetOut:
    """State that the rows are about the people of a population. From then on its cap applies, too, for good."""
    return declare.join_population(*by, dataset, population=body.population)


_JUDGED = (
    NotFound,
    RoleMissing,
    DatasetDeleted,
    RowsInvalid,
    UploadEmpty,
    CellsUnread,
    UploadRepeated,
    BalanceMismatch,
    *JSON_BODY,
)
"""What refuses a file of rows, stored or only checked."""


async def upload_terms(
    request: Request,
    again: Annotated[bool, Query(description="Store the rows of an earlier upload once more.")] = False,
    accept_unknown: Annotated[
        bool,
        Query(
            description="Accept columns in which more than 5 % of the cells are undeclared or out of bounds, and "
            "marks such as NA in the unit column."
        ),
    ] = False,
    accept_empty: Annotated[bool, Query(description="Store a body with a header and no row.")] = False,
) -> UploadTerms:
    """Read how the body of an upload is read, from its headers and query parameters."""
    return UploadTerms(_form(request), again=again, accept_unknown=accept_unknown, accept_empty=accept_empty)


@dataset_routes.post(
    "/{dataset}/rows",
    status_code=201,
    response_model=wire.UploadOut,
    openapi_extra=_ROWS_BODY,
    responses=documented(*_JUDGED, *REPEATABLE),
)
@limited(body=Body.UPLOAD)
async def upload_rows(
    request: Request,
    caller: Caller,
    dataset: str,
    terms: Annotated[UploadTerms, Depends(upload_terms)],
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> Response:
    """Upload a file of rows, which becomes an epoch. The report per column is for the owner only."""
    key = checked_key(request, idempotency_key)
    return sent(await receive_upload(request, caller, dataset, request.stream(), terms=terms, key=key))


@dataset_routes.post(
    "/{dataset}/rows/check",
    status_code=204,
    openapi_extra=_ROWS_BODY,
    responses=documented(*_JUDGED),
)
@limited(body=Body.UPLOAD)
async def check_rows(
    request: Request,
    caller: Caller,
    dataset: str,
    terms: Annotated[UploadTerms, Depends(upload_terms)],
    replaces: Annotated[NameFilter, Query(description="The upload that will be erased before.")] = None,
) -> Response:
    """Check a file of rows as an upload would, and store nothing."""
    check = replace(terms, check=True, replaces=replaces)
    return sent(await receive_upload(request, caller, dataset, request.stream(), terms=check, key=None))


def _form(request: Request) -> BodyForm:
    """Return the form of an upload, from its headers.

    Raises:
        UnsupportedMediaType: another type, or an encoding that the type does not have; or a parameter says that the
            text is not in UTF-8 or has no header (RFC 4180 and 7111).
    """
    declared = Message()
    declared["content-type"] = request.headers.get("content-type", "text/csv")
    media_type = declared.get_content_type()
    if declared.get_content_charset("utf-8") not in _CHARSETS or declared.get_param("header") == "absent":
        raise UnsupportedMediaType(["text/csv in UTF-8 with a header row"])
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    form = _FORMS.get(media_type)
    if form is BodyForm.CSV and encoding in ("gzip", "x-gzip"):  # RFC 9110, 8.4.1.3
        return BodyForm.GZIP
    if form is None or encoding != "identity":
        raise UnsupportedMediaType(_ACCEPTED)
    return form


population_routes = APIRouter(prefix="/populations", tags=["populations"], route_class=BodyRoute)


@population_routes.post(
    "",
    status_code=201,
    response_model=wire.PopulationOut,
    responses=documented(RoleMissing, NameTaken, NotSupported, *JSON_BODY, *REPEATABLE),
)
@limited(needs=Role.OWNER)
def create_population(by: By, body: wire.PopulationIn, request: OptionalIdempotency) -> Response:
    """Open an account over all datasets about the same people. Datasets join the population by its name."""
    return sent(populations.open_population(*by, body, request=request))


@population_routes.get("", responses=documented(RoleMissing))
def list_populations(by: By, page: Page) -> wire.PopulationList:
    """List the populations that the key opened, with their members; all populations for admins and auditors."""
    return populations.list_populations(*by, page)


@population_routes.get("/{population}", responses=documented(NotFound))
def show_population(by: By, population: str) -> wire.PopulationOut:
    """Show one population with its members, by id or name."""
    return populations.show_population(*by, population)


webhook_routes = APIRouter(prefix="/datasets/{dataset}/webhooks", tags=["datasets"], route_class=BodyRoute)


@webhook_routes.post(
    "",
    status_code=201,
    dependencies=SHOWS_SECRET,
    responses=documented(NotFound, RoleMissing, DatasetDeleted, *JSON_BODY),
)
def create_webhook(request: Request, response: Response, by: By, dataset: str, body: WebhookIn) -> WebhookWithSecret:
    """Register an address that is told about jobs, refusals or a low budget of a dataset. Its secret is shown once."""
    made = webhooks.create_webhook(*by, dataset, body)
    response.headers["Location"] = f"{request.url.path}/{made.id}"
    return made


@webhook_routes.post(
    "/{webhook_id}/secret",
    status_code=201,
    dependencies=SHOWS_SECRET,
    responses=documented(NotFound, RoleMissing, DatasetDeleted, *JSON_BODY),
)
def rotate_webhook(by: By, dataset: str, webhook_id: str, body: WebhookRotationIn) -> WebhookWithSecret:
    """Replace the secret of a webhook, shown once. For a time, deliveries carry the earlier secret's signature, too."""
    return webhooks.rotate_webhook(*by, dataset, webhook_id, body)


@webhook_routes.get("", responses=documented(NotFound, RoleMissing))
def list_webhooks(by: By, dataset: str) -> WebhookList:
    """List the webhooks of a dataset, without their secrets."""
    return webhooks.list_webhooks(*by, dataset)


@webhook_routes.delete("/{webhook_id}", status_code=204, responses=documented(NotFound, RoleMissing))
def delete_webhook(by: By, dataset: str, webhook_id: str) -> None:
    """Remove a webhook with its waiting deliveries."""
    webhooks.delete_webhook(*by, dataset, webhook_id)
