"""Assembles the FastAPI application (routes, error handlers, middleware) and its OpenAPI document."""

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.api import problems
from app.api.answer_headers import HEADERS, document_headers
from app.api.authentication import Authentication
from app.api.capacity import THREADS, Capacities
from app.api.dashboard import Dashboard
from app.api.deps import check_query
from app.api.examples import PROBLEM_EXAMPLES, document_examples
from app.api.job_events import JobEvents
from app.api.metrics import Metrics
from app.api.middleware import EveryRequest
from app.api.predictions import Predictions
from app.api.readiness import Readiness
from app.api.routes import (
    aliases,
    approvals,
    audit,
    datasets,
    evaluations,
    evidence,
    health,
    inference,
    keys,
    ledger,
    metrics,
    models,
    populations,
    profiles,
    reservations,
    training,
    webhooks,
)
from app.core.errors import GrovekeeperError, IdempotencyKeyMissing, InstallationError
from app.core.settings import Settings
from app.services.authorization import IdentityProvider
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from app.wire.base import Problem
from app.wire.inference import InferenceIn
from app.wire.models import PredictIn

if TYPE_CHECKING:  # OpenTelemetry is an extra
    from app.api.tracing import RequestSpans

_DESCRIPTION = """\
A lifetime privacy budget for every dataset, kept in a ledger that cannot be overdrawn; differentially private forests
trained against it; predictions from them for free. Errors are `application/problem+json` with a stable `type`.
"""


class _Application(FastAPI):
    """The framework's application without its layers around :class:`EveryRequest`, which answers every error itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self._every_request(scope, receive, send)

    @cached_property
    def _every_request(self) -> EveryRequest:
        layer: Any = self.build_middleware_stack()
        while not isinstance(layer, EveryRequest):
            layer = layer.app
        return layer


def create_app(settings: Settings) -> FastAPI:
    """Create the application of one installation. Opens the database, but creates and upgrades no tables.

    Raises:
        InstallationError: the database's address or the signing key cannot be used, or the
            extra of a setting is not installed.
    """
    installation = Installation.open(settings, pool_size=sum(THREADS.values()))
    app = _application()
    app.state.installation = installation
    app.state.provider = provider = IdentityProvider.of(settings)
    app.state.heads = Heads(installation)
    app.state.capacities = capacities = Capacities()
    app.state.readiness = Readiness(installation.home, app.state.heads, capacities)
    app.state.job_events = JobEvents(capacities)
    app.state.metrics = Metrics(installation, app.state.heads)
    app.add_middleware(
        EveryRequest,
        installation=installation,
        authentication=Authentication(installation, app.state.heads, capacities, provider),
        predictions=Predictions(installation, capacities, _route_of("predict")),
        dashboard=Dashboard(capacities),
        spans=_spans(settings),
    )
    return app


def _route_of(operation_id: str) -> BaseRoute:
    """The route of an operation on models."""
    return next(route for route in models.router.routes if getattr(route, "operation_id", None) == operation_id)


def _spans(settings: Settings) -> "RequestSpans | None":
    if settings.otlp_endpoint is None:
        return None
    try:
        from app.api.tracing import RequestSpans
    except ImportError:
        raise InstallationError("GROVEKEEPER_OTLP_ENDPOINT needs: pip install 'grovekeeper[otel]'") from None
    return RequestSpans.exported_to(settings.otlp_endpoint)


def openapi_text() -> str:
    """Return the OpenAPI document as it is committed to ``openapi/openapi.json``."""
    return json.dumps(_application().openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _application() -> FastAPI:
    app = _Application(
        title="Grovekeeper",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
        telemetry=_NO_TELEMETRY,
    )
    modules = (health, metrics, keys, datasets, populations, training, approvals, profiles, models, evaluations)
    for module in (*modules, aliases, inference, webhooks, ledger, reservations, evidence, audit):
        app.include_router(module.router, dependencies=_CHECKED)
    app.include_router(datasets.declarations, dependencies=_CHECKED)
    app.add_exception_handler(GrovekeeperError, problems.on_named_error)
    app.add_exception_handler(RequestValidationError, problems.on_validation_error)
    app.add_exception_handler(HTTPException, problems.on_http_exception)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=_API_VERSION, description=_DESCRIPTION, routes=app.routes)
        schema["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        schema["components"]["headers"] = HEADERS
        schema["components"]["examples"] = PROBLEM_EXAMPLES
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        for methods in schema["paths"].values():
            for operation in methods.values():
                _require_key_where_it_is_missed(operation)
        document_headers(schema["paths"])
        for body in (PredictIn, InferenceIn):
            schema["components"]["schemas"] |= _schemas_of(body)
        document_examples(operation for methods in schema["paths"].values() for operation in methods.values())
        app.openapi_schema = schema
    return app.openapi_schema


def _schemas_of(body: type[BaseModel]) -> dict[str, Any]:
    """The components of a body that the service reads without the framework, which adds those of the other bodies."""
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}In")
    schema = jsonable_encoder(schema, exclude_none=True)  # as the framework does with a default of null
    parts = schema.pop("$defs", {})
    return {body.__name__: schema, **{f"{name}In": part for name, part in parts.items()}}


def _require_key_where_it_is_missed(operation: dict[str, Any]) -> None:
    """Marks ``Idempotency-Key`` as required where its absence is a problem; the code itself treats it as optional."""
    missed = problems.PROBLEMS[IdempotencyKeyMissing]
    if missed.slug in operation["responses"].get(str(missed.status), {}).get("description", ""):
        for parameter in operation["parameters"]:
            parameter["required"] = parameter["required"] or parameter["name"] == "Idempotency-Key"


_CHECKED = (Depends(check_query),)
"""What every route of the API depends on; pages are lenient."""

_API_VERSION = "1"
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI would export durations of uploads and messages of exceptions wherever a library sets up OpenTelemetry."""
