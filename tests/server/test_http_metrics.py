"""``/metrics`` counts requests and admissions and shows the queue, and nothing that
depends on a row.
"""

import json
import re
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import delete

from app.core import limits
from app.core.files import NEWEST_BACKUP
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.outbox import DeliveryRow
from app.jobs.tables import JobRow, WorkerRow
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.operations import EXTERNAL
from tests.support.pages import section, signed_in
from tests.support.server import Server, new_idempotency_key, training, worker
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.in_turn("server")

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "grovekeeper.json"
NAMES = {
    "grovekeeper_accounts": "gauge",
    "grovekeeper_accounts_near_cap": "gauge",
    "grovekeeper_admissions": "counter",
    "grovekeeper_changed_cells": "counter",
    "grovekeeper_database_errors": "counter",
    "grovekeeper_deliveries": "gauge",
    "grovekeeper_duration_seconds": "histogram",
    "grovekeeper_failed_jobs": "gauge",
    "grovekeeper_heads_behind": "gauge",
    "grovekeeper_jobs": "gauge",
    "grovekeeper_longest_wait_seconds": "gauge",
    "grovekeeper_requests": "counter",
    "grovekeeper_workers": "gauge",
}
"""Every metric with its kind. Dashboards and alerts of operators rest on these names."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def _no_old_facts(set_limit: SetLimit) -> None:
    set_limit("METRICS_AGE_S", 0)


def _text(server: Server) -> str:
    answer = server.admin.http.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    return answer.text


def _samples(server: Server) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(_text(server))
        for sample in family.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0)


def test_the_metrics_are_the_published_ones(idle_server: Server) -> None:
    families = {
        family.name: family.type
        for family in text_string_to_metric_families(_text(idle_server))
    }
    assert families == NAMES


@on_one_idle_server
def test_the_time_of_the_newest_backup_of_the_home_is_known(
    idle_server: Server,
) -> None:
    name = "grovekeeper_backup_timestamp_seconds"
    page, mark = "/ui/admin", idle_server.settings.home / NEWEST_BACKUP
    browser = signed_in(idle_server, idle_server.admin)
    assert (name, frozenset()) not in _samples(idle_server)
    assert "none was made of this home" in section(browser.get(page).text, "queue")
    mark.write_text("2026-11-30T12:00:00.000000Z")
    try:
        assert _value(_samples(idle_server), name) == 1796040000
        assert "2026-11-30 12:00" in section(browser.get(page).text, "queue")
        mark.write_text("2026-11-30T12:00:00.000000Z\n")
        assert _value(_samples(idle_server), name) == 1796040000
        mark.write_text("")
        assert (name, frozenset()) not in _samples(idle_server)
    finally:
        mark.unlink()


@on_one_idle_server
def test_a_request_is_counted_by_its_template_and_an_unknown_one_makes_no_series(
    idle_server: Server,
) -> None:
    dataset = idle_server.declared()["id"]
    before = _samples(idle_server)
    assert idle_server.admin.http.get(f"/datasets/{dataset}").status_code == 200
    assert (
        idle_server.admin.http.request("PROPFIND", "/a/path/of/a/caller").status_code
        == 404
    )
    after = _samples(idle_server)
    known = {"method": "GET", "route": "/datasets/{dataset}", "status": "200"}
    unknown = {"method": "OTHER", "route": "", "status": "404"}
    name = "grovekeeper_requests_total"
    for labels in (known, unknown):
        assert _value(after, name, **labels) == _value(before, name, **labels) + 1
    assert dataset not in _text(idle_server)


def test_admissions_are_counted_by_outcome(idle_server: Server) -> None:
    dataset = idle_server.declared(budget={"accountant": "pure", "epsilon": "1"})["id"]
    path, key = f"/ledger/{dataset}/reservations", new_idempotency_key()
    charge = EXTERNAL | {"declared": {"adjacency": "add_remove", "epsilon": "0.85"}}
    before = _samples(idle_server)
    for expected, headers in ((201, key), (201, key), (409, new_idempotency_key())):
        assert (
            idle_server.admin.http.post(path, json=charge, headers=headers).status_code
            == expected
        )
    after = _samples(idle_server)
    for outcome in ("admitted", "repeated", "budget-exceeded"):
        name = "grovekeeper_admissions_total"
        assert (
            _value(after, name, outcome=outcome)
            == _value(before, name, outcome=outcome) + 1
        )
    near = {
        share: _value(after, "grovekeeper_accounts_near_cap", share=share)
        for share in ("0.8", "0.95", "1")
    }
    grew = {
        share: near[share]
        - _value(before, "grovekeeper_accounts_near_cap", share=share)
        for share in near
    }
    assert grew == {"0.8": 1, "0.95": 0, "1": 0}


@on_one_idle_server
def test_the_queue_is_counted_and_a_deleted_dataset_is_not_near_its_cap(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded(budget={"accountant": "pure", "epsilon": "1"})["id"]
    before = _samples(idle_server)
    job = idle_server.submitted(dataset).json()["job_id"]
    queued = _samples(idle_server)
    assert (
        _value(queued, "grovekeeper_jobs", state="queued")
        == _value(before, "grovekeeper_jobs", state="queued") + 1
    )
    assert idle_server.admin.http.delete(f"/datasets/{dataset}").status_code == 204
    ended = _samples(idle_server)
    near = "grovekeeper_accounts_near_cap"
    assert _value(queued, near, share="1") == _value(before, near, share="1") + 1
    assert _value(ended, near, share="1") == _value(before, near, share="1")
    idle_server.admin.http.delete(f"/jobs/{job}")


@on_one_idle_server
def test_the_queue_its_workers_and_its_failures_are_seen(
    idle_server: Server, set_limit: SetLimit, tmp_path: Path
) -> None:
    set_limit("WORKER_SEEN_S", 600)  # the machine may be busy
    _forget_workers(idle_server)
    before = _samples(idle_server)
    assert _value(before, "grovekeeper_workers") == 0
    dataset = idle_server.uploaded(budget={"accountant": "pure", "epsilon": "1"})["id"]
    analyst = idle_server.granted(dataset, "analyst")
    job = analyst.http.post(
        "/train", json=training(dataset), headers=new_idempotency_key()
    ).json()["job_id"]
    with idle_server.database.write() as session:
        session.get_one(JobRow, job).waits_since -= timedelta(hours=1)
    assert idle_server.admin.http.delete(f"/keys/{analyst.id}").status_code == 204
    waiting = _samples(idle_server)
    assert 3_600 <= _value(waiting, "grovekeeper_longest_wait_seconds") < 7_200
    with worker(idle_server.settings, log=tmp_path / "log") as process:
        assert idle_server.ended(job)["state"] == "failed"
        ended = _samples(idle_server)
        assert _value(ended, "grovekeeper_workers") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert _value(_samples(idle_server), "grovekeeper_workers") == 0, (
        "it ended in order"
    )
    failed = {"reason": "revoked"}
    name = "grovekeeper_failed_jobs"
    assert _value(ended, name, **failed) == _value(before, name, **failed) + 1


def _forget_workers(server: Server) -> None:
    """Forgets workers that earlier tests on the same database killed."""
    with server.database.write() as session:
        session.execute(delete(WorkerRow))


def test_a_delivery_that_waits_is_counted(idle_server: Server) -> None:
    before = _samples(idle_server)
    with idle_server.database.write() as session:
        at = transaction_time(session)
        session.add(
            DeliveryRow(
                id="dl_waits",
                webhook_id="wh_none",
                event="job.ended",
                body={},
                created_at=at,
            )
        )
    after = _samples(idle_server)
    with idle_server.database.write() as session:
        session.execute(delete(DeliveryRow).where(DeliveryRow.id == "dl_waits"))
    assert (
        _value(after, "grovekeeper_deliveries")
        == _value(before, "grovekeeper_deliveries") + 1
    )


def test_a_worker_that_was_killed_is_not_counted_for_long(idle_server: Server) -> None:
    _forget_workers(idle_server)
    with idle_server.database.write() as session:
        at = transaction_time(session) - timedelta(seconds=limits.WORKER_SEEN_S + 1)
        queue.see_worker(session, "pr_killed", at=at)
    assert _value(_samples(idle_server), "grovekeeper_workers") == 0
    with idle_server.database.write() as session:
        queue.forget_worker(session, "pr_killed")


def _expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel.get("targets", ())]


def test_every_metric_of_the_grafana_dashboard_exists(idle_server: Server) -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    expressions = [
        expression
        for panel in dashboard["panels"]
        for expression in _expressions(panel)
    ]
    used = {
        name
        for expression in expressions
        for name in re.findall(r"grovekeeper_\w+", expression)
    }
    endings = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    samples = {name + endings[kind] for name, kind in NAMES.items()}
    assert used == samples
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(
        dashboard["panels"]
    )


@on_one_server
def test_durations_of_answered_predictions_and_admissions_are_counted(
    server: Server,
) -> None:
    dataset = server.uploaded()["id"]
    job = server.trained(dataset)
    before = _samples(server)
    server.submitted(dataset)
    refused = server.submitted(dataset, epsilon="99")
    rows = [{"age": 39, "height": 1.5, "sex": "Male"}]
    predict = f"/models/{job['model_id']}/predict"
    answers = [
        server.admin.http.post(predict, json={"rows": sent})
        for sent in (rows, "no rows")
    ]
    server.admin.http.post("/plans", json=training(dataset))
    assert [refused.status_code, *(answer.status_code for answer in answers)] == [
        409,
        200,
        422,
    ]
    after = _samples(server)
    for kind in ("prediction", "admission"):
        grown = {
            labels: after[name, labels] - before.get((name, labels), 0)
            for name, labels in after
            if name == "grovekeeper_duration_seconds_bucket"
            and ("kind", kind) in labels
        }
        assert grown[frozenset({("kind", kind), ("le", "+Inf")})] == 1
        assert set(grown.values()) <= {0, 1}
        assert _value(after, "grovekeeper_duration_seconds_sum", kind=kind) > 0
