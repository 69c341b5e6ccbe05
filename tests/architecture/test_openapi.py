"""Tests that the OpenAPI document equals the code, and that every operation declares
its answers.
"""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from app.api import middleware
from app.api.main import openapi_text
from app.api.problems import INTERNAL, MEDIA_TYPE, PROBLEMS
from tests.support.openapi import COMMITTED, DOCUMENT

OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
VERB_NOUN = re.compile(
    "predict|"
    "(cancel|change|check|create|decide|declare|delete|download|erase|evaluate|export|infer|join|list|put|quote|release|revoke"
    "|rotate|select|show|test|train|upload|watch)"
    "_[a-z]+"
)
PUBLIC = {"check_health", "check_readiness", "check_live", "check_ready", "show_server"}
EXTENSIBLE = {
    "InferenceIn", "InputTensorIn", "InputParametersIn", "RequestedOutputIn", "OutputParametersIn",
    "RequestParametersIn",
}  # fmt: skip
"""Parts of requests of the Open Inference Protocol, which lets clients add members."""
PUBLISHED = {
    400: {"malformed-request", "idempotency-key-missing"},
    401: {"unauthenticated"},
    403: {"role-missing", "same-submitter"},
    404: {"not-found", "no-rows-of-unit"},
    405: {"method-not-allowed"},
    408: {"body-too-slow"},
    409: {
        "budget-exceeded", "no-rows-yet", "name-taken", "dataset-deleted", "job-finished", "idempotency-in-flight",
        "accountant-mismatch", "adjacency-mismatch", "population-mismatch", "quota-exceeded", "frozen",
        "needs-approval", "not-waiting", "submitter-revoked", "model-has-alias", "account-differs",
        "last-owner", "upload-repeated", "erasure-due", "too-many-cells", "declaration-fixed",
    },
    412: {"changed-meanwhile"},
    413: {"too-large"},
    415: {"unsupported-media-type"},
    422: {"invalid-request", "rows-invalid", "upload-empty", "cells-unread", "idempotency-key-reused", "not-supported"},
    429: {"too-many-requests"},
    500: {"internal"},
    503: {"unavailable", "balance-mismatch", "not-writable"},
}  # fmt: skip
"""The published problems: clients branch on status and slug, so a change breaks
clients.
"""


def test_the_committed_document_equals_the_code() -> None:
    committed = COMMITTED.read_text(encoding="utf-8")
    assert committed == openapi_text(), (
        "run: grovekeeper openapi > openapi/openapi.json"
    )


def test_operation_ids_are_a_verb_and_a_noun_and_distinct() -> None:
    listed = [
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(listed)) == len(listed)
    assert [name for name in listed if not VERB_NOUN.fullmatch(name)] == []


def test_every_body_in_json_is_a_named_component() -> None:
    bodies = {
        name: operation["requestBody"]["content"]["application/json"]["schema"]
        for name, (_, _, operation) in OPERATIONS.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    assert len(bodies) > 20
    assert [name for name, schema in bodies.items() if set(schema) != {"$ref"}] == []


def test_the_problems_of_the_code_are_the_published_problems() -> None:
    rows = {*PROBLEMS.values(), INTERNAL}
    assert len({row.slug for row in rows}) == len(rows)
    assert {
        status: {row.slug for row in rows if row.status == status}
        for status in {row.status for row in rows}
    } == (PUBLISHED)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_declares_its_errors_as_problems(name: str) -> None:
    _, path, operation = OPERATIONS[name]
    declared = {
        int(status): answer for status, answer in operation["responses"].items()
    }
    errors = {status: answer for status, answer in declared.items() if status >= 400}
    for status, answer in errors.items():
        assert answer["content"][MEDIA_TYPE]["schema"] == {
            "$ref": "#/components/schemas/Problem"
        }
        slugs = set(answer["description"].replace("`", "").split(", "))
        assert slugs
        assert slugs <= PUBLISHED[status]
    assert {400, 500} <= set(errors)
    if name in PUBLIC:
        assert 401 not in errors
        return
    assert {401, 422, 429, 503} <= set(errors)
    assert {404} <= set(errors) or "{" not in path
    if operation.get("requestBody"):
        assert {408, 413, 415} <= set(errors)
    successes = set(declared) - set(errors)
    assert len(successes) == 1
    assert successes <= {200, 201, 202, 204}


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - PUBLIC))
def test_an_operation_declares_that_it_needs_a_key(name: str) -> None:
    assert OPERATIONS[name][2]["security"] == [{"HTTPBearer": []}]


def test_spending_requires_an_idempotency_key_and_other_writes_accept_one() -> None:
    takes_key = {
        name: parameter["required"]
        for name, (_, _, operation) in OPERATIONS.items()
        for parameter in operation.get("parameters", ())
        if parameter["name"] == "Idempotency-Key"
    }
    assert takes_key == {
        "train_model": True, "release_profile": True, "release_statistics": True,
        "evaluate_model": True, "select_model": True, "declare_dataset": False, "upload_rows": False,
        "change_cap": False, "create_population": False, "create_reservation": True,
    }  # fmt: skip
    replays = {
        name
        for name, (_, _, it) in OPERATIONS.items()
        if "idempotency-key-reused" in json.dumps(it)
    }
    assert replays == set(takes_key)


def test_the_durations_of_all_requests_that_spend_are_measured() -> None:
    spending = {
        path
        for _, path, operation in OPERATIONS.values()
        if "budget-exceeded" in json.dumps(operation)
    }
    measured = {
        route for route, kind in middleware._MEASURED_AS.items() if kind == "admission"
    }
    assert measured == spending


NAME_THEIR_LABEL = {
    "AccountPlanOut",
    "ComparedModelOut",
    "EvaluationOut",
    "EvaluationQuoteOut",
    "JobOut",
    "ListedJob",
    "ModelSummary",
    "PlanOut",
    "ProfileOut",
    "ProfileQuoteOut",
    "StatisticsQuoteOut",
}


def test_bodies_are_closed_and_answers_have_no_optional_member() -> None:
    """Problems have facts of their kind; an answer of the Open Inference Protocol has
    an id if the request has one. A job and a model name their label where their
    dataset declares several: other answers keep the bytes that they had before.
    """
    schemas = DOCUMENT["components"]["schemas"]
    requests = {name for name in schemas if name.endswith("In")}
    assert {
        name for name in requests if schemas[name]["additionalProperties"] is not False
    } == EXTENSIBLE
    answers = {
        name: it
        for name, it in schemas.items()
        if name not in {*requests, "Problem", "InferenceOut"}
    }
    for name, schema in answers.items():
        optional = set(schema["properties"]).difference(schema["required"])
        assert optional == ({"label"} if name in NAME_THEIR_LABEL else set()), name
        assert '"default"' not in json.dumps(schema), name


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    f"{name} {kind} {media_type}": (media_type, media)
    for name, (_, _, operation) in OPERATIONS.items()
    for kind, content in (
        ("request", operation.get("requestBody", {}).get("content", {})),
        *(
            (status, answer.get("content", {}))
            for status, answer in operation["responses"].items()
        ),
    )
    for media_type, media in content.items()
}
"""Every body of every operation, by operation, kind and media type."""
_RESOLVER = Registry().with_resource(
    "urn:document", Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
)


def _examples(media: dict[str, Any]) -> list[Any]:
    shown = list(media.get("examples", {}).values()) + (
        [{"value": media["example"]}] if "example" in media else []
    )
    components = DOCUMENT["components"]["examples"]
    return [
        components[it["$ref"].rpartition("/")[2]]["value"]
        if "$ref" in it
        else it["value"]
        for it in shown
    ]


def test_every_body_of_json_has_an_example() -> None:
    of_json = {
        name: media
        for name, (kind, media) in BODIES.items()
        if kind in ("application/json", MEDIA_TYPE)
    }
    without = [name for name, media in of_json.items() if not _examples(media)]
    assert without == [], "run: python -m tests.support.examples"


def test_every_example_is_valid() -> None:
    shown = {
        (
            json.dumps(media.get("schema", {})).replace('"#/', '"urn:document#/'),
            json.dumps(example),
        ): name
        for name, (_, media) in BODIES.items()
        for example in _examples(media)
    }
    assert len(shown) > 100
    problems = {
        name: [f"{error.json_path}: {error.message[:200]}" for error in errors]
        for (schema, example), name in shown.items()
        if (errors := list(_validator(schema).iter_errors(json.loads(example))))
    }
    assert problems == {}


def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), registry=_RESOLVER)


def test_every_operation_has_a_description() -> None:
    assert [
        name
        for name, (_, _, it) in OPERATIONS.items()
        if not it.get("description", "").rstrip().endswith(".")
    ] == []
