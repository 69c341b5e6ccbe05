"""Every named error becomes one problem document; no other detail leaves the service."""

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response
from starlette.exceptions import HTTPException

from app.api import problems
from app.api.main import create_app
from app.api.problems import INTERNAL, MEDIA_TYPE, PROBLEMS
from app.core import errors
from app.core.errors import ColumnProblem, FieldProblem
from app.core.logging import JsonFormatter
from app.core.settings import Settings
from app.db import migrate
from app.services.keys import create_admin
from grovekeeper_forests import catalogue
from grovekeeper_forests import errors as forest_errors
from grovekeeper_forests.errors import (
    GrovekeeperError,
    ParameterProblem,
    StatedError,
)

pytestmark = pytest.mark.contract

INSIDE = {
    errors.LeaseLost,
    errors.ReservationSettled,
    errors.InstallationError,
    errors.LedgerRewound,
    errors.HeadNotSigned,
}
"""Errors that never reach a caller: a worker handles them, or an operator's terminal
prints them.
"""
SECRET = "canary-9c1e"

EXAMPLES: list[GrovekeeperError] = [
    errors.MalformedRequest("the body is not JSON"),
    errors.IdempotencyKeyMissing(),
    errors.Unauthenticated(),
    errors.RoleMissing(["analyst"]),
    errors.NotFound("dataset"),
    errors.MethodNotAllowed(),
    errors.BodyTooSlow(),
    errors.BudgetExceeded(
        dataset="ds_x",
        dataset_name="census",
        accountant="pure",
        unit="epsilon",
        cap="3",
        charged="1.8",
        reserved="0.5",
        remaining="0.7",
        requested="2",
        tightest_cell={"region": "EU"},
        what_fits=lambda: "0.7",
    ),
    errors.QuotaExceeded(
        "ds_x", "census", "pure", "epsilon", "2", what_fits=lambda: "0.7"
    ),
    errors.NeedsApproval(
        "ds_x", "census", "pure", "epsilon", "2", what_fits=lambda: "0.7"
    ),
    errors.Frozen("ds_x", "census"),
    errors.ErasureDue("ds_x", "census"),
    errors.TooManyCells("ds_x", "census", 9),
    errors.NotWaiting(),
    errors.SameSubmitter(),
    errors.SubmitterRevoked("revoked"),
    errors.BalanceMismatch("ds_x", "totals"),
    errors.NoRowsYet(),
    errors.LastOwner(),
    errors.NameTaken(),
    errors.AccountDiffers("ds_x", "census", ["delta", "cap"]),
    errors.PopulationMismatch(["accountant", "delta"]),
    errors.DatasetDeleted(),
    errors.DeclarationFixed("rows were uploaded"),
    errors.ModelHasAlias(["bank@production"]),
    errors.JobFinished(),
    errors.ChangedMeanwhile(),
    errors.IdempotencyInFlight(),
    forest_errors.AccountantMismatch("pure", ["zcdp"]),
    forest_errors.AdjacencyMismatch("add_remove", ["label"]),
    errors.TooLarge("the body", 10),
    errors.UnsupportedMediaType(["text/csv"]),
    errors.InvalidRequest(
        [
            FieldProblem("/epsilon", "not-positive"),
            FieldProblem("/cap", "too-large", 7),
            FieldProblem("/algorithm", "unknown", accepted=("auto", "mrf")),
        ]
    ),
    errors.RowsInvalid([ColumnProblem("age", "not-a-number", 2)]),
    errors.CellsUnread([errors.UnreadColumn("age", "clamped", 2, 66.7)]),
    errors.UploadRepeated("ep_1"),
    errors.UploadEmpty(),
    errors.NoRowsOfUnit(similar_units=2),
    errors.IdempotencyKeyReused(),
    forest_errors.NotSupported("a rule"),
    forest_errors.ParameterInvalid(
        [
            ParameterProblem(("n_estimators",), "too-large", limit=7),
            ParameterProblem(("unlabelled", "epsilon"), "too-small"),
            ParameterProblem(
                ("rows", 0, "sick/well~"), "missing", column="sick/well~", count=3
            ),
        ]
    ),
    errors.TooManyRequests(retry_after_s=7),
    errors.NotWritable("a folder cannot be written", 60),
    errors.Unavailable("the database is busy", 3),
]
_RULES_REFUSE = {
    "dataset": "ds_x", "dataset_name": "census", "accountant": "pure", "unit": "epsilon", "requested": "2",
    "largest_that_fits": "0.7",
}  # fmt: skip
MEMBERS: dict[type[GrovekeeperError], dict[str, Any]] = {
    errors.RoleMissing: {"needed": ["analyst"]},
    errors.SubmitterRevoked: {"reason": "revoked"},
    errors.NoRowsOfUnit: {"similar_units": 2},
    errors.InvalidRequest: {
        "errors": [
            {"at": "/epsilon", "problem": "not-positive"},
            {"at": "/cap", "problem": "too-large", "limit": 7},
            {"at": "/algorithm", "problem": "unknown", "accepted": ["auto", "mrf"]},
        ]
    },
    errors.RowsInvalid: {
        "columns": [{"name": "age", "problem": "not-a-number", "count": 2}]
    },
    errors.CellsUnread: {
        "columns": [{"name": "age", "problem": "clamped", "count": 2, "percent": 66.7}]
    },
    errors.UploadRepeated: {"upload": "ep_1"},
    forest_errors.AccountantMismatch: {"accountant": "pure", "accepted_by": ["zcdp"]},
    forest_errors.AdjacencyMismatch: {
        "adjacency": "add_remove",
        "accepted_by": ["label"],
    },
    errors.ModelHasAlias: {"aliases": ["bank@production"]},
    errors.AccountDiffers: {
        "dataset": "ds_x",
        "dataset_name": "census",
        "differs": ["delta", "cap"],
    },
    errors.PopulationMismatch: {"differs": ["accountant", "delta"]},
    errors.QuotaExceeded: _RULES_REFUSE,
    errors.NeedsApproval: _RULES_REFUSE,
    errors.Frozen: {"dataset": "ds_x", "dataset_name": "census"},
    errors.ErasureDue: {"dataset": "ds_x", "dataset_name": "census"},
    errors.TooManyCells: {"dataset": "ds_x", "dataset_name": "census", "limit": 9},
    errors.TooLarge: {"limit": 10},
    forest_errors.NotSupported: {"what": "a rule"},
    forest_errors.ParameterInvalid: {
        "detail": errors.InvalidRequest.sentence,
        "errors": [
            {"at": "/parameters/n_estimators", "problem": "too-large", "limit": 7},
            {"at": "/unlabelled/epsilon", "problem": "too-small"},
            {
                "at": "/rows/0/sick~1well~0",
                "problem": "missing",
                "column": "sick/well~",
                "count": 3,
            },
        ],
    },
    errors.BudgetExceeded: {
        "dataset": "ds_x",
        "dataset_name": "census",
        "accountant": "pure",
        "unit": "epsilon",
        "cap": "3",
        "charged": "1.8",
        "reserved": "0.5",
        "remaining": "0.7",
        "requested": "2",
        "tightest_cell": {"region": "EU"},
        "largest_that_fits": "0.7",
        "population": None,
        "exact": True,
    },
}
HEADERS = {
    errors.Unauthenticated: {"WWW-Authenticate": 'Bearer error="invalid_token"'},
    errors.TooManyRequests: {"Retry-After": "7"},
    errors.Unavailable: {"Retry-After": "3"},
    errors.BalanceMismatch: {"Retry-After": "60"},
    errors.NotWritable: {"Retry-After": "60"},
}


def test_every_named_error_has_a_problem_or_stays_inside() -> None:
    named = {
        kind
        for module in (errors, forest_errors)
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, GrovekeeperError)
        and kind not in (GrovekeeperError, StatedError)
        and not name.startswith("_")
    }
    assert named - INSIDE == set(PROBLEMS) == {type(error) for error in EXAMPLES}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_is_answered_as_its_problem(error: GrovekeeperError) -> None:
    row = PROBLEMS[type(error)]
    answer = problems.response_to(error)
    assert (answer.status_code, answer.media_type) == (
        row.status,
        "application/problem+json",
    )
    members = {
        "type": row.slug,
        "title": row.title,
        "status": row.status,
        "detail": str(error),
    }
    assert json.loads(bytes(answer.body)) == members | MEMBERS.get(type(error), {})
    headers = {
        name: answer.headers.get(name)
        for name in ("WWW-Authenticate", "Retry-After")
        if name in answer.headers
    }
    assert headers == HEADERS.get(type(error), {})


def test_no_parameter_of_an_algorithm_has_the_name_of_a_member_of_requests() -> None:
    """Else its problem would be found at another place than the parameter's."""
    names = {
        parameter.name
        for algorithm in catalogue.BY_SLUG.values()
        for parameter in algorithm.parameters
    }
    assert {errors.pointer((name,)) for name in names} == {
        f"/parameters/{name}" for name in names
    }


def test_a_refusal_says_in_a_sentence_what_is_left_and_where() -> None:
    (refusal,) = (
        error for error in EXAMPLES if isinstance(error, errors.BudgetExceeded)
    )
    assert (
        str(refusal) == "2 ε requested, 0.7 ε left for cell region=EU of dataset census"
    )


@pytest.fixture
def app(sqlite_database_url: str, tmp_path: Path) -> Iterator[FastAPI]:
    application = create_app(
        Settings(home=tmp_path / "home", database_url=sqlite_database_url)
    )
    yield application
    application.state.installation.close()


@pytest.fixture
def key(app: FastAPI) -> str:
    return create_admin(app.state.installation.database, "test").text


def _get(app: FastAPI, path: str, key: str | None) -> Response:
    async def ask() -> Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with AsyncClient(
            transport=ASGITransport(app), base_url="http://test"
        ) as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


class _Unforeseen(GrovekeeperError):
    def __str__(self) -> str:
        return SECRET


def _raises(app: FastAPI, error: Exception) -> None:
    def break_down() -> None:
        raise error

    app.add_api_route("/broken", break_down)


@pytest.mark.parametrize(
    "error", [RuntimeError(SECRET), _Unforeseen(), errors.LeaseLost(), KeyError(SECRET)]
)
def test_an_unexpected_error_is_answered_with_a_request_id_only(
    app: FastAPI,
    key: str,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caplog.handler, "formatter", JsonFormatter())
    _raises(app, error)
    answer = _get(app, "/broken", key)
    assert (answer.status_code, answer.headers["content-type"]) == (500, MEDIA_TYPE)
    assert answer.json() == {
        "type": INTERNAL.slug,
        "title": INTERNAL.title,
        "status": 500,
        "detail": "an internal error; quote the request id",
        "request_id": answer.headers["X-Request-Id"],
    }
    logged = [
        line for line in map(json.loads, caplog.text.splitlines()) if "error" in line
    ]
    assert [line["request_id"] for line in logged] == [answer.headers["X-Request-Id"]]


@pytest.mark.parametrize(
    ("status", "slug"),
    [(400, "malformed-request"), (404, "not-found"), (418, "malformed-request")],
)
def test_framework_errors_are_problems_too(
    app: FastAPI, key: str, status: int, slug: str
) -> None:
    _raises(app, HTTPException(status, detail=SECRET))
    answer = _get(app, "/broken", key)
    assert (answer.headers["content-type"], answer.json()["type"]) == (MEDIA_TYPE, slug)
    assert answer.json()["status"] == answer.status_code
    assert SECRET not in answer.text


def test_an_http_error_with_a_named_cause_is_answered_as_the_cause(
    app: FastAPI, key: str
) -> None:
    error = HTTPException(400)
    error.__cause__ = errors.TooLarge("the body", 5)
    _raises(app, error)
    assert _get(app, "/broken", key).json()["limit"] == 5


def test_a_request_that_a_stop_does_not_wait_for_is_unavailable(
    app: FastAPI, key: str
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        goes_on.wait(timeout=60)

    app.add_api_route("/slow", work)

    async def stop() -> Response:
        async with AsyncClient(
            transport=ASGITransport(app), base_url="http://test"
        ) as client:
            request = asyncio.create_task(
                client.get("/slow", headers={"Authorization": f"Bearer {key}"})
            )
            await asyncio.to_thread(began.wait, 60)
            request.cancel()  # as uvicorn does at the end of its grace
            try:
                return await request
            finally:
                goes_on.set()

    answer = asyncio.run(stop())
    assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "1"


def test_a_database_that_was_not_upgraded_is_unavailable(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    app = create_app(Settings(home=tmp_path / "home", database_url=url))
    try:
        for path in ("/readyz", "/ledger", "/nothing"):
            answer = _get(app, path, None)
            assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
            assert answer.headers["Retry-After"] == "1"
        assert _get(app, "/healthz", None).json() == {"status": "ok"}
        migrate.upgrade(url)
        assert _get(app, "/readyz", None).status_code == 200
        assert _get(app, "/ledger", None).status_code == 401, "and without a restart"
    finally:
        app.state.installation.close()
