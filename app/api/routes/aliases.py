"""Defines the routes of aliases."""

from typing import Annotated

from fastapi import Path, Response

from app.api.requests import By, Page, Precondition, Router, raises, with_etag
from app.services import models
from app.wire.aliases import AliasHistory, AliasIn, AliasList, AliasName, AliasOut

alias_routes = Router(prefix="/datasets/{dataset}/aliases", tags=["models"])


_Alias = Annotated[AliasName, Path()]


@alias_routes.get("")
@raises(any_role=True)
def list_aliases(by: By, dataset: str, page: Page) -> AliasList:
    """List the aliases of the dataset's models. `dataset@alias` stands wherever a
    model's id does.
    """
    return models.list_aliases(*by, dataset, page)


@alias_routes.get("/{alias}")
def show_alias(
    by: By, dataset: str, alias: _Alias, page: Page, response: Response
) -> AliasHistory:
    """Show the model that an alias names, and who moved the alias when. For keys that
    may read the balance.
    """
    history = models.show_alias(*by, dataset, alias, page)
    return with_etag(response, history, history.etag)


@alias_routes.put(
    "/{alias}",
)
def put_alias(
    by: By,
    dataset: str,
    alias: _Alias,
    body: AliasIn,
    condition: Precondition,
    response: Response,
) -> AliasOut:
    """Set an alias to a model of the dataset. Later requests that use the alias reach
    that model.
    """
    moved = models.put_alias(*by, dataset, alias, model=body.model, condition=condition)
    return with_etag(response, moved, moved.etag)


@alias_routes.delete(
    "/{alias}",
    status_code=204,
)
def delete_alias(by: By, dataset: str, alias: _Alias, condition: Precondition) -> None:
    """Remove an alias. Its model and its history stay."""
    models.remove_alias(*by, dataset, alias, condition=condition)
