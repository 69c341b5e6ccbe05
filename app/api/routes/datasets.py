"""Defines the routes of datasets and their declarations."""

import json

from fastapi import Response

from app.access.grants import Role
from app.api.problems import JSON_BODY
from app.api.requests import (
    Body,
    By,
    NameFilter,
    OptionalIdempotency,
    Page,
    Precondition,
    Router,
    limited,
    raises,
    sent,
    with_etag,
)
from app.core.errors import (
    AccountDiffers,
    BalanceMismatch,
    DatasetDeleted,
    DeclarationFixed,
    NameTaken,
    NotFound,
    PopulationMismatch,
    RoleMissing,
    SameSubmitter,
)
from app.datasets.catalog import DatasetFilter
from app.services.datasets import change, declare, erase, show
from app.wire.datasets import (
    DatasetChangeIn,
    DatasetIn,
    DatasetList,
    DatasetOut,
    DeclarationOut,
)
from app.wire.grants import GrantedRole
from grovekeeper_common.json_types import JsonObject

dataset_routes = Router(prefix="/datasets", tags=["datasets"])


declaration_routes = Router(prefix="/declarations", tags=["datasets"])


_DECLARING = (
    RoleMissing, SameSubmitter, NotFound, NameTaken, AccountDiffers, PopulationMismatch, BalanceMismatch,
    *JSON_BODY,
)  # fmt: skip


@dataset_routes.post(
    "",
    status_code=201,
    response_model=DatasetOut,
)
@limited(body=Body.DECLARATION, needs=Role.OWNER)
@raises(*_DECLARING)
def declare_dataset(by: By, body: DatasetIn, request: OptionalIdempotency) -> Response:
    """Declare a dataset: public schema, lifetime budget, partitions. The calling key
    becomes its owner.
    """
    answer = declare.register_dataset(*by, body, request=request)
    response = sent(answer)
    # from the body: a repetition has no more than the stored bytes, which may be those
    # of an earlier version
    _name_state(response, json.loads(answer.body))
    return response


@declaration_routes.post("")
@limited(body=Body.DECLARATION, needs=Role.OWNER)
@raises(*_DECLARING)
def check_declaration(by: By, body: DatasetIn) -> DeclarationOut:
    """Check a declaration by the rules of `POST /datasets`, and store nothing."""
    return declare.check_declaration(*by, body)


@dataset_routes.get("")
def list_datasets(
    by: By,
    page: Page,
    name: NameFilter = None,
    population: NameFilter = None,
    role: GrantedRole | None = None,
) -> DatasetList:
    """List the public facts and the balance of every dataset on which the key has a
    grant.

    With `name`, only datasets whose names contain it, in upper or lower case; with
    `population` (id or name), only its members; with `role`, only datasets on which the
    key was granted it.
    """
    return show.list_datasets(
        *by,
        page,
        DatasetFilter(name, population),
        role=None if role is None else Role(role),
    )


@dataset_routes.get("/{dataset}")
@raises(any_role=True)
def show_dataset(by: By, dataset: str, response: Response) -> DatasetOut:
    """Show the public facts and the balance of one dataset, by id or name."""
    return _with_etag(response, show.show_dataset(*by, dataset))


@dataset_routes.patch(
    "/{dataset}",
)
@limited(body=Body.DECLARATION)
@raises(DatasetDeleted, DeclarationFixed)
def change_dataset(
    by: By,
    dataset: str,
    body: DatasetChangeIn,
    condition: Precondition,
    response: Response,
) -> DatasetOut:
    """Declare other columns: names, bounds, categories, classes. Until the first upload,
    reservation, charge or join of a population.
    """
    return _with_etag(
        response, change.change_columns(*by, dataset, body.schema_, condition=condition)
    )


def _with_etag(response: Response, answer: DatasetOut) -> DatasetOut:
    _name_state(response, answer.model_dump(mode="json", by_alias=True))
    return answer


def _name_state(response: Response, shown: JsonObject) -> None:
    """Name the state of the declared columns, which alone change on request."""
    columns = shown.pop("schema")
    with_etag(response, shown, show.columns_etag(columns), shown)


@dataset_routes.delete("/{dataset}", status_code=204)
def delete_dataset(by: By, dataset: str) -> None:
    """Erase the rows of a dataset. Spend, ledger and models stay.

    No job of the dataset begins any more. If many are queued, some are cancelled after
    the answer; until then, they show as queued and their prices as reserved.
    """
    erase.delete_dataset(*by, dataset)
