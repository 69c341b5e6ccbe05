"""Random requests generated from the OpenAPI document: every answer is one that the
document declares.

The requests go to a real server on both databases. Afterwards the exports of the
accounts still verify.
"""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import jsonschema_rs
import pytest
import requests
from schemathesis import Case, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core import NOT_SET
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from grovekeeper_verifier import control_export, dataset_replay, population_replay
from tests.support.databases import on_one_idle_server
from tests.support.estate import built_estate
from tests.support.generated_requests import Sender, each_case, operations
from tests.support.openapi import DOCUMENT
from tests.support.server import Server

CONFORMANCE = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
LONG_ROUNDS = 20
LONG_CASES = 30
"""Cases of each operation in a round; each case is sent in three forms: about 5,400
requests in a round.
"""


@on_one_idle_server
def test_every_answer_is_a_declared_one(idle_server: Server, tmp_path: Path) -> None:
    statuses = _fuzz(idle_server, tmp_path, n_cases=2, n_forms=2, number=0)
    assert sum(n for status, n in statuses.items() if status < 300) > 50, (
        "many requests are accepted"
    )


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("number", range(1, LONG_ROUNDS // 2 + 1))
def test_every_answer_of_many_is_a_declared_one(
    idle_server: Server, tmp_path: Path, number: int
) -> None:
    """Both databases together answer 100,000 requests."""
    statuses = _fuzz(
        idle_server, tmp_path, n_cases=LONG_CASES, n_forms=3, number=number
    )
    assert statuses.total() >= 100_000 / LONG_ROUNDS
    print(number, statuses)


def _fuzz(
    server: Server, folder: Path, *, n_cases: int, n_forms: int, number: int
) -> Counter[int]:
    """Sends cases of every operation and checks the answers. Returns how many answers
    had which status.
    """
    # the jobs of the round before; else the estate's jobs run after all of them
    server.cancel_what_waits()
    estate = built_estate(
        server, folder, partitions=[{"name": "shard", "kind": "hash", "cells": 2}]
    )
    sender = Sender(estate, Random(number))
    statuses: Counter[int] = Counter()
    complaints: dict[str, str] = {}
    with requests.Session() as session:
        session.trust_env = False

        def send(name: str, case: Case) -> None:
            for form, headers in sender.forms(name, case, n_forms):
                response = form.call(
                    base_url=server.url, session=session, headers=headers, timeout=60
                )
                statuses[response.status_code] += 1
                for complaint in _complaints(name, form, response):
                    text = json.dumps(
                        [form.path_parameters, form.query, form.body], default=repr
                    )
                    complaints.setdefault(
                        complaint, f"{text[:2_000]} -> {response.content[:500]!r}"
                    )

        for name in operations():
            each_case(name, n_cases, number=number, send=send)
    assert not complaints, "\n".join(
        f"{complaint}\n    {example}" for complaint, example in complaints.items()
    )
    _verify_exports(server, estate.targets.dataset, estate.targets.population)
    return statuses


def _complaints(name: str, case: Case, response: Response) -> list[str]:
    """What the document does not declare about an answer."""
    place = f"{name} {response.status_code}"
    try:
        case.validate_response(response, checks=CONFORMANCE)
    except FailureGroup as group:
        return [
            f"{place} {failure.title}: {failure.message[:500]}"
            for failure in group.exceptions
        ]
    if response.status_code >= 400:
        described = operations()[name].definition.raw["responses"][
            str(response.status_code)
        ]["description"]
        slug = response.json()["type"]
        return (
            [] if f"`{slug}`" in described else [f"{place} is not declared with {slug}"]
        )
    accepts = _body_schema(name)
    if (
        accepts is not None
        and case.body is not NOT_SET
        and not accepts.is_valid(case.body)
    ):
        return [
            f"{place} for a body that breaks the schema: {next(accepts.iter_errors(case.body)).message[:200]}"
        ]
    return []


@cache
def _body_schema(name: str) -> jsonschema_rs.Validator | None:
    content = (
        operations()[name].definition.raw.get("requestBody", {}).get("content", {})
    )
    if "application/json" not in content:
        return None
    schema = content["application/json"]["schema"] | {
        "components": DOCUMENT["components"]
    }
    return jsonschema_rs.validator_for(schema)


def _verify_exports(server: Server, dataset: str, population: str) -> None:
    for path, verify in (
        (f"/ledger/{dataset}/export", dataset_replay.verify),
        (f"/ledger/{population}/export", population_replay.verify),
        ("/audit/export", control_export.verify),
    ):
        answer = server.admin.http.get(path)
        assert answer.status_code == 200, path
        verify(answer.content.splitlines(keepends=True))
