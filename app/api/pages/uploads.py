"""Serves the page on which an owner uploads rows, with the report on every column."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from secrets import token_urlsafe
from typing import Any

from fastapi import APIRouter, Request, Response

from app.access.grants import MANAGE_DATASET, Principal
from app.api.capacity import Work, capacities
from app.api.pages.file_forms import read_file_form
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.requests import Body, Caller, CurrentInstallation, checked_key, limited
from app.api.streams import receive_upload
from app.core.errors import GrovekeeperError, NotFound, RoleMissing, Unauthenticated, UnsupportedMediaType
from app.datasets.upload_bodies import BodyForm
from app.services.authorization import require_role
from app.services.datasets import show
from app.services.datasets.upload import UploadTerms
from app.services.installation import Installation

router = APIRouter(prefix="/ui/datasets/{dataset}", route_class=PageRoute)

_FORMS: Mapping[str, BodyForm] = {
    ".csv": BodyForm.CSV,
    ".gz": BodyForm.GZIP,
    ".parquet": BodyForm.PARQUET,
    ".arrow": BodyForm.ARROW_FILE,
    ".feather": BodyForm.ARROW_FILE,
    ".arrows": BodyForm.ARROW_STREAM,
}
"""Forms of files, by the end of their names."""


@router.get("/rows")
def show_form(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Show the form for a file of rows, to the owner."""
    return _page(request, installation, caller, dataset)


@router.post("/rows")
@limited(body=Body.UPLOAD)
async def upload(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Store the file of the form as an upload, and show the report; a refusal names the columns that do not match."""
    report, refusal = None, None
    try:
        form = await read_file_form(request)
        file_form = _FORMS.get(PurePath(form.file_name).suffix.lower())
        if file_form is None:
            raise UnsupportedMediaType([f"a file whose name ends in {', '.join(_FORMS)}"])
        key = checked_key(request, form.fields.get("once") or None)
        terms = UploadTerms(file_form, again="again" in form.fields, accept_unknown="accept_unknown" in form.fields)
        answer = await receive_upload(request, caller, dataset, form.chunks, terms=terms, key=key)
        report = json.loads(answer.body)
    except (NotFound, RoleMissing, Unauthenticated):
        raise
    except GrovekeeperError as error:
        refusal = error
    return await capacities(request).run(
        Work.READ, lambda: _page(request, installation, caller, dataset, report=report, refusal=refusal)
    )


def _page(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    *,
    report: Mapping[str, Any] | None = None,
    refusal: GrovekeeperError | None = None,
) -> Response:
    require_role(installation, caller, dataset, MANAGE_DATASET)
    return rendered_with(
        request,
        "upload",
        refusal,
        status=200 if report is None else 201,
        dataset=show.show_dataset(installation, caller, dataset).model_dump(by_alias=True),
        report=report,
        endings=list(_FORMS),
        once=token_urlsafe(16),
    )
