"""Defines the routes of the rows of a dataset: uploads, erasures, overlaps."""

from dataclasses import replace
from email.message import Message
from typing import Annotated, Literal

from fastapi import Depends, Header, Query, Request, Response

from app.api.problems import JSON_BODY, REPEATABLE
from app.api.requests import (
    CHARSETS,
    Body,
    By,
    Caller,
    NameFilter,
    Page,
    Router,
    checked_key,
    limited,
    raises,
    sent,
)
from app.api.streams import receive_upload
from app.core import limits
from app.core.errors import (
    BalanceMismatch,
    CellsUnread,
    DatasetDeleted,
    NoRowsOfUnit,
    NotFound,
    RoleMissing,
    RowsInvalid,
    UnsupportedMediaType,
    UploadEmpty,
    UploadRepeated,
)
from app.datasets.upload_bodies import MEDIA_TYPES, BodyForm, Dialect
from app.services.datasets import erase, show, unit_erasure
from app.services.datasets.upload import UploadTerms
from app.wire.uploads import (
    ErasureIn,
    ErasureOut,
    OverlapOut,
    UploadErasureOut,
    UploadList,
    UploadOut,
)
from grovekeeper_common.json_types import JsonObject

upload_routes = Router(prefix="/datasets", tags=["datasets"])


_ACCEPTED = [
    "text/csv",
    "text/csv with Content-Encoding: gzip",
    *(name for name in MEDIA_TYPES if "vnd" in name),
]


_ROWS_BODY: JsonObject = {
    "requestBody": {
        "required": True,
        "description": "CSV with a header row, UTF-8 if no parameter says otherwise, plain or with "
        "`Content-Encoding: gzip`; empty = missing. Or "
        "Parquet or Arrow IPC with columns of numbers, booleans and texts; null = missing.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            **{
                name: {"schema": {"type": "string", "format": "binary"}}
                for name in MEDIA_TYPES
                if "vnd" in name
            },
        },
    }
}


@upload_routes.post(
    "/{dataset}/erasures",
)
@limited(body=Body.ERASURE)
@raises(NoRowsOfUnit, DatasetDeleted)
def erase_unit(by: By, dataset: str, body: ErasureIn) -> ErasureOut:
    """Erase the rows of one unit. Spend stays spent, and the unit's places stay taken."""
    return unit_erasure.erase_unit(*by, dataset, unit=body.unit, named=body.reference)


@upload_routes.get("/{dataset}/overlaps")
def show_overlaps(by: By, dataset: str) -> OverlapOut:
    """Count the rows that the dataset shares with others of the same owner. For that
    owner only; changes nothing.
    """
    return show.show_overlaps(*by, dataset)


@upload_routes.get("/{dataset}/uploads")
def list_uploads(by: By, dataset: str, page: Page) -> UploadList:
    """List the uploads of the dataset, with the stored rows for owners by a grant. For
    owners.
    """
    return show.list_uploads(*by, dataset, page)


@upload_routes.delete(
    "/{dataset}/uploads/{upload}",
)
@raises(DatasetDeleted)
def erase_upload(by: By, dataset: str, upload: str) -> UploadErasureOut:
    """Erase the rows of one upload. Spend stays spent; `places` says if units' places
    are free. May be repeated.
    """
    return erase.erase_upload(*by, dataset, upload=upload)


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


async def dialect(
    separator: Literal[",", ";", "tab", "|"] = ",",
    decimal: Literal[".", ","] = ".",
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252"] = "utf-8",
    missing: Annotated[str, Query(max_length=limits.MAX_MISSING_CHARS)] = "",
) -> Dialect:
    """Read how a file is written, from the query parameters."""
    return Dialect.of(separator, decimal, encoding, missing)


async def upload_terms(
    request: Request,
    dialect: Annotated[Dialect, Depends(dialect)],
    again: bool = False,
    accept_unknown: bool = False,
    accept_empty: bool = False,
) -> UploadTerms:
    """Read how the body of an upload is read, from its headers and query parameters."""
    return UploadTerms(
        _form(request),
        dialect,
        again=again,
        accept_unknown=accept_unknown,
        accept_empty=accept_empty,
    )


@upload_routes.post(
    "/{dataset}/rows",
    status_code=201,
    response_model=UploadOut,
    openapi_extra=_ROWS_BODY,
)
@limited(body=Body.UPLOAD)
@raises(*_JUDGED, *REPEATABLE)
async def upload_rows(
    request: Request,
    caller: Caller,
    dataset: str,
    terms: Annotated[UploadTerms, Depends(upload_terms)],
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> Response:
    """Upload a file of rows, which becomes an epoch. The report per column is for the
    owner only.
    """
    key = checked_key(request, idempotency_key)
    return sent(
        await receive_upload(
            request, caller, dataset, request.stream(), terms=terms, key=key
        )
    )


@upload_routes.post(
    "/{dataset}/rows/check",
    status_code=204,
    openapi_extra=_ROWS_BODY,
)
@limited(body=Body.UPLOAD)
@raises(*_JUDGED)
async def check_rows(
    request: Request,
    caller: Caller,
    dataset: str,
    terms: Annotated[UploadTerms, Depends(upload_terms)],
    replaces: NameFilter = None,
) -> Response:
    """Check a file of rows as an upload would, and store nothing."""
    check = replace(terms, check=True, replaces=replaces)
    return sent(
        await receive_upload(
            request, caller, dataset, request.stream(), terms=check, key=None
        )
    )


def _form(request: Request) -> BodyForm:
    """Return the form of an upload, from its headers.

    Raises:
        UnsupportedMediaType: another type, or an encoding that the type does not have;
            or a parameter says that the text is not in UTF-8 or has no header (RFC 4180
            and 7111).
    """
    declared = Message()
    declared["content-type"] = request.headers.get("content-type", "text/csv")
    media_type = declared.get_content_type()
    if declared.get_param("header") == "absent":
        raise UnsupportedMediaType(["text/csv with a header row"])
    if declared.get_content_charset("utf-8") not in CHARSETS:
        raise UnsupportedMediaType(
            [
                "text/csv in UTF-8",
                "text/csv without a charset, which the parameter encoding states",
            ]
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    form = MEDIA_TYPES.get(media_type)
    if form is BodyForm.CSV and encoding in ("gzip", "x-gzip"):  # RFC 9110, 8.4.1.3
        return BodyForm.GZIP
    if form is None or encoding != "identity":
        raise UnsupportedMediaType(_ACCEPTED)
    return form
