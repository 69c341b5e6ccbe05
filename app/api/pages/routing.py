"""Defines the routes of pages, which show every error as a page."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from app.api import problems
from app.api.pages.refusals import page_of
from app.api.requests import BodyRoute
from app.core.errors import GrovekeeperError


class PageRoute(BodyRoute):
    """A route whose named errors are answered with a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except GrovekeeperError as error:
                return page_of(request, error)
            except RequestValidationError as error:
                return page_of(request, problems.invalid_request(error.errors()))

        return handle
