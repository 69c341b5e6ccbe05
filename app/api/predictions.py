"""Answers ``POST /models/{id}/predict`` before the framework routes it, because routing costs more than a prediction.

Key, limits, errors, headers and records are those of every request (:mod:`app.api.middleware`). The framework's route
documents the operation, and answers other methods.
"""

import re
from functools import lru_cache, partial

from fastapi import Request
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.access.grants import Principal
from app.api.bodies import read_body
from app.api.capacity import Capacities, Work
from app.api.deps import check_query
from app.core import limits
from app.services.installation import Installation
from app.services.predict import Form, model_at_once, predict

_PATH = re.compile(r"/models/([^/]+)/predict")


class Predictions:
    """Answers predictions of one process.

    Args:
        installation: holds the models.
        capacities: its threads predict what is not answered at once.
        route: the framework's route of the operation, for metrics and spans.
    """

    def __init__(self, installation: Installation, capacities: Capacities, route: BaseRoute) -> None:
        self._installation = installation
        self._capacities = capacities
        self._route = route

    def address(self, scope: Scope) -> str | None:
        """The model that a request addresses; ``None`` if it is no prediction."""
        if scope["method"] != "POST":
            return None
        matched = _PATH.fullmatch(scope["path"])
        return None if matched is None else matched[1]

    async def answer(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request whose caller is authenticated; see :func:`app.services.predict.predict` for the errors."""
        scope["route"] = self._route
        media_type, body = await read_body(scope, receive, limits.MAX_PREDICTION_BODY_BYTES, (Form.ARROW,))
        if scope["query_string"]:
            await check_query(Request(scope))
        principal: Principal = scope["state"]["principal"]
        form = Form.ARROW if media_type == Form.ARROW else Form.JSON
        answer_form = _form_of_answer(scope, form)
        model = None
        if form is answer_form is Form.JSON:
            model = model_at_once(self._installation, principal, address, body)
        if model is not None:
            answer = model.answer(body, form, answer_form)
        else:
            forms = {"form": form, "answer_form": answer_form}
            work = partial(predict, self._installation, principal, address, body, **forms)
            answer = await self._capacities.run(Work.PREDICTION, work)
        headers = [(b"content-length", b"%d" % len(answer)), (b"content-type", answer_form.encode("ascii"))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def _form_of_answer(scope: Scope, form: Form) -> Form:
    """The form of the request, unless the field ``Accept`` names the other form alone."""
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    return (_only_form(b",".join(accepted)) or form) if accepted else form


@lru_cache(maxsize=64)
def _only_form(accepted: bytes) -> Form | None:
    """The form that a field names, unless it names both or none."""
    named = [form for form in Form if form.encode("ascii") in accepted.lower()]
    return named[0] if len(named) == 1 else None
