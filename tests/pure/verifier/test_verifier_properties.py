"""Random honest histories verify with the right balance; every changed byte of an entry
is found.
"""

import io
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grovekeeper_verifier.dataset_replay import verify
from grovekeeper_verifier.export_lines import NotVerified

CAP = 12
SHARDS = 3
SCOPES = st.one_of(
    st.just([]), st.sets(st.integers(0, SHARDS - 1), min_size=1).map(sorted)
)
JOBS = st.lists(
    st.tuples(
        SCOPES, st.integers(1, CAP), st.sampled_from(["charge", "void", "expire", None])
    ),
    max_size=8,
)
FREE = {"type": "sequential/1", "parts": []}
# The fixture is a class, so one instance of it serves all examples.
relaxed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


def _text(quarters: int) -> str:
    return str(float(Fraction(quarters, 4))).removesuffix(".0")


def _honest(
    export: Callable[..., Any], jobs: list[tuple[list[int], int, str | None]]
) -> tuple[Any, list[list[int]]]:
    """An export of the jobs that a naive ledger admits, and its charged and reserved
    amounts per cell in quarters.
    """
    writer = export(cap=_text(CAP), shards=SHARDS)
    cells = [[0, 0] for _ in range(SHARDS)]
    for number, (scope, amount, end) in enumerate(jobs):
        touched = scope or range(SHARDS)
        if any(sum(cells[cell]) + amount > CAP for cell in touched):
            continue
        box = {"shard": scope} if scope else {}
        writer.job(f"jb_{number}", _text(amount), end, scope=box, event=FREE)
        for cell in touched:
            cells[cell][0] += amount * (end == "charge")
            cells[cell][1] += amount * (end is None)
    return writer, cells


@relaxed
@given(jobs=JOBS)
def test_every_honest_history_is_verified_with_its_balance(
    export: Callable[..., Any], jobs: Any
) -> None:
    writer, cells = _honest(export, jobs)
    tightest = verify(writer.lines()).tightest
    expected = max(range(SHARDS), key=lambda cell: (sum(cells[cell]), -cell))
    quarter = 250_000_000
    assert tightest.cell == {"shard": expected}
    assert [tightest.charged, tightest.reserved] == [
        amount * quarter for amount in cells[expected]
    ]


@relaxed
@given(jobs=JOBS, scope=SCOPES, extra=st.integers(1, 4))
def test_one_job_too_many_is_found_in_any_history(
    export: Callable[..., Any], jobs: Any, scope: list[int], extra: int
) -> None:
    writer, cells = _honest(export, jobs)
    fullest = max(sum(cells[cell]) for cell in scope or range(SHARDS))
    amount = CAP - fullest + extra
    writer.job(
        "jb_last",
        _text(amount),
        None,
        scope={"shard": scope} if scope else {},
        event=FREE,
    )
    with pytest.raises(NotVerified, match="over the cap") as caught:
        verify(writer.lines())
    assert caught.value.line == len(writer.entries) + 1


@settings(relaxed, max_examples=300)
@given(jobs=JOBS, place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_no_changed_byte_of_an_entry_goes_unseen(
    export: Callable[..., Any], jobs: Any, place: float, byte: int
) -> None:
    """Changes that keep the line's meaning, such as another kind of space, are
    excluded.
    """
    writer, _ = _honest(export, [([], 1, "charge"), *jobs])
    lines = writer.lines()
    content = bytearray(b"".join(lines[1:]))
    position = int(place * len(content))
    content[position] = byte if content[position] != byte else byte ^ 1
    changed = [lines[0], *io.BytesIO(content)]
    bad_line = _first_bad_line(changed)
    if bad_line is None:
        assert [json.loads(line) for line in changed] == [
            json.loads(line) for line in lines
        ]
    else:
        number = 2 + b"".join(lines[1:])[:position].count(b"\n")
        assert bad_line in (number, number + 1), (
            "the changed line; a lost line end joins two, a new one cuts one"
        )


def _first_bad_line(lines: list[bytes]) -> int | None:
    try:
        verify(lines)
    except NotVerified as failure:
        return failure.line
    return None


@relaxed
@given(content=st.binary(max_size=300))
def test_no_bytes_are_more_than_not_verified(content: bytes) -> None:
    with pytest.raises(NotVerified):
        verify(io.BytesIO(content))
