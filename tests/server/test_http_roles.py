"""Every operation of the API for every kind of caller and every state of what a request
names.

The table of roles (tests/support/role_table.py) says what every cell of the table
answers. The requests go to the application in this process, and whatever they write is
rolled back, so authorized requests use nothing up.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest

from app.core import stamps
from app.ledger import control, tables
from app.ledger.tables import Entry
from app.registry import releases
from app.registry.tables import ReleaseRow
from tests.support.cells import Cells, opened_cells, undone
from tests.support.databases import on_one_idle_server
from tests.support.estate import (
    Estate,
    built_estate,
    name_model,
    upload_of,
    waiting_job,
    with_person,
    with_unit,
)
from tests.support.lost_authority import Loss, lost_before_write
from tests.support.openapi import DOCUMENT
from tests.support.operations import ACTS, REQUESTS, WEBHOOK, Targets
from tests.support.role_table import (
    ALONE,
    CALLERS,
    ONE,
    OPERATIONS,
    RULES,
    Caller,
    Place,
    expected,
    places,
)
from tests.support.server import Caller as Holder
from tests.support.server import Server, declaration, training

READS = {
    "check_declaration", "create_plan", "quote_profile", "quote_statistics", "quote_evaluation",
    "quote_selection", "create_quote", "predict", "infer_model", "infer_version", "check_rows",
}  # fmt: skip
"""Operations that have a body and no effect."""
WRITES = [
    operation for operation, (method, _, _) in OPERATIONS.items() if method != "GET"
]
TYPES = {401: "unauthenticated", 403: "role-missing", 404: "not-found"}


@pytest.fixture(scope="module")
def cells(
    idle_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cells]:
    with opened_cells(
        built_estate(idle_server, tmp_path_factory.mktemp("roles"))
    ) as opened:
        yield opened


def _is_refusal(answer: httpx.Response, status: int) -> bool:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["status"], answer.json()["type"]) == (status, TYPES[status])
    assert answer.headers["X-Request-Id"]
    return True


def test_every_operation_has_a_rule_and_a_request() -> None:
    assert set(OPERATIONS) == set(RULES) == set(REQUESTS)
    assert {
        name for name, rule in RULES.items() if places(name) != [Place.NOTHING]
    } == {name for name, rule in RULES.items() if rule.on and not rule.anywhere}


def _check(cells: Cells, operation: str, callers: Sequence[Caller]) -> None:
    """Checks the cells of an operation, and that what a caller may not see looks as if
    it did not exist.
    """
    server = cells.estate.server
    keys = {caller: cells.key(caller) for caller in callers}
    before = server.footprint()
    with undone(cells.database):
        for caller, key in keys.items():
            hidden = []
            for place in places(operation):
                answer = cells.answer(operation, place, key)
                status = expected(operation, caller, place)
                assert answer.status_code == status, (caller, place, answer.text)
                assert (
                    _documented_headers(operation, status)
                    == answer.headers.keys() & _HEADERS
                ), (operation, status)
                if status in TYPES:
                    assert _is_refusal(answer, status)
                if status == 404:
                    hidden.append(_comparable(answer))
            assert all(answer == hidden[0] for answer in hidden), caller
    # A file that an upload leaves without its commit belongs to no epoch.
    ignored = {"files": None} if operation == "upload_rows" else {}
    assert server.footprint() | ignored == before | ignored


_HEADERS = {name.lower() for name in DOCUMENT["components"]["headers"]}


def _documented_headers(operation: str, status: int) -> set[str]:
    method, path, _ = OPERATIONS[operation]
    return {
        name.lower()
        for name in DOCUMENT["paths"][path][method.lower()]["responses"][str(status)][
            "headers"
        ]
    }


def _comparable(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of an answer but its id."""
    headers = [
        (name, value)
        for name, value in answer.headers.multi_items()
        if name != "x-request-id"
    ]
    return answer.status_code, headers, answer.content


@on_one_idle_server
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_answers_exactly_those_who_may_call_it(
    cells: Cells, operation: str
) -> None:
    """Every caller with a role or a grant alone; on PostgreSQL, an analyst."""
    _check(cells, operation, ALONE if cells.database.dialect == "sqlite" else ONE)


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_answers_exactly_those_who_may_call_it_with_every_role_and_grant(
    cells: Cells, operation: str
) -> None:
    _check(cells, operation, CALLERS)


SECOND: dict[str, Callable[[Targets, Targets], tuple[str, str, dict[str, Any]]]] = {
    "a reservation": lambda known, hidden: REQUESTS["show_reservation"](replace(known, reservation=hidden.reservation)),
    "a second model": lambda known, hidden: REQUESTS["select_model"](replace(known, rival=hidden.rival)),
    "a model to compare": lambda known, hidden: REQUESTS["quote_selection"](replace(known, model=hidden.model)),
    "unlabelled rows": lambda known, hidden: (
        "POST", "/plans",
        {"json": training(known.dataset, algorithm="sspe-1", unlabelled={"dataset": hidden.dataset, "epsilon": "1"})},
    ),
    "an alias of a model": lambda _, hidden: ("GET", f"/models/{hidden.dataset}@production", {}),
    "an alias to predict with": lambda _, hidden: (
        "POST", f"/models/{hidden.dataset}@production/predict", {"json": {"rows": [{"age": 30}]}},
    ),
    "a model for an alias": lambda known, hidden: (
        "PUT", f"/datasets/{known.dataset}/aliases/another", {"json": {"model": hidden.model}},
    ),
    "an alias for an alias": lambda known, hidden: (
        "PUT", f"/datasets/{known.dataset}/aliases/another", {"json": {"model": f"{hidden.dataset}@production"}},
    ),
    "a list after a job": lambda _, hidden: ("GET", f"/jobs?cursor={hidden.job}", {}),
    "a list after a model": lambda _, hidden: ("GET", f"/models?cursor={hidden.model}", {}),
}  # fmt: skip


@on_one_idle_server
@pytest.mark.parametrize("second", SECOND)
def test_a_second_id_in_a_request_says_nothing_about_what_it_names(
    cells: Cells, second: str
) -> None:
    known, key = cells.places[Place.LIVING], cells.key(Caller(None, "owner"))
    answers = []
    for place in (Place.FOREIGN, Place.MISSING):
        method, path, options = SECOND[second](known, cells.places[place])
        answers.append(_comparable(cells.api.request(method, path, key=key, **options)))
    assert answers[0] == answers[1]
    assert answers[0][0] in (404, 422)


def _fresh(estate: Estate, operation: str, caller: Holder, name: str) -> Targets:
    """Targets that an authorized request may use up."""
    server, targets = estate.server, estate.targets
    if operation == "revoke_key":
        return replace(targets, key=server.caller().id)
    if operation == "cancel_job":
        return replace(targets, job=server.submitted(targets.dataset).json()["job_id"])
    if operation == "decide_job":
        dataset = server.uploaded()["id"]
        _grant_to_owner(server, dataset, caller, name)
        return replace(targets, job=waiting_job(server, dataset))
    if operation == "put_alias":
        server.admin.http.delete(f"/datasets/{targets.dataset}/aliases/another")
    if operation == "delete_alias":
        name_model(server, targets.dataset, targets.rival)
    if operation == "delete_webhook":
        made = server.admin.http.post(
            f"/datasets/{targets.dataset}/webhooks", json=WEBHOOK
        )
        return replace(targets, webhook=made.json()["id"])
    if operation == "erase_upload":
        dataset = server.uploaded()["id"]
        _grant_to_owner(server, dataset, caller, name)
        return replace(targets, dataset=dataset, upload=upload_of(server, dataset))
    if operation == "delete_model":
        return replace(targets, model=_twin(server, targets.model))
    if operation == "change_dataset":  # to the columns of the other datasets
        schema = declaration()["schema"] | {"missing_values": ["NA"]}
        dataset = server.declared(schema=schema)["id"]
        _grant_to_owner(server, dataset, caller, name)
        return replace(targets, dataset=dataset)
    if operation == "erase_person":
        return replace(targets, population=with_person(server))
    if operation in ("delete_dataset", "erase_unit", "join_population"):
        dataset = with_unit(server)
        _grant_to_owner(server, dataset, caller, name)
        return replace(targets, dataset=dataset)
    return targets


def _grant_to_owner(server: Server, dataset: str, caller: Holder, name: str) -> None:
    if name == "owner":
        server.admin.http.put(
            f"/datasets/{dataset}/grants/{caller.id}", json={"role": name}
        )


def _twin(server: Server, model_id: str) -> str:
    """A second model with an identical artifact."""
    with server.database.write() as session:
        row = releases.find(session, "train", model_id)
        values = {
            column.name: getattr(row, column.name)
            for column in ReleaseRow.__table__.columns
        }
        twin = ReleaseRow(
            **values
            | {"id": stamps.new(stamps.MODEL), "job_id": stamps.new(stamps.JOB)}
        )
        session.add(twin)
        session.flush()
        return twin.id


GRANTED = {name for name in WRITES if Place.LIVING in places(name)}


@pytest.mark.covering("operation", "idle_server")
@pytest.mark.parametrize("operation", WRITES)
def test_an_operation_has_no_effect_once_the_key_is_revoked(
    cells: Cells, operation: str
) -> None:
    _check_loss(cells, operation, "key")


@on_one_idle_server
@pytest.mark.parametrize("operation", WRITES)
def test_an_operation_has_no_effect_once_the_grant_or_role_is_gone(
    cells: Cells, operation: str
) -> None:
    _check_loss(cells, operation, "grants" if operation in GRANTED else "roles")


def _check_loss(cells: Cells, operation: str, loss: Loss) -> None:
    """The authority goes at the last moment: before each write transaction of the
    request in turn.
    """
    server = cells.estate.server
    for write in count(1):
        name = "admin"
        if loss == "grants":
            # an owner may do everything but speak as an auditor
            name = "auditor" if RULES[operation].on == {"auditor"} else "owner"
        caller = (
            server.caller("admin")
            if name == "admin"
            else server.granted(cells.estate.targets.dataset, name)
        )
        request = REQUESTS[operation](_fresh(cells.estate, operation, caller, name))
        before = server.footprint()
        with lost_before_write(cells.database, caller.id, loss, write=write) as writes:
            answer = cells.send(request, caller.key)
        if writes.n < write:
            break
        assert _is_refusal(
            answer,
            401
            if loss == "key"
            else expected(operation, Caller(None, None), places(operation)[0]),
        )
        after = server.footprint()
        assert after | {"grants": None} == before | {"grants": None}
    assert answer.status_code < 300, answer.text
    assert write > 1 or operation in READS, (
        "the operation neither reads only nor has an effect"
    )


@on_one_idle_server
@pytest.mark.parametrize("operation", sorted(set(WRITES) - READS))
def test_an_administrative_act_leaves_one_entry(cells: Cells, operation: str) -> None:
    """Other effects, and repetitions without one, leave none. Joining a population of a
    new name opens it, too.
    """
    server, caller = cells.estate.server, cells.estate.callers["admin"]
    targets = _fresh(cells.estate, operation, caller, "admin")
    if operation == "delete_grant":
        cells.send(REQUESTS["put_grant"](targets), caller.key)
    request = REQUESTS[operation](targets)
    n_before = len(_acts(server))
    assert cells.send(request, caller.key).is_success
    left = _acts(server)[n_before:]
    assert tuple(act.kind for act in left) == ACTS[operation]
    assert {act.actor for act in left} <= {caller.id}
    if operation in (
        "revoke_key",
        "delete_grant",
        "delete_dataset",
        "join_population",
        "put_alias",
        "delete_alias",
        "delete_webhook",
        "erase_upload",
    ):
        assert cells.send(request, caller.key).is_success
        assert _acts(server)[n_before:] == left


def _acts(server: Server) -> list[Entry]:
    with server.database.read() as session:
        return tables.entries(session, control.CHAIN, after=0, limit=10_000)


def test_no_operation_that_reads_begins_a_write_transaction(cells: Cells) -> None:
    """Over a socket, as a sample of the same operations on a real server."""
    server = cells.estate.server
    with lost_before_write(server.database, server.admin.id, "key", write=0) as writes:
        # A check of a declaration stores it in a transaction that is rolled back.
        for operation in (set(OPERATIONS) - set(WRITES) | READS) - {
            "check_declaration"
        }:
            method, path, options = REQUESTS[operation](cells.estate.targets)
            assert server.admin.http.request(method, path, **options).is_success
    assert writes.n == 0


@on_one_idle_server
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_needs_a_living_key(cells: Cells, operation: str) -> None:
    admin = cells.estate.server.admin
    authorizations: list[str | None] = [
        None,
        admin.key,
        f"Basic {admin.key}",
        "Bearer",
        "Bearer not-a-key",
        f"Bearer {admin.key}x",
        f"Bearer {admin.id}.{secrets.token_urlsafe(32)}",
        f"Bearer {stamps.new(stamps.KEY)}.{secrets.token_urlsafe(32)}",
        f"Bearer {cells.estate.revoked.key}",
        "Bearer \xe9\xff",
    ]
    before = cells.estate.server.footprint()
    for authorization in authorizations:
        method, path, options = REQUESTS[operation](cells.estate.targets)
        options["headers"] = options.get("headers", {}) | (
            {"Authorization": authorization} if authorization else {}
        )
        answer = cells.api.request(method, path, **options)
        if not RULES[operation].key:
            assert answer.status_code == 200
        else:
            assert _is_refusal(answer, 401)
            scheme, _, error = answer.headers["WWW-Authenticate"].partition(" ")
            was_sent = (authorization or "").lower().startswith("bearer ")
            assert scheme == "Bearer"
            assert error == ('error="invalid_token"' if was_sent else ""), authorization
    assert cells.estate.server.footprint() == before


@on_one_idle_server
@pytest.mark.parametrize("caller", ALONE)
def test_lists_show_only_what_a_caller_may_see(cells: Cells, caller: Caller) -> None:
    """What a list shows is what the caller may open."""
    opened = {
        "datasets": "show_dataset",
        "jobs": "show_job",
        "models": "show_model",
        "ledger": "export_ledger",
    }
    names = {
        "datasets": "dataset",
        "jobs": "job",
        "models": "model",
        "ledger": "dataset",
    }
    shown = defaultdict(set)
    for name in opened:
        answer = cells.api.request("GET", f"/{name}?limit=500", key=cells.key(caller))
        if answer.status_code == 200:
            items = answer.json()["datasets" if name == "ledger" else name]
            shown[name] = {
                item["dataset" if name == "ledger" else "id"] for item in items
            }
    for place in (Place.LIVING, Place.FOREIGN):
        for name, operation in opened.items():
            listed = getattr(cells.places[place], names[name]) in shown[name]
            assert listed == (expected(operation, caller, place) == 200), (place, name)
