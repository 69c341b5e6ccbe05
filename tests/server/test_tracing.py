"""Spans of requests have public facts only, and requests that read or write rows have
none.
"""

from pathlib import Path

import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.api import tracing
from app.api.main import create_app
from app.api.tracing import TRACED, RequestSpans
from app.core.settings import Settings
from tests.support.in_process import in_process
from tests.support.role_table import OPERATIONS

OF_ROWS = {
    "upload_rows",
    "check_rows",
    "erase_unit",
    "erase_person",
    "delete_dataset",
    "show_overlaps",
    "watch_job",
}
"""Operations whose duration rows influence."""
_TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def app(
    exporter: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FastAPI:
    monkeypatch.setattr(
        tracing.RequestSpans, "exported_to", lambda _: RequestSpans(_provider(exporter))
    )
    url = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    return create_app(
        Settings(
            home=tmp_path,
            database_url=url,
            otlp_endpoint="http://127.0.0.1:4318/v1/traces",
        )
    )


def _provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def test_a_span_has_public_facts_and_joins_the_trace_of_its_caller(
    app: FastAPI, exporter: InMemorySpanExporter
) -> None:
    headers = {"traceparent": f"00-{_TRACE}-b7ad6b7169203331-01"}
    with in_process(app) as client:
        answer = client.request("GET", "/healthz?name=PRIVATE", headers=headers)
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/healthz",
        "http.response.status_code": 422,
        "grovekeeper.request_id": answer.headers["x-request-id"],
    }
    assert span.context is not None
    assert (span.name, f"{span.context.trace_id:032x}") == ("GET /healthz", _TRACE)
    assert (span.events, span.status.description) == ((), None)


def test_the_framework_exports_nothing_even_if_the_process_has_a_provider(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_process = InMemorySpanExporter()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: _provider(of_process))
    with in_process(app) as client:
        client.request("GET", "/healthz")
    assert of_process.get_finished_spans() == ()


def test_a_request_without_a_route_has_no_span(
    app: FastAPI, exporter: InMemorySpanExporter
) -> None:
    with in_process(app) as client:
        client.request("GET", "/datasets")
    assert exporter.get_finished_spans() == ()


def test_no_operation_that_takes_longer_with_more_rows_has_a_span() -> None:
    assert set(OPERATIONS) >= TRACED
    assert not TRACED & OF_ROWS
