"""Reads the forms of pages, calls the service that a form asks for, and answers with a page."""

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field, ValidationError

from app.api import problems
from app.api.capacity import Work, capacities, is_administration
from app.api.pages.sessions import require_same_origin
from app.api.requests import BodyRequest
from app.core import limits
from app.core.errors import GrovekeeperError, MalformedRequest, Unauthenticated
from app.services.pages import PageRequest

Form: TypeAlias = Mapping[str, str]
_Model = TypeVar("_Model", bound=BaseModel)


class SearchForm(BaseModel):
    """The page of results that a form of a search asks for; a subclass adds what is searched for."""

    limit: Annotated[int, Field(ge=1, le=limits.MAX_PAGE_SIZE)] = limits.DEFAULT_PAGE_SIZE
    cursor: Annotated[str | None, Field(max_length=128)] = None

    @property
    def page(self) -> PageRequest:
        return PageRequest(self.limit, self.cursor)


async def read_form(
    request: Request, *, max_bytes: int = limits.MAX_JSON_BODY_BYTES, wait_s: float | None = None
) -> Form:
    """The fields of a form that a page of this service sent; the last of several fields of one name.

    Args:
        request: with the form.
        max_bytes: the largest size.
        wait_s: seconds for the whole form, if it has less time than other bodies.

    Raises:
        MalformedRequest: another site sent the form, or the body is no form.
    """
    require_same_origin(request)
    body = await BodyRequest(request.scope, request.receive, max_bytes=max_bytes, wait_s=wait_s).body()
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=limits.MAX_FORM_FIELDS
        )
    except ValueError:
        raise MalformedRequest("the form cannot be read") from None
    return dict(fields)


async def submitted(
    request: Request, act: Callable[[Form], str | Response], refused: Callable[[GrovekeeperError], Response]
) -> Response:
    """Run what a form asks for, and lead to the page that shows the result.

    Args:
        request: with the form.
        act: what the form asks for; returns the address of the page that follows, or that page.
        refused: shows the page of the form again with the reason of a refusal. It raises what the page raises, so a
            caller who may not see the page is refused as everywhere.
    """
    form = request.state.form = await read_form(request)

    def run() -> Response:
        try:
            following = act(form)
            return RedirectResponse(following, status_code=303) if isinstance(following, str) else following
        except Unauthenticated:
            raise
        except GrovekeeperError as error:
            return refused(error)

    return await capacities(request).run(
        Work.ADMINISTRATION if is_administration(request.url.path) else Work.WRITE, run
    )


def utc(text: str) -> str | None:
    """The time of a field in UTC; nothing for an empty field. Browsers omit the zone, and seconds that are zero."""
    text = text.strip()
    return (text if text.endswith("Z") else f"{text}:00"[:19] + "Z") if text else None


def checked(model: type[_Model], value: object) -> _Model:
    """The body of the API's request that a form stands for.

    Raises:
        InvalidRequest: a field breaks a rule of the API.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        invalid = problems.invalid_request(error.errors(include_url=False, include_input=False), model)
    raise invalid  # out of the handler: the library's error holds the input
