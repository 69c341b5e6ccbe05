"""Defines the routes of ``/datasets/{dataset}/aliases``: move, list, show and remove aliases of models."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Path

from app.api import problems
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Page
from app.core.errors import NotFound, RoleMissing
from app.services import models
from app.wire.models import AliasHistory, AliasIn, AliasList, AliasName, AliasOut

router = APIRouter(prefix="/datasets/{dataset}/aliases", tags=["models"], route_class=BodyRoute)

_Alias: TypeAlias = Annotated[AliasName, Path()]


@router.get("", operation_id="list_aliases", responses=problems.documented(NotFound))
def list_aliases(installation: CurrentInstallation, caller: Caller, dataset: str, page: Page) -> AliasList:
    """List the aliases of the dataset's models. `dataset@alias` stands wherever a model's id does."""
    return models.list_aliases(installation, caller, dataset, page)


@router.get("/{alias}", operation_id="show_alias", responses=problems.documented(NotFound, RoleMissing))
def show_alias(
    installation: CurrentInstallation, caller: Caller, dataset: str, alias: _Alias, page: Page
) -> AliasHistory:
    """Show the model that an alias names, and who moved the alias when. For keys that may read the balance."""
    return models.show_alias(installation, caller, dataset, alias, page)


@router.put(
    "/{alias}", operation_id="put_alias", responses=problems.documented(NotFound, RoleMissing, *problems.JSON_BODY)
)
def put_alias(
    installation: CurrentInstallation, caller: Caller, dataset: str, alias: _Alias, body: AliasIn
) -> AliasOut:
    """Set an alias to a model of the dataset. Later requests that use the alias reach that model."""
    return models.put_alias(installation, caller, dataset, alias, model=body.model)


@router.delete(
    "/{alias}", operation_id="delete_alias", status_code=204, responses=problems.documented(NotFound, RoleMissing)
)
def delete_alias(installation: CurrentInstallation, caller: Caller, dataset: str, alias: _Alias) -> None:
    """Remove an alias. Its model and its history stay."""
    models.remove_alias(installation, caller, dataset, alias)
