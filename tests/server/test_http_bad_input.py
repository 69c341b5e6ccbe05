"""Refused requests: each gets its documented problem, changes nothing, and its values
are not echoed.
"""

import httpx
import pytest

from app.api.problems import PROBLEMS
from tests.server.refused import (
    addresses,
    bodies,
    declarations,
    ledger,
    rows,
    training,
)
from tests.server.refused.case import CANARY, Place, Refused
from tests.support.databases import on_one_server
from tests.support.server import Server

STATUS_OF = {row.slug: row.status for row in PROBLEMS.values()}


@pytest.fixture(scope="module")
def place(server: Server) -> Place:
    partitions = [{"name": "shard", "kind": "hash", "cells": 4}]
    dataset = server.uploaded(partitions=partitions)
    job = server.trained(dataset["id"])
    empty = server.declared()
    budget = {"accountant": "pure", "epsilon": "100"}
    opened = server.admin.http.post(
        "/populations", json={"name": f"people-of-{empty['id']}", "budget": budget}
    )
    return Place(
        server,
        {
            "dataset": dataset["id"],
            "name": dataset["name"],
            "empty": empty["id"],
            "job": job["id"],
        }
        | {
            "model": job["model_id"],
            "key": server.caller().id,
            "population": opened.json()["id"],
        },
    )


GROUPS = {
    "declarations": declarations.declarations,
    "amounts": training.amounts,
    "trainings": training.trainings,
    "bodies": bodies.bodies,
    "caps": ledger.caps,
    "external mechanisms": ledger.external,
    "uploads": rows.uploads,
    "predictions": rows.predictions,
    "queries and paths": addresses.queries_and_paths,
}

ON_BOTH_DATABASES = {"declarations", "external mechanisms", "queries and paths"}
"""Groups with texts that a database would be given if they were not refused."""


@on_one_server
@pytest.mark.parametrize("group", sorted(ON_BOTH_DATABASES))
def test_an_invalid_request_is_refused_and_leaves_no_trace(
    place: Place, group: str
) -> None:
    _check(place, group)


@on_one_server
@pytest.mark.parametrize("group", sorted(GROUPS.keys() - ON_BOTH_DATABASES))
def test_an_invalid_request_of_any_other_group_is_refused_and_leaves_no_trace(
    place: Place, group: str
) -> None:
    _check(place, group)


def _check(place: Place, group: str) -> None:
    failures = []
    before = place.server.footprint()
    for case in GROUPS[group]():
        answer = place.send(case)
        complaints = _complaints(case, answer)
        failures += [
            f"{case.name}: {complaint}: {answer.status_code} {answer.text[:300]}"
            for complaint in complaints
        ]
    assert not failures, "\n".join(failures)
    assert place.server.footprint() == before, "one of these requests changed something"
    assert CANARY not in place.server.log()


def _complaints(case: Refused, answer: httpx.Response) -> list[str]:
    if (
        answer.status_code < 400
        or answer.headers["content-type"] != "application/problem+json"
    ):
        return ["not a problem"]
    body = answer.json()
    results = []
    if (body["type"], body["status"], answer.status_code) != (
        case.type,
        STATUS_OF[case.type],
        STATUS_OF[case.type],
    ):
        results.append(f"wanted {case.type}")
    if not body["title"] or not body["detail"] or not answer.headers["X-Request-Id"]:
        results.append("a member is missing")
    if CANARY in answer.text or CANARY in str(answer.headers):
        results.append("a value came back")
    if case.type == body["type"] == "rows-invalid":
        problems = {item["problem"] for item in body["columns"]}
        return results + (
            []
            if case.problem is None or case.problem in problems
            else [f"wanted {case.problem}"]
        )
    if case.type == body["type"] == "invalid-request":
        listed = {(item["at"], item["problem"]) for item in body["errors"]}
        if not listed:
            results.append("no errors")
        if case.at is not None and not any(
            _matches(case, at, problem) for at, problem in listed
        ):
            results.append(f"wanted {case.at} {case.problem}")
    return results


def _matches(case: Refused, at: str, problem: str) -> bool:
    return at == case.at and case.problem in (None, problem)


def test_the_cases_meet_every_type_that_a_single_bad_request_can_get() -> None:
    met = {case.type for cases in GROUPS.values() for case in cases()}
    by_state_or_caller = {
        "idempotency-key-missing", "idempotency-key-reused", "idempotency-in-flight", "unauthenticated", "role-missing",
        "dataset-deleted", "job-finished", "population-mismatch", "too-many-requests", "unavailable", "body-too-slow",
        "balance-mismatch", "quota-exceeded", "needs-approval", "frozen", "not-waiting", "same-submitter",
        "submitter-revoked",
        "model-has-alias", "account-differs",
        "last-owner", "upload-repeated", "no-rows-of-unit", "changed-meanwhile", "erasure-due",
        "too-many-cells", "declaration-fixed", "not-writable",
    }  # fmt: skip
    assert met == set(STATUS_OF) - by_state_or_caller


def test_an_unknown_method_is_answered_with_the_allowed_methods(place: Place) -> None:
    answer = place.server.admin.http.put("/train", json={})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    answer = place.server.admin.http.post("/jobs/{job}".format(**place.ids))
    assert (answer.status_code, answer.headers["Allow"]) == (
        405,
        "DELETE, GET, HEAD",
    ), "of all routes of the path"
    public = place.server.client(None).post("/healthz")
    assert (public.status_code, public.json()["type"]) == (405, "method-not-allowed")
    assert public.headers["Allow"] == "GET, HEAD"
    assert public.headers["X-Request-Id"]


def test_another_charset_is_answered_with_the_parameter_for_it(place: Place) -> None:
    answer = place.server.admin.http.post(
        "/datasets/{dataset}/rows".format(**place.ids),
        content=b"",
        headers={"Content-Type": "text/csv; charset=windows-1252"},
        params={"encoding": "cp1252"},
    )
    assert answer.status_code == 415
    assert "the parameter encoding" in answer.text
