"""Assembles the FastAPI application (routes, error handlers, middleware) and its
OpenAPI document.

``examples.json`` has what a real server received and answered, by operation id;
``python -m tests.support.examples`` makes it anew. Examples of problems follow from the
table of problems.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from contextvars import Context
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path

from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app.api import problems
from app.api.authentication import Authentication, Readiness
from app.api.capacity import THREADS, Capacities
from app.api.compression import Compression
from app.api.fixed_answers import FixedAnswer
from app.api.metrics import Metrics
from app.api.middleware import Application, EveryRequest, Spans
from app.api.pages.routers import PAGES
from app.api.predictions import Predictions
from app.api.requests import check_query
from app.api.routes import (
    acts,
    aliases,
    approvals,
    attention,
    datasets,
    evaluations,
    evidence,
    grants,
    health,
    inference,
    keys,
    ledger,
    models,
    populations,
    profiles,
    reservations,
    rules,
    statistics,
    training,
    uploads,
    webhooks,
)
from app.api.sentences import describe
from app.api.streams import JobEvents
from app.core import stamps
from app.core.errors import IdempotencyKeyMissing, InstallationError, NotFound
from app.core.settings import Settings
from app.services.authorization import IdentityProvider
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from app.wire.base import Problem
from app.wire.inference import InferenceIn
from app.wire.models import PredictIn
from grovekeeper_common.json_types import JsonObject

_DESCRIPTION = """\
A lifetime privacy budget for every dataset, kept in a ledger that cannot be overdrawn; differentially private forests
trained against it; predictions from them for free. Errors are `application/problem+json` with a stable `type`.
"""


def create_app(settings: Settings) -> Application:
    """Create the application of one installation. Opens the database, but creates and
    upgrades no tables.

    Raises:
        InstallationError: the database's address or the signing key cannot be used, or
            the extra of a setting is not installed.
    """
    installation = Installation.open(settings, pool_size=sum(THREADS.values()))
    app = _application()
    app.servers = []
    if settings.path_prefix is not None:
        app.servers = [{"url": settings.path_prefix}]
    app.state.installation = installation
    app.state.security_contact = settings.security_contact
    app.state.provider = provider = IdentityProvider.of(settings)
    app.state.heads = Heads(installation)
    app.state.capacities = capacities = Capacities()
    app.state.readiness = Readiness(settings, app.state.heads, capacities)
    app.state.job_events = JobEvents(capacities)
    app.state.metrics = Metrics(installation, app.state.heads)
    routes = [*models.model_routes.routes, *inference.inference_routes.routes]
    app.add_middleware(Compression)
    app.add_middleware(
        EveryRequest,
        installation=installation,
        authentication=Authentication(
            installation, app.state.heads, capacities, provider
        ),
        predictions=Predictions(installation, capacities, routes),
        metrics=app.state.metrics,
        spans=_spans(settings),
    )
    return app


def _spans(settings: Settings) -> Spans | None:
    if settings.otlp_endpoint is None:
        return None
    try:
        from app.api.tracing import RequestSpans
    except ImportError:
        raise InstallationError(
            "GROVEKEEPER_OTLP_ENDPOINT needs: pip install 'grovekeeper[otel]'"
        ) from None
    return RequestSpans.exported_to(settings.otlp_endpoint)


def openapi_text() -> str:
    """Return the OpenAPI document as it is committed to ``openapi/openapi.json``."""
    return (
        json.dumps(
            _openapi(_application()), indent=2, sort_keys=True, ensure_ascii=False
        )
        + "\n"
    )


def _application() -> Application:
    app = Application(
        title="Grovekeeper",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
        telemetry=_NO_TELEMETRY,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in ROUTERS:
        app.include_router(router, dependencies=_CHECKED)
    for pages in PAGES:
        app.include_router(pages, include_in_schema=False)
    app.add_exception_handler(RequestValidationError, problems.on_validation_error)
    app.add_exception_handler(HTTPException, problems.on_http_exception)
    app.add_api_route(OPENAPI, _show_openapi, include_in_schema=False)
    app.add_api_route(SECURITY, _show_contact, include_in_schema=False)
    app.state.document = None
    return app


async def _show_openapi(request: Request) -> Response:
    """Answer with the document, which the first request makes in a thread, and for
    which all others wait.
    """
    state = request.app.state
    if state.document is None:
        made = to_thread.run_sync(partial(_document, request.app))
        # for no client, who may go away
        state.document = asyncio.create_task(made, context=Context())
    answer: FixedAnswer = await asyncio.shield(state.document)
    return answer.to(request)


async def _show_contact(request: Request) -> Response:
    """Answer with the operator's contact for weaknesses.

    Raises:
        NotFound: the operator named none.
    """
    contact = request.app.state.security_contact
    if contact is None:
        raise NotFound("contact for weaknesses")
    # a day, so that the answer does not tell when it was made
    expires = stamps.now().date() + _CONTACT_LASTS
    text = f"Contact: {contact}\nExpires: {expires}T00:00:00Z\n"
    return Response(text, media_type="text/plain")


def _document(app: FastAPI) -> FixedAnswer:
    text = json.dumps(_openapi(app), ensure_ascii=False, separators=(",", ":"))
    return FixedAnswer.of(text.encode("utf-8"), "application/json")


def _openapi(app: FastAPI) -> JsonObject:
    schema = get_openapi(
        title=app.title,
        version=_API_VERSION,
        description=_DESCRIPTION,
        routes=app.routes,
        servers=app.servers or [{"url": "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schema["components"]["schemas"]["Problem"] = Problem.model_json_schema()
    schema["components"]["headers"] = _HEADERS
    schema["components"]["examples"] = _PROBLEM_EXAMPLES
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    operations = list(
        chain(*(methods.values() for methods in schema["paths"].values()))
    )
    for operation in operations:
        _require_key_where_it_is_missed(operation)
        # an absent member would leave open whether a key is needed
        operation.setdefault("security", [])
    _document_headers(schema["paths"])
    for body in (PredictIn, InferenceIn):
        schema["components"]["schemas"] |= _schemas_of(body)
    describe(schema)
    _document_examples(operations)
    return schema


def _schemas_of(body: type[BaseModel]) -> JsonObject:
    """The components of a body that the service reads without the framework, which adds
    those of the other bodies.
    """
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}In")
    # as the framework does with a default of null
    schema = jsonable_encoder(schema, exclude_none=True)
    parts = schema.pop("$defs", {})
    return {
        body.__name__: schema,
        **{f"{name}In": part for name, part in parts.items()},
    }


def _require_key_where_it_is_missed(operation: JsonObject) -> None:
    """Marks ``Idempotency-Key`` as required where its absence is a problem; the code
    itself treats it as optional.
    """
    missed = problems.PROBLEMS[IdempotencyKeyMissing]
    if missed.slug in operation["responses"].get(str(missed.status), {}).get(
        "description", ""
    ):
        for parameter in operation["parameters"]:
            parameter["required"] = (
                parameter["required"] or parameter["name"] == "Idempotency-Key"
            )


def _document_headers(paths: dict[str, JsonObject]) -> None:
    """Add the headers of each answer to every operation of the document.

    What a 201 made has a ``Location`` if the API has a path on which it can be read or
    removed.
    """
    for path, methods in paths.items():
        item = re.compile(re.escape(path) + r"/\{\w+\}")
        is_readable = any(map(item.fullmatch, paths))
        made = {"201": ("Location",)} if is_readable else {}
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                names = ("X-Request-Id", *(made | _HEADERS_OF_STATUS).get(status, ()))
                answer["headers"] = {
                    name: {"$ref": f"#/components/headers/{name}"} for name in names
                }


def _document_examples(operations: Iterable[JsonObject]) -> None:
    """Adds examples to every operation of the document, where the operation has none."""
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    for operation in operations:
        shown = recorded.get(operation["operationId"], {})
        bodies = [
            (operation.get("requestBody", {}).get("content", {}), shown.get("request"))
        ]
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                bodies.append((answer.get("content", {}), shown.get("answer")))
            else:
                slugs = answer["description"].replace("`", "").split(", ")
                references = {
                    slug: {"$ref": f"#/components/examples/{slug}"} for slug in slugs
                }
                answer["content"][problems.MEDIA_TYPE]["examples"] = references
        for content, example in bodies:
            for media_type, media in content.items():
                is_shown = (
                    example is None
                    or media_type not in _RECORDED
                    or {"example", "examples"} & media.keys()
                )
                if not is_shown:
                    media["example"] = example


ROUTERS = (
    health.health_routes, health.metric_routes, keys.key_routes,
    datasets.dataset_routes, grants.grant_routes, rules.rule_routes, uploads.upload_routes,
    populations.membership_routes, populations.population_routes,
    training.training_routes, approvals.approval_routes, attention.attention_routes, profiles.profile_routes,
    statistics.statistics_routes,
    models.model_routes, evaluations.evaluation_routes, aliases.alias_routes, inference.inference_routes,
    webhooks.webhook_routes,
    ledger.ledger_routes, reservations.reservation_routes, evidence.evidence_routes, acts.audit_routes,
    datasets.declaration_routes,
)  # fmt: skip
"""The routes of the API. The first route that fits a path answers it."""

_CHECKED = (Depends(check_query),)
"""What every route of the API depends on; pages are lenient."""

OPENAPI = "/openapi.json"
SECURITY = "/.well-known/security.txt"
_CONTACT_LASTS = timedelta(days=180)
_API_VERSION = "1"
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""FastAPI would export durations of uploads and messages of exceptions wherever a
library sets up OpenTelemetry.
"""

_HEADERS: dict[str, JsonObject] = {
    "X-Request-Id": {
        "description": "The id under which the service's log names the request.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    },
    "Retry-After": {
        "description": "Seconds after which a repetition may succeed.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "How a key is sent; with an error (RFC 6750) if one was sent.",
        "required": True,
        "schema": {
            "type": "string",
            "enum": ["Bearer", 'Bearer error="invalid_token"'],
        },
    },
    "Location": {
        "description": "The path of what was made.",
        "required": True,
        "schema": {"type": "string"},
    },
}
"""The components of the document that describe headers."""

_HEADERS_OF_STATUS = {
    "202": ("Location",),
    "401": ("WWW-Authenticate",),
    "429": ("Retry-After",),
    "503": ("Retry-After",),
}

_RECORDED = ("application/json", "text/plain")
FILE = Path(__file__).with_name("examples.json")
_PROBLEM_EXAMPLES: dict[str, JsonObject] = {
    row.slug: {"value": row.body(f"{row.title}.")}
    for row in (*problems.PROBLEMS.values(), problems.INTERNAL)
    # no operation of the document has a wrong method
    if row.status != HTTPStatus.METHOD_NOT_ALLOWED
}
"""The components of the document that show problems, by type."""
