"""Serves the list of datasets."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation, Page
from app.core import limits
from app.services import approvals
from app.services.datasets import show
from app.services.pages import PageRequest

router = APIRouter(route_class=PageRoute)


@router.get("/")
def list_datasets(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    page: Page,
    name: Annotated[str, Query(max_length=limits.MAX_DATASET_NAME_CHARS)] = "",
) -> Response:
    """Show every dataset that the key sees and whose name contains a text, the fullest first."""
    listed = show.list_datasets(installation, caller, page, name=name.strip() or None)
    datasets = [dataset.model_dump(by_alias=True) for dataset in listed.datasets]
    standings = show.standings(installation, caller, [dataset["id"] for dataset in datasets])
    living = sorted((item for item in datasets if item["deleted_at"] is None), key=_share_used, reverse=True)
    erased = [item for item in datasets if item["deleted_at"] is not None]
    return rendered(
        request,
        "datasets",
        datasets=living,
        erased=erased,
        standings=standings,
        name=name,
        following=listed.next,
        undecided=approvals.list_approvals(installation, caller, PageRequest(limit=1)).approvals,
    )


def _share_used(dataset: Mapping[str, Any]) -> Decimal:
    account = dataset["account"]
    return (Decimal(account["charged"]) + Decimal(account["reserved"])) / (Decimal(account["cap"]) or Decimal(1))
