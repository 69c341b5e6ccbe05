"""Answers predictions before the framework routes them, because routing costs more than
a prediction: those of ``POST /models/{id}/predict`` and of the Open Inference Protocol.

The framework's routes document the operations, and answer other methods.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.access.grants import Principal
from app.api.accepted import accepts
from app.api.authentication import (
    INFER,
    INFER_BY_VERSION,
    PREDICT,
    Prediction,
)
from app.api.capacity import CLIENT, Capacities, Work
from app.api.requests import check_media_type, check_query, read_body
from app.core import limits
from app.services.inference import InferenceAnswer, infer, infer_at_once
from app.services.installation import Installation
from app.services.predict import PredictionForm, answer_at_once, predict

PREDICTION_ROUTES = frozenset({PREDICT, INFER, INFER_BY_VERSION})
_BINARY = "application/octet-stream"
_OTHERS = {
    PREDICT: (PredictionForm.ARROW,),
    INFER: (_BINARY,),
    INFER_BY_VERSION: (_BINARY,),
}
"""The media types of bodies of predictions besides JSON."""

_JSON_LENGTH = b"inference-header-content-length"
Parts = tuple[list[tuple[bytes, bytes]], bytes]
"""Header fields and body of an answer."""


class Predictions:
    """Answers predictions of one process.

    Args:
        capacities: its threads predict what is not answered at once.
        routes: the framework's routes, those of predictions among them.

    Attributes:
        routes: those of predictions by their path, for metrics and spans.
    """

    def __init__(
        self,
        installation: Installation,
        capacities: Capacities,
        routes: Sequence[BaseRoute],
    ) -> None:
        self._installation = installation
        self._capacities = capacities
        self.routes = {
            path: route
            for route in routes
            if (path := getattr(route, "path", "")) in PREDICTION_ROUTES
        }

    async def answer(
        self, addressed: Prediction, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answers a request whose caller is authenticated; its functions in
        ``app.services`` list the errors.
        """
        scope["route"] = self.routes[addressed.route]
        media_type, body = await read_body(
            scope, receive, limits.MAX_PREDICTION_BODY_BYTES, _OTHERS[addressed.route]
        )
        if scope["query_string"]:
            await check_query(Request(scope))
        parts = None
        if media_type != PredictionForm.ARROW:
            # While a caller was read again, many of its requests came here: by its one
            # thread they would take so long that those behind them find no seat, come
            # here, too, and are refused.
            parts = self.at_once(addressed, scope["state"]["principal"], scope, body)
        fields, answer = parts or await self._in_thread(
            addressed, scope, media_type, body
        )
        # the answer may wait for its client, which holds up no other large body
        del body
        self._capacities.end_large_body(CLIENT.get())
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": answer})

    async def _in_thread(
        self, addressed: Prediction, scope: Scope, media_type: str, body: bytes
    ) -> Parts:
        asked = self._installation, scope["state"]["principal"], addressed.model
        if addressed.route != PREDICT:
            work = partial(
                infer,
                *asked,
                addressed.version,
                body,
                json_lengths=_json_lengths(scope),
            )
            return _inferred(await self._capacities.run(Work.PREDICTION, work))
        form = PredictionForm.JSON
        if media_type == PredictionForm.ARROW:
            form = PredictionForm.ARROW
        answer_form = _form_of_answer(scope, form)
        predicted = partial(predict, *asked, body, form=form, answer_form=answer_form)
        answer = await self._capacities.run(Work.PREDICTION, predicted)
        return _fields(answer_form, answer), answer

    def at_once(
        self, addressed: Prediction, principal: Principal, scope: Scope, body: bytes
    ) -> Parts | None:
        """Answers a small request whose model is loaded; ``None`` if :meth:`answer` has
        to.
        """
        if scope["query_string"] or len(body) > limits.MAX_BYTES_AT_ONCE:
            return None
        asked = self._installation, principal, addressed.model
        if addressed.route != PREDICT:
            check_media_type(scope, _OTHERS[addressed.route])
            inferred = infer_at_once(
                *asked, addressed.version, body, json_lengths=_json_lengths(scope)
            )
            if inferred is None:
                return None
            return _inferred(inferred)
        check_media_type(scope)
        if _form_of_answer(scope, PredictionForm.JSON) is not PredictionForm.JSON:
            return None
        answer = answer_at_once(*asked, body)
        if answer is None:
            return None
        return _fields(PredictionForm.JSON, answer), answer


def _fields(media_type: str, answer: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-length", b"%d" % len(answer)),
        (b"content-type", media_type.encode("ascii")),
    ]


def _inferred(answer: InferenceAnswer) -> Parts:
    if answer.json_length is None:
        return _fields("application/json", answer.body), answer.body
    length = (_JSON_LENGTH, b"%d" % answer.json_length)
    return [length, *_fields(_BINARY, answer.body)], answer.body


def _json_lengths(scope: Scope) -> list[str]:
    return [
        value.decode("latin-1")
        for name, value in scope["headers"]
        if name == _JSON_LENGTH
    ]


def _form_of_answer(scope: Scope, form: PredictionForm) -> PredictionForm:
    """The form of the request, unless the field ``Accept`` names the other form alone."""
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    if not accepted:
        return form
    return _only_form(b",".join(accepted)) or form


@lru_cache(maxsize=64)
def _only_form(accepted: bytes) -> PredictionForm | None:
    """The form that a field names, unless it names both or none."""
    field = accepted.decode("latin-1")
    forms = [form for form in PredictionForm if accepts(field, form)]
    return forms[0] if len(forms) == 1 else None
