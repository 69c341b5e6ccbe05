"""Serves what all pages need (sign-in, style and script), and lists the routes of all
pages.
"""

from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Match

from app.api import authentication
from app.api.authentication import SIGN_IN
from app.api.capacity import Work, capacities, work_of_authentication
from app.api.fixed_answers import FixedAnswer
from app.api.pages import (
    admin,
    datasets,
    declarations,
    evaluations,
    home,
    jobs,
    ledger,
    models,
    populations,
    report,
    spending,
    statistics,
    webhooks,
)
from app.api.pages.forms import read_form
from app.api.pages.rendering import as_file, rendered
from app.api.requests import KeptHeads, Router
from app.core import limits
from app.core.errors import NotFound, Unauthenticated
from app.services.authorization import authenticate
from app.services.ledger.evidence import show_signer

shared_pages = Router()

_ASSETS = Path(__file__).with_name("assets")
_STYLE = FixedAnswer.of((_ASSETS / "style.css").read_bytes(), "text/css")
_SCRIPT = FixedAnswer.of((_ASSETS / "live.js").read_bytes(), "text/javascript")


@shared_pages.get("/ui/style.css")
async def style(request: Request) -> Response:
    """Serve the style sheet."""
    return _STYLE.to(request)


@shared_pages.get("/ui/live.js")
async def script(request: Request) -> Response:
    """Serve the script that makes pages live."""
    return _SCRIPT.to(request)


@shared_pages.get(SIGN_IN)
def show_sign_in(
    request: Request,
    following: Annotated[
        str, Query(alias="next", max_length=limits.MAX_RETURN_CHARS)
    ] = "/",
    unsent: Literal["yes", ""] = "",
) -> Response:
    """Show the form for a key; ``unsent`` says that another form had no effect."""
    own = _own_path(following)
    return rendered(request, "sign_in", following=own, failed=False, unsent=unsent)


@shared_pages.post(SIGN_IN)
async def sign_in(request: Request, heads: KeptHeads) -> Response:
    """Begin a session, or show the form again."""
    form = await read_form(
        request, max_bytes=limits.MAX_SIGN_IN_BODY_BYTES, wait_s=limits.SIGN_IN_BODY_S
    )
    following = _own_path(form.get("next", "/"))
    authorization = f"Bearer {form.get('key', '')}"
    installation = request.app.state.installation
    provider = request.app.state.provider
    try:
        principal = await capacities(request).run(
            work_of_authentication(authorization, provider=provider),
            lambda: authenticate(installation, authorization, provider=provider),
        )
    except Unauthenticated:
        return rendered(
            request,
            "sign_in",
            status=401,
            following=following,
            failed=True,
            unsent="",
        )
    response = RedirectResponse(following, status_code=303)
    authentication.sign_in(response, request, heads.signer, principal)
    return response


@shared_pages.post("/ui/sign-out")
async def sign_out(request: Request, heads: KeptHeads) -> Response:
    """End the sessions of the key, in this browser and in all others."""
    await read_form(request)
    response = RedirectResponse(SIGN_IN, status_code=303)
    installation = request.app.state.installation
    await capacities(request).run(
        Work.AUTHENTICATION,
        lambda: authentication.sign_out(response, request, installation, heads.signer),
    )
    return response


@shared_pages.get("/ui/signer.pem")
def public_key(heads: KeptHeads) -> Response:
    """Download the public key that verifies checkpoints; any key may read it."""
    return as_file(
        PlainTextResponse(show_signer(heads.signer).public_key), "signer.pem"
    )


@shared_pages.get("/ui/{path:path}")
def unknown_page(request: Request, path: str) -> Response:
    """Lead from an address that takes forms alone, which a person opened, to the
    nearest page above it. Any other address has no page.
    """
    above = f"/ui/{path}"
    if not _is_served(request, "POST", above):
        raise NotFound("page")
    while not _is_served(request, "GET", above):
        above = above.rpartition("/")[0]
    return RedirectResponse(above, status_code=303)


def _is_served(request: Request, method: str, path: str) -> bool:
    """Whether a path has a page, or takes a form of one."""
    scope = {**request.scope, "method": method, "path": path}
    # without the shared pages, which answer every path
    routes = chain.from_iterable(pages.routes for pages in PAGES[:-1])
    return any(route.matches(scope)[0] is Match.FULL for route in routes)


def _own_path(path: str) -> str:
    """The path after signing in, if it is a page of this service; the start page
    otherwise.
    """
    is_own = (
        path.startswith("/ui/")
        and not path.startswith(SIGN_IN)
        and path.isprintable()
        and "\\" not in path
    )
    return path if is_own else "/"


PAGES = (
    home.home_pages, declarations.declaration_pages, datasets.list_pages, datasets.detail_pages,
    webhooks.webhook_pages, spending.training_pages, statistics.statistics_pages,
    admin.revocation_pages, jobs.job_pages, models.model_pages, evaluations.evaluation_pages,
    evaluations.selection_pages, ledger.ledger_pages, report.report_pages, populations.population_pages,
    jobs.approval_pages, admin.admin_pages, admin.act_pages, shared_pages,
)  # fmt: skip
"""The routes of all pages. The first route that fits a path answers it, and the last
one answers unknown paths.
"""
