"""Serves the pages on which an owner erases one upload, or all rows of a dataset."""

from fastapi import APIRouter, Request, Response

from app.access.grants import MANAGE_DATASET, Principal
from app.api.pages.forms import Form, submitted
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation
from app.core.errors import GrovekeeperError, InvalidRequest, NotFound
from app.services.authorization import require_role
from app.services.datasets import show
from app.services.datasets.erase import IF_UNREAD, STAYS, delete_dataset, erase_upload
from app.services.installation import Installation

router = APIRouter(prefix="/ui/datasets/{dataset}", route_class=PageRoute)


@router.get("/erase")
def confirm_erasure_of_dataset(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str
) -> Response:
    """Ask the owner to type the name of the dataset whose rows shall be erased, and say what an erasure means."""
    return _confirmation(request, installation, caller, dataset)


@router.post("/erase")
async def erase_all_rows(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Erase all rows of a dataset whose name was typed."""

    def act(form: Form) -> str:
        shown = show.show_dataset(installation, caller, dataset)
        if form.get("name", "").strip() != shown.name:
            raise InvalidRequest.at("/name", "not-the-name-of-the-dataset")
        delete_dataset(installation, caller, shown.id)
        return f"/ui/datasets/{shown.id}"

    def refused(refusal: GrovekeeperError) -> Response:
        return _confirmation(request, installation, caller, dataset, refusal=refusal)

    return await submitted(request, act, refused)


@router.get("/uploads/{upload}/erase")
def confirm_erasure_of_upload(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, upload: str
) -> Response:
    """Ask the owner whether an upload shall be erased, and say what an erasure does not give back."""
    return _confirmation(request, installation, caller, dataset, upload)


@router.post("/uploads/{upload}/erase")
async def erase_rows_of_upload(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, upload: str
) -> Response:
    """Erase the rows of an upload."""

    def act(form: Form) -> str:
        erase_upload(installation, caller, dataset, upload=upload)
        return f"/ui/datasets/{dataset}#uploads"

    def refused(refusal: GrovekeeperError) -> Response:
        return _confirmation(request, installation, caller, dataset, upload, refusal=refusal)

    return await submitted(request, act, refused)


def _confirmation(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    upload: str | None = None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    require_role(installation, caller, dataset, MANAGE_DATASET)
    shown = show.show_dataset(installation, caller, dataset).model_dump(by_alias=True)
    if upload is None:
        return rendered_with(request, "erase_dataset", refusal, dataset=shown)
    epoch = next((epoch for epoch in shown["epochs"] if epoch["epoch"] == upload), None)
    if epoch is None:
        raise NotFound("upload")
    return rendered_with(
        request,
        "erase_upload",
        refusal,
        dataset=shown,
        epoch=epoch,
        stays=f"{STAYS} {IF_UNREAD}" if shown["privacy_unit"]["column"] else STAYS,
    )
