"""Random requests generated from the OpenAPI document: every answer is declared in the document."""

import json
import math
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.api.main import openapi_text
from tests.support.server import Caller, Server, worker

DOCUMENT: dict[str, Any] = json.loads(openapi_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in sorted(DOCUMENT["paths"].items())
    for method, operation in sorted(methods.items())
]

_texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["\x00", "a\x00b", "0", "1e-9999999", "🌲", "\u202e", "é" * 40, "a" * 200, "/", "../..", "%", "' OR 1=1 --", "null"]
)
_segments = _texts.filter(lambda text: text not in ("", ".", ".."))  # clients resolve dots before they send the request
_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, -1, 10**18, 10**400])
_scalars = st.none() | st.booleans() | _numbers | _texts
_junk = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)


def _like(schema: dict[str, Any], known: list[str]) -> st.SearchStrategy[Any]:
    """Values that mostly match a JSON schema, and sometimes break it."""
    if "$ref" in schema:
        return _like(SCHEMAS[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return st.one_of([_like(option, known) for option in schema["anyOf"]])
    if "enum" in schema:
        return st.one_of([st.sampled_from(schema["enum"])] * 9 + [_scalars])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return st.one_of([_object(schema, known)] * 9 + [_junk])
        case "object":
            inner = schema.get("additionalProperties")
            return st.dictionaries(_texts, _like(inner, known) if isinstance(inner, dict) else _junk, max_size=3)
        case "array":
            return st.one_of([st.lists(_like(schema.get("items", {}), known), max_size=4)] * 9 + [_junk])
        case "string":
            return st.one_of([st.sampled_from([*known, "1", "0.5"])] * 3 + [_texts])
        case "integer":
            return st.integers(0, 600) | _numbers
        case "number":
            return _numbers
        case "boolean":
            return st.booleans() | _scalars
    return _junk


def _object(schema: dict[str, Any], known: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    members = {name: _like(inner, known) for name, inner in schema["properties"].items()}
    required = {name: members[name] for name in schema.get("required", ())}
    optional = {name: inner for name, inner in members.items() if name not in required}
    whole = st.fixed_dictionaries(required, optional=optional)
    extended = st.builds(lambda value, name, extra: value | {name: extra}, whole, _texts, _scalars)
    return st.one_of([whole] * 9 + [extended])


@st.composite
def _requests(draw: st.DrawFn, known: list[str]) -> tuple[dict[str, Any], str, str, dict[str, Any]]:
    """An operation, its method, a path and the other parts of a request."""
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    options: dict[str, Any] = {"params": {}, "headers": {}}
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        if parameter["in"] == "path":
            # Requests must not delete objects that other requests need: their ids hardly ever match an object.
            text = draw(_segments if method == "DELETE" else st.one_of([st.sampled_from(known)] * 4 + [_segments]))
            path = path.replace(f"{{{name}}}", quote(text, safe=""))
        elif draw(st.booleans()):
            where = "params" if parameter["in"] == "query" else "headers"
            visible = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
            value = draw(_like(parameter["schema"], known) if where == "params" else visible)
            options[where][name] = value if isinstance(value, str) else json.dumps(_printable(value))
    body = operation.get("requestBody", {}).get("content", {})
    if "text/csv" in body:
        options |= {
            "content": draw(st.binary(max_size=200)),
            "headers": options["headers"] | {"Content-Type": "text/csv"},
        }
    elif body:
        value = draw(_like(body["application/json"]["schema"], known))
        options |= {
            "content": json.dumps(value).encode(),
            "headers": options["headers"] | {"Content-Type": "application/json"},
        }
    return operation, method, path, options


def _printable(value: object) -> object:
    return 0 if isinstance(value, float) and not math.isfinite(value) else value


@pytest.fixture(scope="module")
def estate(idle_server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Caller, list[str]]:
    dataset = idle_server.uploaded(partitions=[{"name": "shard", "kind": "hash", "cells": 2}])
    with worker(idle_server.settings, log=tmp_path_factory.mktemp("fuzz") / "worker.log"):
        job = idle_server.trained(dataset["id"])
    friend = idle_server.caller()
    return idle_server.caller("admin"), [dataset["id"], dataset["name"], job["id"], job["model_id"], friend.id, "mrf"]


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_answer_is_a_declared_one(estate: tuple[Caller, list[str]], data: st.DataObject) -> None:
    caller, known = estate
    operation, method, path, options = data.draw(_requests(known))
    answer = caller.http.request(method, path, **options)
    reported = f"{method} {path} {options} -> {answer.status_code} {answer.text[:300]}"
    assert str(answer.status_code) in operation["responses"], reported
    assert answer.status_code < 500, reported
    assert answer.headers["X-Request-Id"]
    assert answer.headers["Cache-Control"] == "no-store"
    if answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        problem = answer.json()
        assert problem["type"] in operation["responses"][str(answer.status_code)]["description"], reported
    elif "application/json" in operation["responses"][str(answer.status_code)].get("content", {}):
        assert answer.json() is not None
