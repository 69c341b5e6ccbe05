"""Reads the forms that pages send."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from fastapi import Request

from app.api.bodies import BodyRequest
from app.api.pages.sessions import require_same_origin
from app.core import limits
from app.core.errors import MalformedRequest


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form that a page of this service sent; the last of several fields of one name.

    Raises:
        MalformedRequest: another site sent the form, or the body is no form.
    """
    require_same_origin(request)
    body = await BodyRequest(request.scope, request.receive, max_bytes=limits.MAX_JSON_BODY_BYTES).body()
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=limits.MAX_FORM_FIELDS
        )
    except ValueError:
        raise MalformedRequest("the form cannot be read") from None
    return dict(fields)
