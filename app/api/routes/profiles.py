"""Defines the routes of profiles."""

from fastapi import Response

from app.api.capacity import Work
from app.api.problems import QUOTED
from app.api.requests import By, Idempotency, Page, Router, limited, raises, sent
from app.core.errors import NoRowsYet
from app.services.releases import profiles
from app.services.releases.requests import quote, submit
from app.wire.jobs import TrainOut
from app.wire.profiles import ProfileIn, ProfileList, ProfileOut, ProfileQuoteOut

profile_routes = Router(tags=["profiles"])


@profile_routes.post("/datasets/{dataset}/profiles/quote")
@raises(*QUOTED)
def quote_profile(by: By, dataset: str, body: ProfileIn) -> ProfileQuoteOut:
    """Quote a profile: its releases and its price. Reads no row and costs nothing."""
    return quote(*by, profiles.ProfileRequest(dataset=dataset, body=body))


@profile_routes.post(
    "/datasets/{dataset}/profiles",
    status_code=202,
    response_model=TrainOut,
)
@limited(work=Work.SUBMISSION)
@raises(NoRowsYet)
def release_profile(
    by: By, dataset: str, body: ProfileIn, request: Idempotency
) -> Response:
    """Reserve the price and queue a job that releases bins, class counts (or mean and
    quantiles of a label that is a number) and a size, which later jobs reuse.
    """
    return sent(
        submit(
            *by, profiles.ProfileRequest(dataset=dataset, body=body), request=request
        )
    )


@profile_routes.get("/datasets/{dataset}/profiles")
def list_profiles(by: By, dataset: str, page: Page) -> ProfileList:
    """List the profiles of a dataset, newest first. Profiles stay when the rows are
    erased.
    """
    return profiles.list_profiles(*by, dataset, page)


@profile_routes.get("/profiles/{profile_id}")
def show_profile(by: By, profile_id: str) -> ProfileOut:
    """Show a profile: the released numbers with their noise, guarantee and receipt."""
    return profiles.show_profile(*by, profile_id)
