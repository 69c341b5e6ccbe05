"""Renders the templates of the dashboard under a strict content policy, and shows
errors as pages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from secrets import token_urlsafe
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.access.grants import Principal
from app.api import problems
from app.api.addresses import base
from app.api.authentication import SIGN_IN
from app.api.pages import pictures, words
from app.api.pages.views import (
    ShownProblem,
    navigation,
    shown_problem,
    signed_in_as,
    tree_of,
)
from app.core import errors, limits
from app.services.installation import Installation
from grovekeeper_common import odds_words, scope_words
from grovekeeper_common.job_words import REASONS, place_in_words
from grovekeeper_common.limit_words import limit_in_words
from grovekeeper_common.number_words import few_digits, grouped, share_in_words
from grovekeeper_common.time_words import hour_in_words, pace_in_words
from grovekeeper_common.verification_words import verification_in_words
from grovekeeper_forests.amounts import SYMBOLS
from grovekeeper_forests.errors import GrovekeeperError

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Visit:
    """A request of a caller who is signed in.

    Attributes:
        sent: the fields of a form that was refused, which its page shows again.
        refusal: why the form was refused.
    """

    request: Request
    installation: Installation
    caller: Principal
    sent: Mapping[str, str] = field(default_factory=dict)
    refusal: GrovekeeperError | None = None

    @property
    def by(self) -> tuple[Installation, Principal]:
        """The first two arguments of a service."""
        return self.installation, self.caller

    @property
    def refused_form(self) -> str:
        """The end of the address of a form that was refused, or nothing."""
        if self.refusal is None:
            return ""
        return self.request.url.path.rpartition("/")[2]

    def refused(
        self, refusal: GrovekeeperError | None, sent: Mapping[str, str] | None = None
    ) -> "Visit":
        """This visit, whose page says why a form was refused."""
        return replace(self, refusal=refusal, sent=sent or {})

    def page(
        self, template: str, *, status: int = 200, **context: object
    ) -> HTMLResponse:
        """Return a page, with the status of the refusal in place of ``status`` if there
        is one.

        The template finds the problem of the refusal as ``refusal``, and the fields of
        the refused form as ``sent``.
        """
        problem = None
        if self.refusal is not None:
            status, problem = shown_problem(self.refusal)
        return rendered(
            self.request,
            template,
            status=status,
            refusal=problem,
            sent=self.sent,
            **context,
        )


async def _visit(request: Request) -> Visit:
    return Visit(request, request.app.state.installation, request.state.principal)


Visitor = Annotated[Visit, Depends(_visit)]


def as_file(response: Response, name: str) -> Response:
    """A response that a browser saves as a file."""
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def if_permitted(show: Callable[[], _Part]) -> _Part | None:
    """A part of a page, unless the caller lacks the role."""
    try:
        return show()
    except (errors.NotFound, errors.RoleMissing):
        return None


def rendered(
    request: Request, template: str, *, status: int = 200, **context: object
) -> HTMLResponse:
    """Return a page from the template of a name, for a caller who may not be signed in."""
    caller: Principal | None = getattr(request.state, "principal", None)
    shared = {
        "caller": caller,
        "navigation": navigation(caller, request.url.path),
        "signed_in_as": signed_in_as(caller),
        "is_later_page": "cursor" in request.query_params,
        "once": token_urlsafe(16),  # makes a form that is sent twice one request
    }
    text = _environment().get_template(f"{template}.html").render(**shared, **context)
    return HTMLResponse(text, status_code=status, headers=_HEADERS)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("app.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(words, name)
        for name in (
            "spent",
            "left",
            "sentence",
            "entry",
            "listed",
        )
    }
    environment.filters |= {
        "cell": scope_words.cell,
        "covered": scope_words.covered,
        "percent": odds_words.percent,
        "few_digits": few_digits,
        "grouped": grouped,
        "share": share_in_words,
        "minute": _exact(words.minute),
        "hour": hour_in_words,
        "clock": _exact(words.clock),
        "verification": verification_in_words,
        "place": place_in_words,
    }
    environment.globals |= {
        "base": base, "symbols": SYMBOLS, "odds_sentence": odds_words.sentence, "unit_of": words.unit_of,
        "budget_bar": pictures.budget_bar, "odds_scale": pictures.odds_scale, "meter": pictures.meter,
        "share_class": pictures.share_class,
        "recovered_shares": pictures.recovered_shares, "limit_in_words": limit_in_words,
        "pace_in_words": pace_in_words,
        "query_of": words.query_of, "limited": words.limited, "tree_of": tree_of,
        "reasons": REASONS,
    }  # fmt: skip
    return environment


def _exact(written: Callable[[str], str]) -> Callable[[str], Markup]:
    """Writes times for people, exact where a program reads the page."""
    element = Markup('<time datetime="{}">{}</time>')
    return lambda time: element.format(time, written(time))


def page_of(request: Request, error: GrovekeeperError) -> Response:
    """Return the page of a named error; a caller without a session is sent to sign in."""
    if isinstance(error, errors.Unauthenticated):
        following = {"unsent": "yes"}
        if request.method == "GET":
            page = str(request.url.replace(scheme="", netloc=""))
            if len(page) > limits.MAX_RETURN_CHARS:
                page = request.url.path
            following = {"next": page}
        return RedirectResponse(f"{SIGN_IN}?{urlencode(following)}", status_code=303)
    status, problem = shown_problem(error)
    response = rendered(
        request,
        "problem",
        status=status,
        problem=problem,
        request_id=request.state.request_id,
    )
    if isinstance(error, errors.TooManyRequests | errors.Unavailable):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def unexpected(request: Request) -> HTMLResponse:
    """Return the page of an unexpected error: a request id and nothing else."""
    row = problems.INTERNAL
    problem = ShownProblem(row.title, "An internal error. Quote the request id.")
    return rendered(
        request,
        "problem",
        status=row.status,
        problem=problem,
        request_id=request.state.request_id,
    )
