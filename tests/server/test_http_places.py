"""The number of jobs before a queued job: of all submitters and datasets, and nothing
but the number.
"""

from app.core import limits
from grovekeeper_common.job_words import MAX_COUNTED
from tests.support.pages import signed_in, text_of
from tests.support.server import Caller, Server, new_idempotency_key, training
from tests.support.set_limits import SetLimit


def test_a_queued_job_says_how_many_jobs_are_before_it(idle_server: Server) -> None:
    idle_server.cancel_what_waits()
    hidden, dataset = (idle_server.uploaded()["id"] for _ in range(2))
    # keys whose jobs no worker has claimed: such claims decide whose turn is next
    others = _two_jobs(idle_server.granted(hidden, "analyst"), hidden)
    analyst = idle_server.granted(dataset, "analyst")
    first, second = _two_jobs(analyst, dataset)
    job = analyst.http.get(f"/jobs/{first}").json()
    assert job["jobs_before"] == 1, "submitters take turns"
    listed = analyst.http.get("/jobs").json()["jobs"]
    assert [(item["id"], item["jobs_before"]) for item in listed] == [
        (second, 3), (first, 1),
    ]  # fmt: skip
    assert analyst.http.get(f"/jobs/{others[0]}").status_code == 404
    browser = signed_in(idle_server, analyst)
    assert "1 job waits before it" in text_of(browser.get(f"/ui/jobs/{first}"))
    home = text_of(browser.get("/"))
    assert "3 jobs wait before it" in home
    cancelled = analyst.http.delete(f"/jobs/{first}").json()
    assert cancelled["jobs_before"] is None
    assert analyst.http.get(f"/jobs/{second}").json()["jobs_before"] == 1


def _two_jobs(caller: Caller, dataset: str) -> list[str]:
    return [
        caller.http.post(
            "/train", json=training(dataset), headers=new_idempotency_key()
        ).json()["job_id"]
        for _ in range(2)
    ]


def test_a_job_that_no_worker_would_take_has_no_place(idle_server: Server) -> None:
    idle_server.cancel_what_waits()
    frozen, dataset = (idle_server.uploaded()["id"] for _ in range(2))
    held = idle_server.submitted(frozen).json()["job_id"]
    rules = {
        "largest_job": None, "approval_above": None, "quotas": [], "frozen": True, "erase_rows_at": None,
    }  # fmt: skip
    path = f"/datasets/{frozen}/rules"
    idle_server.admin.http.put(path, json=rules).raise_for_status()
    job_id = idle_server.submitted(dataset).json()["job_id"]
    http = idle_server.admin.http
    assert http.get(f"/jobs/{held}").json()["jobs_before"] is None
    assert http.get(f"/jobs/{job_id}").json()["jobs_before"] == 0
    page = text_of(signed_in(idle_server, idle_server.admin).get(f"/ui/jobs/{job_id}"))
    assert "Workers take it next" in page


def test_a_place_is_counted_up_to_a_limit(
    idle_server: Server, set_limit: SetLimit
) -> None:
    assert limits.MAX_JOBS_BEFORE == MAX_COUNTED
    set_limit("MAX_JOBS_BEFORE", 2)
    idle_server.cancel_what_waits()
    dataset = idle_server.uploaded()["id"]
    ids = [idle_server.submitted(dataset).json()["job_id"] for _ in range(5)]
    before = [
        idle_server.admin.http.get(f"/jobs/{job_id}").json()["jobs_before"]
        for job_id in ids
    ]
    assert before == [0, 1, 2, 3, 3]
