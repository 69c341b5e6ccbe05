"""Defines the routes of ``/datasets/{id}/profiles`` and ``/profiles``: quote, submit and show private profiles.

Services that need numpy are imported at the first request, as in :mod:`app.api.routes.training`.
"""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.capacity import Work
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Idempotency, Page, limited, sent
from app.core.errors import (
    DatasetDeleted,
    NoRowsYet,
    NotFound,
    RoleMissing,
)
from app.services.profiles import show_profiles
from app.services.spending.profiles import show_profile_quote, submit_profile
from app.wire.spending import ProfileIn, ProfileList, ProfileOut, ProfileQuoteOut, TrainOut

router = APIRouter(tags=["profiles"], route_class=BodyRoute)


@router.post(
    "/datasets/{dataset}/profiles/quote",
    operation_id="quote_profile",
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY),
)
def quote_profile(installation: CurrentInstallation, caller: Caller, dataset: str, body: ProfileIn) -> ProfileQuoteOut:
    """Quote a profile: its releases and its price. Reads no row and costs nothing."""
    return show_profile_quote(installation, caller, dataset, body)


@router.post(
    "/datasets/{dataset}/profiles",
    operation_id="release_profile",
    status_code=202,
    response_model=TrainOut,
    responses=problems.documented(NotFound, RoleMissing, NoRowsYet, *problems.SPENDING),
)
@limited(work=Work.SUBMISSION)
def release_profile(
    installation: CurrentInstallation, caller: Caller, dataset: str, body: ProfileIn, request: Idempotency
) -> Response:
    """Reserve the price and queue a job that releases bins, class counts and a size, which later jobs reuse."""
    return sent(submit_profile(installation, caller, dataset, body, request=request))


@router.get(
    "/datasets/{dataset}/profiles",
    operation_id="list_profiles",
    responses=problems.documented(NotFound, RoleMissing),
)
def list_profiles(installation: CurrentInstallation, caller: Caller, dataset: str, page: Page) -> ProfileList:
    """List the profiles of a dataset, newest first. Profiles stay when the rows are erased."""
    return show_profiles.list_profiles(installation, caller, dataset, page)


@router.get("/profiles/{profile_id}", operation_id="show_profile", responses=problems.documented(NotFound, RoleMissing))
def show_profile(installation: CurrentInstallation, caller: Caller, profile_id: str) -> ProfileOut:
    """Show a profile: the released numbers with their noise, guarantee and receipt."""
    return show_profiles.show_profile(installation, caller, profile_id)
