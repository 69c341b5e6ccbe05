"""Renders the templates of the dashboard under a strict content policy."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.access.grants import Principal
from app.api.pages import pictures, words
from app.wire import odds_words

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}


def rendered(request: Request, template: str, *, status: int = 200, **context: object) -> HTMLResponse:
    """Return a page.

    Args:
        request: gives the caller, if one is signed in, and the path.
        template: name of the template without its suffix.
        status: of the answer.
        context: what the template shows.
    """
    caller: Principal | None = getattr(request.state, "principal", None)
    shared = {"caller": caller, "path": request.url.path, "is_later_page": "cursor" in request.query_params}
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
        name: getattr(words, name) for name in ("spent", "left", "cell", "sentence", "entry", "field_problem")
    }
    environment.filters |= {"percent": odds_words.percent, "minute": _minute}
    environment.globals |= {
        "symbols": words.SYMBOLS, "odds_sentence": odds_words.sentence, "budget_bar": _bar,
        "odds_scale": pictures.odds_scale, "share_class": pictures.share_class,
        "recovered_shares": pictures.recovered_shares,
    }  # fmt: skip
    return environment


def _minute(time: str) -> Markup:
    """A time to the minute, exact where a program reads the page."""
    return Markup('<time datetime="{}">{}</time>').format(time, words.minute(time))


def _bar(account: Mapping[str, Any], label: str, requested: str = "0") -> object:
    return pictures.budget_bar(pictures.Bar.of(account, label=label, requested=requested))
