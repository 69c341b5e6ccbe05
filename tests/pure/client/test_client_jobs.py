"""Waiting follows the events of a job, connects again, polls where streams fail, and
ends with the job.
"""

import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx
import pytest

from grovekeeper_client import errors, progress
from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem, JobFailed, JobUnfinished, Unreachable
from grovekeeper_client.jobs import Job

KEY = "key_test." + "s" * 43
EVENTS = "/jobs/jb_1/events"


def _job(state: str, trees: int = 0, **changes: Any) -> dict[str, Any]:
    made = "md_1" if state == "succeeded" else None
    job = {
        "id": "jb_1",
        "kind": "train",
        "state": state,
        "trees_done": trees,
        "n_trees": 3,
        "model_id": made,
    }
    return {**job, "reason": None, "charged": True, **changes}


class _Jobs:
    """Answers with a script: a list is a stream of events, a mapping the job, a problem
    or an exception itself.
    """

    def __init__(self, *script: Any) -> None:
        self.script: Iterator[Any] = iter(script)
        self.paths: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        answer = next(self.script)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            problem = {
                "type": "a-problem",
                "title": "t",
                "status": answer,
                "detail": "d",
            }
            headers = {"Content-Type": "application/problem+json"}
            return httpx.Response(answer, content=json.dumps(problem), headers=headers)
        if isinstance(answer, dict):
            return httpx.Response(200, json=answer)
        return httpx.Response(200, content=_stream(answer))

    def client(self) -> Client:
        return Client(
            "http://grove.test",
            KEY,
            transport=httpx.MockTransport(self),
            sleep=lambda _seconds: None,
        )


def _stream(events: list[Any]) -> Iterator[bytes]:
    for event in events:
        if isinstance(event, BaseException):
            raise event
        yield (
            event
            if isinstance(event, bytes)
            else f"event: job\ndata: {json.dumps(event)}\n\n".encode()
        )


def _states(jobs: _Jobs) -> list[str]:
    seen: list[dict[str, Any]] = []
    last = jobs.client().wait_for_job("jb_1", on_change=seen.append)
    assert last == seen[-1]
    assert next(jobs.script, None) is None, "every answer was read"
    return [job["state"] for job in seen]


def test_waiting_reads_one_stream_and_reports_every_change_once() -> None:
    jobs = _Jobs(
        [
            _job("queued"),
            _job("queued"),
            _job("running", 1),
            _job("running", 2),
            _job("succeeded", 3),
        ]
    )
    assert _states(jobs) == ["queued", "running", "running", "succeeded"]
    assert jobs.paths == [EVENTS]


def test_a_stream_that_breaks_off_is_followed_by_a_poll_and_another_stream() -> None:
    jobs = _Jobs(
        [_job("queued"), httpx.ReadError("x")],
        _job("running", 1),
        [_job("running", 1), b'data: {"state": "succ'],
        _job("running", 2),
        [_job("succeeded", 3)],
    )
    assert _states(jobs) == ["queued", "running", "running", "succeeded"]
    assert jobs.paths == [EVENTS, "/jobs/jb_1", EVENTS, "/jobs/jb_1", EVENTS]


@pytest.mark.parametrize("refusal", [429, 503, 404])
def test_where_streams_are_refused_the_job_is_polled(refusal: int) -> None:
    jobs = _Jobs(
        refusal,
        _job("queued"),
        refusal,
        _job("running", 1),
        refusal,
        _job("succeeded", 3),
    )
    assert _states(jobs) == ["queued", "running", "succeeded"]


def test_a_service_that_restarts_does_not_end_the_waiting() -> None:
    down = httpx.ConnectError("x")
    jobs = _Jobs(
        [_job("queued"), httpx.ReadError("x")], *[down] * 11, [_job("succeeded", 3)]
    )
    assert _states(jobs) == ["queued", "succeeded"]


def test_a_service_that_stays_away_ends_the_waiting() -> None:
    jobs = _Jobs(*[httpx.ConnectError("x")] * 60)
    with pytest.raises(Unreachable):
        jobs.client().wait_for_job("jb_1")


def test_a_job_that_the_key_may_not_see_is_a_problem() -> None:
    with pytest.raises(ApiProblem):
        _Jobs(404, 404).client().wait_for_job("jb_1")


def test_a_job_gives_its_output_or_says_why_there_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def waited(job: dict[str, Any]) -> str:
        return Job(
            _Jobs([job]).client(), "jb_1", lambda done: str(done["model_id"])
        ).wait(progress=False)

    assert waited(_job("succeeded", 3)) == "md_1"
    with pytest.raises(
        JobFailed,
        match=r"job jb_1 failed: no worker finished it: .* the database .*; its price is spent for good",
    ) as caught:
        waited(_job("failed", reason="lost"))
    assert (caught.value.reason, caught.value.charged) == ("lost", True)
    with pytest.raises(
        JobFailed,
        match=r"job jb_1 cancelled: somebody cancelled.*; nothing was charged",
    ):
        waited(_job("cancelled", reason="cancelled", charged=False))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("timeout", [None, 3_600.0])
def test_a_wait_ends_where_another_person_has_to_go_on(timeout: float | None) -> None:
    job = _job("waiting", charged=False)
    jobs = _Jobs([_job("queued"), job, AssertionError()] if timeout is None else job)
    with pytest.raises(
        JobUnfinished,
        match=r"job jb_1 waits for an approval and goes on; .*job\('jb_1'\)",
    ) as caught:
        Job(jobs.client(), "jb_1", str).wait(timeout=timeout, progress=False)
    assert (caught.value.is_waiting, caught.value.job) == (True, job)


@pytest.mark.parametrize("held_by", ["frozen", "erasure-due"])
@pytest.mark.parametrize("timeout", [None, 3_600.0])
def test_a_wait_ends_where_no_worker_may_start_the_job(
    timeout: float | None, held_by: str
) -> None:
    job = _job("queued", charged=False, held_by=held_by)
    jobs = _Jobs(
        [_job("queued", held_by=None), job, AssertionError()]
        if timeout is None
        else job
    )
    with pytest.raises(JobUnfinished) as caught:
        Job(jobs.client(), "jb_1", str).wait(timeout=timeout, progress=False)
    assert (caught.value.is_waiting, caught.value.held_by, caught.value.job) == (
        False,
        held_by,
        job,
    )
    assert str(caught.value).startswith(
        f"job jb_1 is queued: {errors.HOLDS[held_by]}; "
    )


@pytest.mark.parametrize("held_by", sorted(errors.RETRIED))
def test_a_wait_goes_on_where_workers_try_again_and_says_why_once(
    held_by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    held = _job("queued", charged=False, held_by=held_by)
    again = _job("running", held_by=None)
    done = _job("succeeded", 3, held_by=None)
    jobs = _Jobs([held, again, held, done])
    assert Job(jobs.client(), "jb_1", lambda job: str(job["model_id"])).wait() == "md_1"
    said = " ".join(capsys.readouterr().err.split())
    assert said.count(f"queued: {errors.HOLDS[held_by]}") == 1


def test_a_wait_with_a_timeout_polls_and_ends_with_the_job_as_it_is() -> None:
    """At least one answer arrives, whatever the timeout; the job is not cancelled."""
    jobs = _Jobs(_job("running", 1))
    with pytest.raises(
        JobUnfinished, match="job jb_1 is running and goes on"
    ) as caught:
        Job(jobs.client(), "jb_1", str).wait(timeout=0, progress=False)
    assert not caught.value.is_waiting
    assert jobs.paths == ["/jobs/jb_1"]


def test_a_wait_with_a_timeout_gives_the_output_of_a_job_that_ends_before_it() -> None:
    down = httpx.ConnectError("x")
    jobs = _Jobs(_job("queued"), *[down] * 5, _job("running", 2), _job("succeeded", 3))
    assert (
        Job(jobs.client(), "jb_1", lambda done: str(done["model_id"])).wait(
            timeout=3_600
        )
        == "md_1"
    )
    assert set(jobs.paths) == {"/jobs/jb_1"}


def test_a_service_that_stays_away_ends_a_wait_whose_time_has_passed() -> None:
    jobs = _Jobs(*[httpx.ConnectError("x")] * 60)
    with pytest.raises(Unreachable):
        jobs.client().wait_for_job("jb_1", timeout=0)
    assert len(jobs.paths) < 10


@pytest.mark.parametrize("timeout", [float("nan"), -1.0])
def test_a_timeout_that_is_no_number_of_seconds_asks_nothing(timeout: float) -> None:
    jobs = _Jobs()
    with pytest.raises(ValueError, match="timeout: a number of seconds, 0 or more"):
        jobs.client().wait_for_job("jb_1", timeout=timeout)
    assert jobs.paths == []


def test_an_interrupt_ends_the_waiting_and_not_the_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = _Jobs([_job("running", 1), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        Job(jobs.client(), "jb_1", str).wait(progress=False)
    assert "the job goes on" in capsys.readouterr().err
    assert jobs.paths == [EVENTS], "nothing was cancelled"


def test_a_terminal_shows_the_trees(capsys: pytest.CaptureFixture[str]) -> None:
    Job(_Jobs([_job("running", 1), _job("succeeded", 3)]).client(), "jb_1", str).wait()
    assert "3/3 trees" in capsys.readouterr().err


def test_a_notebook_shows_the_trees_below_the_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:
        """Has the name of the shell of a notebook's kernel."""

    class Handle:
        update = staticmethod(shown.append)

    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda _content, display_id: Handle()  # type: ignore[attr-defined]
    notebook = ModuleType("IPython")
    notebook.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with progress.shown() as show:
        show(_job("queued", n_trees=0))
        show(_job("<b>", 2))
    assert shown == [
        '<progress value="0"></progress> queued ',
        '<progress value="2" max="3"></progress> &lt;b&gt; 2/3 trees',
    ]
