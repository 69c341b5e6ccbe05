"""Every operation of the API for every kind of caller: an answer, a 401, a 403 or a 404."""

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest

from app.api.main import openapi_text
from app.core import ids
from app.registry import models
from app.registry.tables import ModelRow
from grovekeeper_client.client import Client
from tests.support.estate import Estate, built_estate
from tests.support.lost_authority import Loss, lost_before_write
from tests.support.operations import ACTS, REQUESTS, Ask, Targets
from tests.support.server import Caller, Server, declaration, new_idempotency_key, training

CALLERS = (
    "stranger", "predictor", "analyst", "auditor", "owner", "global auditor", "global owner", "admin",
)  # fmt: skip
"""``predictor`` to ``owner`` have one grant and no role; the global callers have a role and no grant."""

PUBLIC = {"check_health", "check_readiness"}
STATUSES: dict[str, tuple[int, ...]] = {
    "check_health": (200, 200, 200, 200, 200, 200, 200, 200),
    "check_readiness": (200, 200, 200, 200, 200, 200, 200, 200),
    "create_key": (403, 403, 403, 403, 403, 403, 403, 201),
    "list_keys": (403, 403, 403, 403, 403, 403, 403, 200),
    "rotate_key": (403, 403, 403, 403, 403, 403, 403, 201),
    "revoke_key": (403, 403, 403, 403, 403, 403, 403, 204),
    "declare_dataset": (403, 403, 403, 403, 403, 403, 201, 201),
    "list_datasets": (200, 200, 200, 200, 200, 200, 200, 200),
    "show_dataset": (404, 200, 200, 200, 200, 200, 404, 200),
    "delete_dataset": (404, 403, 403, 403, 204, 403, 404, 204),
    "list_grants": (404, 403, 403, 200, 200, 200, 404, 200),
    "put_grant": (404, 403, 403, 403, 200, 403, 404, 200),
    "delete_grant": (404, 403, 403, 403, 204, 403, 404, 204),
    "upload_rows": (404, 403, 403, 403, 201, 403, 404, 201),
    "list_algorithms": (200, 200, 200, 200, 200, 200, 200, 200),
    "create_plan": (404, 403, 200, 403, 200, 403, 404, 200),
    "train_model": (404, 403, 202, 403, 202, 403, 404, 202),
    "quote_profile": (404, 403, 200, 403, 200, 403, 404, 200),
    "release_profile": (404, 403, 202, 403, 202, 403, 404, 202),
    "list_profiles": (404, 403, 200, 403, 200, 403, 404, 200),
    "show_profile": (404, 403, 200, 403, 200, 403, 404, 200),
    "quote_evaluation": (404, 403, 200, 403, 200, 403, 404, 200),
    "evaluate_model": (404, 403, 202, 403, 202, 403, 404, 202),
    "list_evaluations": (404, 200, 200, 403, 200, 403, 404, 200),
    "show_evaluation": (404, 403, 200, 403, 200, 403, 404, 200),
    "quote_selection": (404, 403, 200, 403, 200, 403, 404, 200),
    "select_model": (404, 403, 202, 403, 202, 403, 404, 202),
    "list_jobs": (200, 200, 200, 200, 200, 200, 200, 200),
    "show_job": (404, 403, 200, 403, 200, 403, 404, 200),
    "cancel_job": (404, 403, 403, 403, 200, 403, 404, 200),
    "list_approvals": (200, 200, 200, 200, 200, 200, 200, 200),
    "decide_job": (404, 403, 403, 403, 200, 403, 404, 200),
    "watch_job": (404, 403, 200, 403, 200, 403, 404, 200),
    "list_models": (200, 200, 200, 200, 200, 200, 200, 200),
    "show_model": (404, 200, 200, 403, 200, 403, 404, 200),
    "delete_model": (404, 403, 204, 403, 204, 403, 404, 204),
    "download_artifact": (404, 403, 200, 403, 200, 403, 404, 200),
    "predict": (404, 200, 200, 403, 200, 403, 404, 200),
    "list_balances": (403, 403, 403, 200, 200, 200, 200, 200),
    "show_balance": (404, 403, 200, 200, 200, 200, 404, 200),
    "list_entries": (404, 403, 403, 200, 200, 200, 404, 200),
    "export_ledger": (404, 403, 403, 200, 200, 200, 404, 200),
    "change_cap": (404, 403, 403, 403, 200, 403, 404, 200),
    "show_checkpoint": (404, 403, 403, 200, 200, 200, 404, 200),
    "show_proof": (404, 403, 403, 200, 200, 200, 404, 200),
    "show_signer": (200, 200, 200, 200, 200, 200, 200, 200),
    "list_acts": (403, 403, 403, 403, 403, 200, 403, 200),
    "export_acts": (403, 403, 403, 403, 403, 200, 403, 200),
    "show_head": (403, 403, 403, 403, 403, 200, 403, 200),
    "erase_unit": (404, 403, 403, 403, 200, 403, 404, 200),
    "show_rules": (404, 403, 403, 403, 200, 403, 404, 200),
    "change_rules": (404, 403, 403, 403, 200, 403, 404, 200),
    "show_overlaps": (404, 403, 403, 403, 200, 403, 404, 200),
    "join_population": (404, 403, 403, 403, 200, 403, 404, 200),
    "create_population": (403, 403, 403, 403, 403, 403, 201, 201),
    "list_populations": (403, 403, 403, 403, 403, 200, 200, 200),
    "show_population": (404, 404, 404, 404, 404, 200, 404, 200),
    "create_quote": (404, 403, 403, 403, 200, 403, 404, 200),
    "create_reservation": (404, 403, 403, 403, 201, 403, 404, 201),
    "list_reservations": (404, 403, 403, 200, 200, 200, 404, 200),
    "show_reservation": (404, 403, 403, 200, 200, 200, 404, 200),
}  # fmt: skip
OF_POPULATION = {
    "show_balance": (404, 404, 404, 404, 404, 200, 404, 200),
    "list_entries": (404, 404, 404, 404, 404, 200, 404, 200),
    "export_ledger": (404, 404, 404, 404, 404, 200, 404, 200),
    "show_checkpoint": (404, 404, 404, 404, 404, 200, 404, 200),
    "show_proof": (404, 404, 404, 404, 404, 200, 404, 200),
    "change_cap": (404, 404, 404, 404, 404, 403, 404, 200),
}
"""The calls about an account, of a population that an admin opened: no grant on a dataset counts."""


@pytest.fixture(scope="module")
def estate(idle_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Estate:
    return built_estate(idle_server, tmp_path_factory.mktemp("roles"))


READS = {"create_plan", "quote_profile", "quote_evaluation", "quote_selection", "create_quote", "predict"}
"""Operations that have a body and no effect."""
TYPES = {401: "unauthenticated", 403: "role-missing", 404: "not-found"}


def _fresh(estate: Estate, operation: str, caller: Caller, name: str) -> Targets:
    """Targets that an authorized request may use up."""
    server, targets = estate.server, estate.targets
    if operation == "revoke_key":
        return replace(targets, key=server.caller().id)
    if operation == "cancel_job":
        return replace(targets, job=server.submitted(targets.dataset).json()["job_id"])
    if operation == "decide_job":
        return replace(targets, job=_waiting_job(server, caller, name))
    if operation == "delete_model":
        return replace(targets, model=_twin(server, targets.model))
    if operation in ("delete_dataset", "erase_unit", "join_population"):
        dataset = server.declared(privacy_unit={"column": "patient", "max_rows": 1})["id"]
        server.admin.http.post(f"/datasets/{dataset}/erasures", json={"unit": "bob"})  # makes the book of the units
        if name == "owner":
            server.admin.http.put(f"/datasets/{dataset}/grants/{caller.id}", json={"role": name})
        return replace(targets, dataset=dataset)
    return targets


def _waiting_job(server: Server, decider: Caller, name: str) -> str:
    """A job of another key that waits for an approval, on a dataset where the caller has its role."""
    dataset = server.uploaded()["id"]
    rules = {"largest_job": None, "approval_above": "0.1", "quotas": [], "frozen": False, "erase_rows_at": None}
    assert server.admin.http.put(f"/datasets/{dataset}/rules", json=rules).status_code == 200
    if name == "owner":
        server.admin.http.put(f"/datasets/{dataset}/grants/{decider.id}", json={"role": name})
    analyst = server.granted(dataset, "analyst")
    accepted = analyst.http.post("/train", json=training(dataset), headers=new_idempotency_key()).json()
    assert accepted["state"] == "waiting"
    return str(accepted["job_id"])


def _twin(server: Server, model_id: str) -> str:
    """A second model with an identical artifact."""
    with server.database.write() as session:
        row = models.find(session, model_id)
        values = {column.name: getattr(row, column.name) for column in ModelRow.__table__.columns}
        twin = ModelRow(**values | {"id": ids.new(ids.MODEL)})
        models.add(session, twin)
        return twin.id


def _answer_to(client: httpx.Client, request: Ask) -> httpx.Response:
    method, path, options = request
    return client.request(method, path, **options)


def _is_refusal(answer: httpx.Response, status: int) -> bool:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["status"], answer.json()["type"]) == (status, TYPES[status])
    assert answer.headers["X-Request-Id"]
    return True


def test_every_operation_stands_in_the_table() -> None:
    document = json.loads(openapi_text())
    operations = {it["operationId"] for path in document["paths"].values() for it in path.values()}
    assert operations == set(STATUSES) == set(REQUESTS)


@pytest.mark.parametrize(("operation", "statuses"), STATUSES.items())
def test_an_operation_answers_exactly_those_who_may_call_it(
    estate: Estate, operation: str, statuses: tuple[int, ...]
) -> None:
    _check(
        estate,
        operation,
        statuses,
        lambda name, status: _fresh(estate, operation, estate.callers[name], name) if status < 300 else estate.targets,
    )


@pytest.mark.parametrize(("operation", "statuses"), OF_POPULATION.items())
def test_a_call_about_a_population_answers_exactly_those_who_see_it(
    estate: Estate, operation: str, statuses: tuple[int, ...]
) -> None:
    population = replace(estate.targets, dataset=estate.targets.population)
    _check(estate, operation, statuses, lambda _name, _status: population)


def _check(
    estate: Estate, operation: str, statuses: tuple[int, ...], targets_of: Callable[[str, int], Targets]
) -> None:
    expected = dict(zip(CALLERS, statuses, strict=True))
    for name, status in sorted(expected.items(), key=lambda item: item[1] < 300):
        caller = estate.callers[name]
        targets = targets_of(name, status)
        before = estate.server.footprint()
        answer = _answer_to(caller.http, REQUESTS[operation](targets))
        assert answer.status_code == status, (name, answer.text)
        if status >= 300:
            assert _is_refusal(answer, status)
            assert estate.server.footprint() == before, "a refusal changes nothing"
            for known in (estate.targets.dataset, estate.targets.job, estate.targets.model):
                assert status != 404 or known not in answer.text


WRITES = [operation for operation in STATUSES if REQUESTS[operation](Targets(*[""] * 9))[0] != "GET"]
GRANTED = [name for name in WRITES if STATUSES[name][CALLERS.index("owner")] < 300 <= STATUSES[name][0]]


@pytest.mark.parametrize(
    ("operation", "loss"),
    [(name, loss) for name in WRITES for loss in ("key", "grants" if name in GRANTED else "roles")],
)
def test_an_operation_has_no_effect_once_the_authority_is_gone(estate: Estate, operation: str, loss: Loss) -> None:
    """The authority goes at the last moment: before each write transaction of the request in turn."""
    server = estate.server
    for write in count(1):
        name = "owner" if loss == "grants" else "admin"
        caller = server.caller("admin") if name == "admin" else server.granted(estate.targets.dataset, name)
        request = REQUESTS[operation](_fresh(estate, operation, caller, name))
        before = server.footprint()
        with lost_before_write(server.database, caller.id, loss, write=write) as writes:
            answer = _answer_to(caller.http, request)
        if writes.n < write:
            break
        assert _is_refusal(answer, 401 if loss == "key" else STATUSES[operation][0])
        after = server.footprint()
        assert after | {"grants": None} == before | {"grants": None}
    assert answer.status_code < 300, answer.text
    assert write > 1 or operation in READS, "the operation neither reads only nor has an effect"


@pytest.mark.parametrize("operation", sorted(set(WRITES) - READS))
def test_an_administrative_act_leaves_one_entry(estate: Estate, operation: str) -> None:
    """Other effects, and repetitions without one, leave none. Joining a population of a new name opens it, too."""
    server, caller = estate.server, estate.callers["admin"]
    targets = _fresh(estate, operation, caller, "admin")
    if operation == "delete_grant":
        _answer_to(caller.http, REQUESTS["put_grant"](targets))
    request = REQUESTS[operation](targets)
    n_before = len(_acts(server))
    assert _answer_to(caller.http, request).is_success
    left = _acts(server)[n_before:]
    assert tuple(act["kind"] for act in left) == ACTS[operation]
    assert {act["actor"] for act in left} <= {caller.id}
    if operation in ("revoke_key", "delete_grant", "delete_dataset", "join_population"):
        assert _answer_to(caller.http, request).is_success
        assert _acts(server)[n_before:] == left


def _acts(server: Server) -> list[dict[str, Any]]:
    """All acts, page by page."""
    with Client(server.url, server.admin.key) as client:
        return list(client.acts())


def test_no_operation_that_reads_begins_a_write_transaction(estate: Estate) -> None:
    server = estate.server
    with lost_before_write(server.database, estate.callers["admin"].id, "key", write=0) as writes:
        for operation in set(STATUSES) - set(WRITES) | READS:
            assert _answer_to(server.admin.http, REQUESTS[operation](estate.targets)).status_code == 200
    assert writes.n == 0


@pytest.mark.parametrize("operation", STATUSES)
def test_an_operation_needs_a_living_key(estate: Estate, operation: str) -> None:
    admin = estate.server.admin
    headers = [
        {},
        {"Authorization": admin.key},
        {"Authorization": f"Basic {admin.key}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer not-a-key"},
        {"Authorization": f"Bearer {admin.key}x"},
        {"Authorization": f"Bearer {admin.id}.{secrets.token_urlsafe(32)}"},
        {"Authorization": f"Bearer {ids.new(ids.KEY)}.{secrets.token_urlsafe(32)}"},
        {"Authorization": f"Bearer {estate.revoked.key}"},
        {"Authorization": "Bearer \xe9\xff"},
    ]
    client = estate.server.client(None)
    before = estate.server.footprint()
    for header in headers:
        method, path, options = REQUESTS[operation](estate.targets)
        sent = {name: value.encode("latin-1") for name, value in (options.pop("headers", {}) | header).items()}
        answer = client.request(method, path, headers=sent, **options)
        if operation in PUBLIC:
            assert answer.status_code == 200
        else:
            assert _is_refusal(answer, 401)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert estate.server.footprint() == before


@pytest.mark.parametrize("name", CALLERS)
def test_lists_show_only_what_a_caller_may_see(estate: Estate, name: str) -> None:
    hidden = estate.server.declared()
    caller = estate.callers[name].http
    sees_all = name in ("admin", "global auditor")
    listed = {it["id"] for it in caller.get("/datasets", params={"limit": 500}).json()["datasets"]}
    assert (hidden["id"] in listed) == sees_all
    assert (estate.targets.dataset in listed) == (name not in ("stranger", "global owner"))
    jobs = [it["id"] for it in caller.get("/jobs", params={"limit": 500}).json()["jobs"]]
    assert (estate.targets.job in jobs) == (name in ("analyst", "owner", "admin"))
    cards = [it["id"] for it in caller.get("/models", params={"limit": 500}).json()["models"]]
    assert (estate.targets.model in cards) == (name in ("predictor", "analyst", "owner", "admin"))
    balances = caller.get("/ledger", params={"limit": 500})
    if balances.status_code == 200:
        accounts = {it["dataset"] for it in balances.json()["datasets"]}
        assert (hidden["id"] in accounts) == sees_all
        assert (estate.targets.dataset in accounts) == (name != "global owner")


def test_the_declaring_key_becomes_owner_and_grants_and_revokes_roles(idle_server: Server) -> None:
    owner, friend = idle_server.caller("owner"), idle_server.caller()
    dataset = owner.http.post("/datasets", json=declaration()).json()["id"]
    grant = f"/datasets/{dataset}/grants/{friend.id}"
    assert friend.http.get(f"/datasets/{dataset}").status_code == 404
    granted = owner.http.put(grant, json={"role": "predictor"})
    assert granted.json().items() >= {"dataset": dataset, "key_id": friend.id, "role": "predictor"}.items()
    assert friend.http.post("/plans", json=training(dataset)).status_code == 403
    assert owner.http.put(grant, json={"role": "analyst"}).status_code == 200, "one role, in place of the other"
    assert friend.http.post("/plans", json=training(dataset)).status_code == 200
    assert friend.http.put(grant, json={"role": "owner"}).status_code == 403, "nobody raises themselves"
    listed = owner.http.get(f"/datasets/{dataset}/grants").json()["grants"]
    assert {(it["key_id"], it["role"], it["granted_by"], it["revoked_at"]) for it in listed} == {
        (owner.id, "owner", owner.id, None),
        (friend.id, "analyst", owner.id, None),
    }
    first = owner.http.get(f"/datasets/{dataset}/grants", params={"limit": 1}).json()
    rest = owner.http.get(f"/datasets/{dataset}/grants", params={"cursor": first["next"]}).json()
    assert [*first["grants"], *rest["grants"]] == listed
    for _ in range(2):
        assert owner.http.delete(grant).status_code == 204
        assert friend.http.get(f"/datasets/{dataset}").status_code == 404
    assert idle_server.admin.http.delete(f"/keys/{friend.id}").status_code == 204
    assert owner.http.put(grant, json={"role": "analyst"}).status_code == 404, "a revoked key is granted nothing"


def test_an_analyst_cancels_their_own_job_and_no_other(idle_server: Server) -> None:
    dataset = idle_server.uploaded()["id"]
    first, second = (idle_server.granted(dataset, "analyst") for _ in range(2))
    job_id = first.http.post("/train", json=training(dataset), headers=new_idempotency_key()).json()["job_id"]
    assert _is_refusal(second.http.delete(f"/jobs/{job_id}"), 403)
    assert first.http.delete(f"/jobs/{job_id}").json()["state"] == "cancelled"


def test_a_cursor_says_nothing_about_jobs_of_others(idle_server: Server) -> None:
    own, other = (idle_server.uploaded()["id"] for _ in range(2))
    theirs = idle_server.submitted(other).json()["job_id"]
    analyst = idle_server.granted(own, "analyst").http
    answers = [analyst.get("/jobs", params={"cursor": cursor}) for cursor in (theirs, ids.new(ids.JOB))]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("path", ["/nothing", "/datasets/", "/ledger/a/b/c", "/docs", "/redoc", "/metrics/x"])
def test_an_unknown_path_is_401_without_a_key(idle_server: Server, path: str) -> None:
    assert _is_refusal(idle_server.client(None).get(path), 401)
    assert _is_refusal(idle_server.admin.http.get(path), 404)


def test_the_document_of_the_api_needs_no_key(idle_server: Server) -> None:
    answer = idle_server.client(None).get("/openapi.json")
    assert answer.status_code == 200
    assert set(answer.json()["paths"]) >= {"/train", "/ledger"}


def test_of_several_authorizations_none_counts(idle_server: Server) -> None:
    """A proxy may have checked the other header."""
    good, other = (f"Bearer {idle_server.caller('admin').key}" for _ in range(2))
    for several in ((good, other), (good, "Bearer nobody"), ("Bearer nobody", good), (good, good)):
        answer = idle_server.client(None).get("/ledger", headers=[("Authorization", each) for each in several])
        assert answer.status_code == 401, several
        assert answer.headers["WWW-Authenticate"] == "Bearer"
