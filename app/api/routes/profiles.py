"""``/datasets/{id}/profiles`` and ``/profiles``."""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.deps import Caller, Here, Idempotency, Page, sent
from app.api.exact_json import ExactRoute
from app.core.errors import (
    DatasetDeleted,
    NoRowsYet,
    NotFound,
    RoleMissing,
)
from app.services.profiles import show_profiles
from app.services.profiles.submit_profile import show_profile_quote, submit_profile
from app.wire.profiles import ProfileIn, ProfileList, ProfileOut, ProfileQuoteOut
from app.wire.training import TrainOut

router = APIRouter(tags=["profiles"], route_class=ExactRoute)


@router.post(
    "/datasets/{dataset}/profiles/quote",
    operation_id="quote_profile",
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY),
)
def quote_profile(here: Here, caller: Caller, dataset: str, body: ProfileIn) -> ProfileQuoteOut:
    """What a profile would release and cost. Touches no rows and costs nothing."""
    return show_profile_quote(here, caller, dataset, body)


@router.post(
    "/datasets/{dataset}/profiles",
    operation_id="release_profile",
    status_code=202,
    response_model=TrainOut,
    responses=problems.documented(NotFound, RoleMissing, NoRowsYet, *problems.SPENDING),
)
def release_profile(here: Here, caller: Caller, dataset: str, body: ProfileIn, request: Idempotency) -> Response:
    """Reserves the price and queues a job whose release (bins, class counts, size) later jobs reuse at no price."""
    return sent(submit_profile(here, caller, dataset, body, request=request))


@router.get(
    "/datasets/{dataset}/profiles",
    operation_id="list_profiles",
    responses=problems.documented(NotFound, RoleMissing),
)
def list_profiles(here: Here, caller: Caller, dataset: str, page: Page) -> ProfileList:
    """The profiles of a dataset, newest first. They stay when its rows are erased."""
    return show_profiles.list_profiles(here, caller, dataset, page)


@router.get("/profiles/{profile_id}", operation_id="show_profile", responses=problems.documented(NotFound, RoleMissing))
def show_profile(here: Here, caller: Caller, profile_id: str) -> ProfileOut:
    """The released numbers with their noise, guarantee and receipt."""
    return show_profiles.show_profile(here, caller, profile_id)
