"""Exports a span of every request whose duration no stored row influences, by
OpenTelemetry (extra ``otel``).

A span has method, route template, status and request id. It joins the trace that the
caller names in ``traceparent``. Jobs and requests that read or write rows (uploads,
erasures, overlaps) have no span: a span states a duration.
"""

from typing import Any

from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace import TracerProvider as AnyProvider
from starlette.types import Scope

from app.api.authentication import is_page

TRACED = frozenset(
    {
        "change_cap", "change_rules", "check_health", "check_readiness", "create_key", "create_plan",
        "create_population", "create_quote", "create_reservation", "decide_job", "declare_dataset", "delete_grant",
        "delete_model", "download_artifact", "evaluate_model", "export_acts", "export_ledger", "join_population",
        "list_acts", "list_algorithms", "list_approvals", "list_balances", "list_datasets", "list_entries",
        "list_evaluations", "list_grants", "list_jobs", "list_keys", "list_models", "list_populations", "list_profiles",
        "list_reservations", "predict", "put_grant", "quote_evaluation", "quote_profile", "quote_selection",
        "release_profile", "revoke_key", "rotate_key", "select_model", "show_balance", "show_checkpoint",
        "show_dataset", "show_deployment", "show_evaluation", "show_head", "show_job", "show_metrics", "show_model",
        "show_population",
        "show_profile", "show_proof", "show_reservation", "show_rules", "show_signer", "show_spent", "train_model",
    }
)  # fmt: skip
"""Operations with a span. Another operation gets one by its name here, once no row
influences how long it takes.
"""


class RequestSpans:
    """Makes spans of requests, which a provider exports."""

    def __init__(self, provider: AnyProvider) -> None:
        self._tracer = provider.get_tracer("grovekeeper")

    @classmethod
    def exported_to(cls, endpoint: str) -> "RequestSpans":
        """Makes spans that are sent to a collector by OTLP over HTTP, in batches, in a
        thread.
        """
        provider = TracerProvider(
            resource=Resource.create({"service.name": "grovekeeper"})
        )
        provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
        )
        return cls(provider)

    def record(
        self, scope: Scope, *, status: int, began_ns: int, ended_ns: int
    ) -> None:
        """Exports the span of a request that has ended, if its operation is in
        :data:`TRACED`.
        """
        route: Any = scope.get("route")
        if is_page(scope["path"]) or getattr(route, "name", None) not in TRACED:
            return
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        span = self._tracer.start_span(
            f"{scope['method']} {route.path}",
            context=propagate.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=began_ns,
            attributes={
                "http.request.method": scope["method"],
                "http.route": route.path,
                "http.response.status_code": status,
                "grovekeeper.request_id": scope["state"]["request_id"],
            },
        )
        span.end(ended_ns)
