"""The event stream of jobs: one poller per process for all clients; it survives a short
outage of the database.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from app.access.grants import Principal
from app.api import streams
from app.api.capacity import Capacities
from app.api.streams import JobEvents
from app.core.errors import TooManyRequests, Unavailable
from app.services.jobs.show_jobs import Followed
from app.wire.jobs import JobOut
from app.wire.spending import PriceOut
from tests.support.set_limits import SetLimit

HERE: Any = object()
CALLER = Principal("key_a")


def _job(state: Any, trees_done: int = 0, *, job_id: str = "jb_a") -> JobOut:
    return JobOut(
        id=job_id, dataset="ds_a", dataset_name="census", kind="train", algorithm="mrf", what="mrf", name=None,
        purpose=None, label=None, scope={}, submitted_by="key_a", state=state,
        reason=None, held_by=None, jobs_before=None, charged=False, preparing=False,
        progress=trees_done / 2, trees_done=trees_done, n_trees=2,
        model_id=None,
        profile_id=None, evaluation_id=None, statistics_id=None, reservation_id="rs_a",
        price=PriceOut(accountant="pure", unit="epsilon", amount="1", epsilon="1", delta=None),
        unlabelled=None, submitted_at="2026-11-20T09:00:00.000000Z",
    )  # fmt: skip


class _Script:
    """Replaces the database: each poll gives the next list of jobs or raises the next
    error.
    """

    def __init__(self, *looks: "list[JobOut] | Exception") -> None:
        self.looks = list(looks)
        self.asked: list[list[str]] = []

    def __call__(
        self, installation: object, followed: Sequence[Followed]
    ) -> dict[Followed, JobOut]:
        self.asked.append(sorted(job_id for _, job_id in followed))
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return {(CALLER, job.id): job for job in look}


def _events(look_at: Any) -> JobEvents:
    return JobEvents(Capacities(), look_at, 0.001)


def _follow(script: _Script, *firsts: JobOut) -> list[list[JobOut]]:
    async def all_of_them() -> list[list[JobOut]]:
        events = _events(script)

        async def one(first: JobOut) -> list[JobOut]:
            return [job async for job in events.follow(HERE, CALLER, first)]

        async with asyncio.timeout(60):
            return list(await asyncio.gather(*map(one, firsts)))

    return asyncio.run(all_of_them())


def test_every_change_of_a_job_is_streamed_once() -> None:
    queued, half, done = _job("queued"), _job("running", 1), _job("succeeded", 2)
    script = _Script([queued], [half], [half], [done])
    assert _follow(script, queued) == [[queued, half, done]]
    assert script.looks == []


def test_a_job_that_has_ended_needs_no_look() -> None:
    failed = _job("failed")
    script = _Script()
    assert _follow(script, failed) == [[failed]]
    assert script.asked == []


def test_many_followers_share_every_look() -> None:
    first, other = _job("queued"), _job("queued", job_id="jb_b")
    ends = [_job("cancelled"), _job("failed", job_id="jb_b")]
    script = _Script([first, other], ends)
    reported = _follow(script, first, first, other, first)
    assert reported == [
        [first, ends[0]],
        [first, ends[0]],
        [other, ends[1]],
        [first, ends[0]],
    ]
    assert script.asked == [["jb_a", "jb_b"]] * 2


def test_followers_wait_for_a_database_that_is_away() -> None:
    queued, done = _job("queued"), _job("succeeded", 2)
    script = _Script(Unavailable(), [queued], Unavailable(), [done])
    assert _follow(script, queued) == [[queued, done]]


def test_a_job_that_every_look_finds_unchanged_brings_a_comment_after_each_silence(
    set_limit: SetLimit,
) -> None:
    """Looks are many times more frequent than comments; an event begins a new silence."""
    set_limit("EVENT_SILENCE_S", 0.05)
    queued, half, done = _job("queued"), _job("running", 1), _job("succeeded", 2)
    streamed: list[JobOut | None] = []

    def look_at(here: object, followed: Sequence[Followed]) -> dict[Followed, JobOut]:
        if streamed.count(None) < 3:
            return dict.fromkeys(followed, queued)
        return dict.fromkeys(followed, half if half not in streamed else done)

    async def follow() -> None:
        async with asyncio.timeout(60):
            async for job in _events(look_at).follow(HERE, CALLER, queued):
                streamed.append(job)

    start = time.monotonic()
    asyncio.run(follow())
    elapsed_s = time.monotonic() - start
    assert [job for job in streamed if job is not None] == [queued, half, done]
    assert streamed[:4] == [queued, None, None, None]
    # on a busy machine, a look may take as long as a silence
    assert streamed.count(None) <= elapsed_s / 0.05


def test_a_stream_ends_when_its_follower_may_not_see_the_job_any_more() -> None:
    queued, half = _job("queued"), _job("running", 1)
    script = _Script([half], [])
    assert _follow(script, queued) == [[queued, half]]


def test_a_client_that_disconnects_is_no_longer_polled_for() -> None:
    def look_at(_: object, followed: Sequence[Followed]) -> dict[Followed, JobOut]:
        return dict.fromkeys(followed, _job("running", 1))

    async def leave_early() -> tuple[JobOut, dict[str, Any]]:
        events = _events(look_at)
        stream = events.follow(HERE, CALLER, _job("queued"))
        await anext(stream)
        second = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        return second, dict(events._followers)

    second, left = asyncio.run(leave_early())
    assert (second.trees_done, left) == (1, {})


def test_streams_of_one_key_and_of_all_keys_have_limits(
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
) -> None:
    set_limit("MAX_FOLLOWERS_PER_KEY", 1)
    set_limit("MAX_FOLLOWERS", 2)
    monkeypatch.setattr(streams.show_jobs, "show_job", lambda *_: _job("queued"))

    def look_at(_: object, followed: Sequence[Followed]) -> dict[Followed, JobOut]:
        return dict.fromkeys(followed, _job("running"))

    callers = [Principal(f"key_{name}") for name in "abc"]

    async def admitted(events: JobEvents, caller: Principal) -> bool:
        try:
            await events.checked_job(HERE, caller, "jb_a")
        except TooManyRequests:
            return False
        return True

    async def follow_one_after_another() -> list[list[bool]]:
        events, found = _events(look_at), []
        streams = []
        for caller in callers[:2]:
            streams.append(events.follow(HERE, caller, _job("queued")))
            await anext(streams[-1])
            await anext(streams[-1])
            found.append([await admitted(events, each) for each in callers])
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        return [*found, [await admitted(events, each) for each in callers]]

    assert asyncio.run(follow_one_after_another()) == [
        [False, True, True],
        [False] * 3,
        [True] * 3,
    ]
