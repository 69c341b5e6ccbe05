"""Replay of a dataset's export: honest histories verify; tampering is found, and the
failure names the line.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785

from grovekeeper_verifier.dataset_replay import verify
from grovekeeper_verifier.export_lines import NotVerified
from tests.support.exports import failure_of, laplace

Export = Callable[..., Any]
Change = Callable[[list[dict[str, Any]]], object]


def _history(export: Export) -> Any:
    """Every kind of entry, one open reservation, some boxes. Lines: header 1, open 2,
    jobs from 3.
    """
    writer = export(cap="3", shards=4)
    writer.job("jb_1", "1").job("jb_2", "0.5", "void", scope={"shard": [0, 2]}).job(
        "jb_3", "0.25", "expire"
    )
    writer.add("cap", "2.5", details={"reason": "asked for"})
    writer.job("jb_4", "1.5", scope={"shard": [3]}).job(
        "jb_5", "0.7", None, scope={"shard": [0, 1]}, event=laplace("0")
    )
    writer.header["cap"] = "2.5"
    return writer


def _lines(writer: Any, entries: list[dict[str, Any]]) -> list[bytes]:
    forged = copy.copy(writer)
    forged.entries = entries
    return forged.lines()


def test_a_whole_history_is_verified_with_its_balance(export: Export) -> None:
    summary = verify(_history(export).lines())
    assert summary.kinds == {
        "open": 1,
        "reserve": 5,
        "charge": 2,
        "void": 1,
        "expire": 1,
        "cap": 1,
    }
    assert (summary.cap, summary.tightest.charged, summary.tightest.reserved) == (
        2_500_000_000,
        2_500_000_000,
        0,
    )
    assert summary.tightest.cell == {"shard": 3}


def test_an_account_without_jobs_is_verified(export: Export) -> None:
    summary = verify(export(cap="0.000000001").lines())
    assert (summary.cap, summary.tightest.load, summary.last.sequence) == (1, 0, 1)


def test_a_void_frees_its_amount_and_a_charge_does_not(export: Export) -> None:
    verify(export(cap="1").job("jb_1", "1", "void").job("jb_2", "1").lines())
    failure = failure_of(
        export(cap="1").job("jb_1", "1", "charge").job("jb_2", "1").lines()
    )
    assert (failure.line, failure.reason) == (
        5,
        "charged and reserved are 2, over the cap of 1",
    )


OTHER_VALUES: dict[str, list[object]] = {
    "sequence": [0, 99, "3", True, None],
    "kind": ["refund", "open", "void", "charge", "cap", None, 1],
    "amount": ["0.4", "0.40", "0", "-1", "1e0", "0.0000000001", 1, None],
    "scope": [{"shard": [1]}, {"shard": [2, 0]}, {"shard": []}, {"shard": [0, 0]}, {"shard": [4]}, {"shard": [True]},
              {"shard": ["0"]}, {"region": [0]}, {"shard": {"0": 1}}, [], None],
    "event": [{}, None, "free", {"type": "sequential/1", "parts": []}],
    "job_id": ["jb_x", "", None, 7],
    "actor": ["somebody else", "", None, 7],
    "at": ["2026-11-20T08:59:59.000000Z", "2026-11-20T09:00:59.000000Z", "2026-02-30T09:00:00.000000Z", "yesterday",
           "2026-11-20T09:00:00Z", "2026-11-20T09:00:00.000000+00:00", None],
    "previous_hash": ["f" * 64, "F" * 64, "0", None],
    "hash": ["f" * 64, "F" * 64, "0", None],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in OTHER_VALUES for value in OTHER_VALUES[field]],
)
def test_each_field_of_each_entry_changed_is_found_on_its_line(
    export: Export, field: str, value: object
) -> None:
    writer = _history(export)
    for index, entry in enumerate(writer.entries):
        if json.dumps(entry[field]) == json.dumps(value):
            continue
        entries = copy.deepcopy(writer.entries)
        entries[index][field] = value
        assert failure_of(_lines(writer, entries)).line == index + 2


@pytest.mark.parametrize("field", list(OTHER_VALUES))
def test_a_field_left_out_or_added_is_found_on_its_line(
    export: Export, field: str
) -> None:
    writer = _history(export)
    for index in range(len(writer.entries)):
        entries = copy.deepcopy(writer.entries)
        del entries[index][field]
        assert failure_of(_lines(writer, entries)).line == index + 2
        entries = copy.deepcopy(writer.entries)
        entries[index][field + "_"] = None
        assert failure_of(_lines(writer, entries)).line == index + 2


def test_an_entry_dropped_duplicated_or_exchanged_is_found_on_its_line(
    export: Export,
) -> None:
    writer = _history(export)
    entries = writer.entries
    for index in range(len(entries) - 1):
        assert (
            failure_of(_lines(writer, entries[:index] + entries[index + 1 :])).line
            == index + 2
        )
        swapped = [
            *entries[:index],
            entries[index + 1],
            entries[index],
            *entries[index + 2 :],
        ]
        assert failure_of(_lines(writer, swapped)).line == index + 2
    for index in range(len(entries)):
        assert (
            failure_of(_lines(writer, [*entries[: index + 1], *entries[index:]])).line
            == index + 3
        )


def test_a_file_cut_in_the_middle_of_a_line_is_found_on_that_line(
    export: Export,
) -> None:
    lines = _history(export).lines()
    for number, line in enumerate(lines, start=1):
        # an object that lacks only its line end is complete
        for kept in (1, len(line) // 2, len(line) - 2):
            failure = failure_of([*lines[: number - 1], line[:kept]])
            assert (failure.line, "truncated" in failure.reason) == (number, True)


def test_a_truncation_between_lines_is_not_detected_without_a_checkpoint(
    export: Export,
) -> None:
    """The output warns of this case: only the header's cap can contradict a cut tail."""
    writer = export(cap="3").job("jb_1", "1").job("jb_2", "1")
    assert verify(writer.lines()[:-1]).last.sequence == len(writer.entries) - 1


@pytest.mark.parametrize("lines", [[], [b"\n"], [b"not json\n"], [b"[]\n"], [b"{}\n"]])
def test_no_header_is_found_on_line_1(lines: list[bytes]) -> None:
    assert failure_of(lines).line == 1


def test_a_header_alone_is_no_export(export: Export) -> None:
    failure = failure_of(export().lines()[:1])
    assert (failure.line, failure.reason) == (
        2,
        "the export ends before its first entry",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "entry"), ("format", 2), ("format", True), ("format", "1"), ("delta", "0"),
        ("accountant", "rdp"), ("accountant", "zcdp"), ("accountant", None),
        ("dataset", ""), ("cap", "2.50"), ("cap", "2"), ("cap", 2), ("adjacency", "replace_one"),
        ("adjacency", ["label"]),
        ("privacy_unit", None), ("privacy_unit", {"column": None, "max_rows": 0}), ("privacy_unit", {"max_rows": 1}),
        ("privacy_unit", {"column": 7, "max_rows": 1}), ("partitions", None), ("partitions", [{}]),
        ("partitions", [{"name": "shard", "kind": "column", "cells": 4}]),
        ("privacy_unit", {"column": None, "max_rows": 2}), ("partitions", [{"name": "s", "kind": "range", "cells": 4}]),
        ("partitions", [{"name": "shard", "kind": "hash", "cells": True}]),
        ("partitions", [{"name": "shard", "kind": "hash", "cells": 2**40}]),
        ("partitions", [{"name": "shard", "kind": "hash", "cells": 4}] * 2), ("surplus", 1),
    ],
)  # fmt: skip
def test_a_header_out_of_form_or_against_the_entries_is_found_on_line_1(
    export: Export, field: str, value: object
) -> None:
    writer = _history(export)
    writer.header[field] = value
    assert failure_of(writer.lines()).line == 1


def test_a_partition_taken_from_header_and_opening_is_found_at_the_first_box(
    export: Export, rechained: Callable[..., Any]
) -> None:
    writer = _history(export)
    writer.header["partitions"] = []
    entries = copy.deepcopy(writer.entries)
    entries[0]["details"]["partitions"] = []
    assert failure_of(_lines(writer, rechained(entries))).line == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset", "ds_other"),
        ("accountant", "zcdp"),
        ("delta", "0.1"),
        ("adjacency", "label"),
        ("privacy_unit", {"column": "person", "max_rows": 2}),
        ("partitions", [{"name": "shard", "kind": "hash", "cells": 5}]),
    ],
)
def test_a_header_that_was_changed_is_found_at_the_first_entry(
    export: Export, field: str, value: object
) -> None:
    writer = _history(export)
    verify(writer.lines())
    if field in ("accountant", "delta"):  # each of the two is malformed alone
        writer.header |= {"accountant": "zcdp", "delta": "0.1"}
    writer.header[field] = value
    failure = failure_of(writer.lines())
    stated = "accountant" if field == "delta" else field
    assert (failure.line, failure.reason) == (
        2,
        f"the header's {stated} is not what the first entry says",
    )


def test_only_the_opening_and_changes_of_the_cap_need_details(export: Export) -> None:
    writer = _history(export)
    verify(writer.lines())
    assert {entry["kind"] for entry in writer.entries if "details" in entry} == {
        "open",
        "cap",
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda opening: opening.pop("details"),
        lambda opening: opening["details"].pop("partitions"),
        lambda opening: opening["details"].update(note="more"),
    ],
)
def test_the_first_entry_states_exactly_the_facts_of_the_account(
    export: Export,
    rechained: Callable[..., Any],
    change: Callable[[dict[str, Any]], object],
) -> None:
    failure = _forge(export, rechained, lambda entries: change(entries[0]))
    assert failure.line == 2
    assert failure.reason.startswith(
        "the details of the opening has not exactly the fields accountant, adjacency"
    )


@pytest.mark.parametrize("details", [{}, None, [], "text", 1, True])
def test_details_without_members_are_left_out_and_nothing_else(
    export: Export, rechained: Callable[..., Any], details: object
) -> None:
    failure = _forge(
        export, rechained, lambda entries: entries[1].update(details=details)
    )
    assert (failure.line, failure.reason) == (3, "details is not a non-empty object")


def test_details_of_a_charge_are_those_of_its_reservation(
    export: Export, rechained: Callable[..., Any]
) -> None:
    failure = _forge(
        export,
        rechained,
        lambda entries: entries[2].update(details={"attested_by": "key_other"}),
    )
    assert (failure.line, failure.reason) == (
        4,
        "details is not that of the reservation, sequence 2",
    )


def _forge(
    export: Export,
    rechained: Callable[..., Any],
    change: Callable[[list[dict[str, Any]]], object],
) -> NotVerified:
    """The failure of a changed history whose whole chain was recomputed."""
    writer = _history(export)
    entries = copy.deepcopy(writer.entries)
    change(entries)
    return failure_of(_lines(writer, rechained(entries)))


def test_changes_are_detected_although_the_chain_is_recomputed(
    export: Export, rechained: Callable[..., Any]
) -> None:
    def set_field(index: int, field: str, value: object) -> Change:
        return lambda entries: entries[index].update({field: value})

    cases: list[tuple[Change, int, str]] = [
        (set_field(2, "amount", "0.9"), 4, "amount is not that of the reservation"),
        (set_field(1, "amount", "0.9"), 4, "amount is not that of the reservation"),
        (
            set_field(2, "scope", {"shard": [0]}),
            4,
            "scope is not that of the reservation",
        ),
        (
            set_field(2, "event", laplace("1/8")),
            4,
            "event is not that of the reservation",
        ),
        (set_field(2, "job_id", "jb_9"), 4, "without a reservation"),
        (set_field(3, "job_id", "jb_1"), 5, "has a reservation already"),
        (set_field(1, "event", laplace("2")), 3, "costs more than the amount"),
        (
            set_field(1, "event", {**laplace("1/4"), "type": "gift/1"}),
            3,
            "price cannot be recomputed",
        ),
        (set_field(2, "at", "2026-11-20T08:00:00.000000Z"), 4, "time is before"),
        (set_field(0, "amount", "1"), 5, "are 1.5, over the cap of 1"),
        (lambda entries: entries.pop(0), 2, "must be of kind open"),
        (lambda entries: entries.insert(1, entries[0]), 3, "must be of kind open"),
        (lambda entries: entries.pop(1), 3, "without a reservation"),
        (
            lambda entries: entries.insert(3, entries[2]),
            5,
            "has ended already, by charge",
        ),
        (
            lambda entries: entries.insert(3, {**entries[2], "kind": "void"}),
            5,
            "has ended already, by charge",
        ),
        (
            lambda entries: entries.insert(3, {**entries[1], "at": entries[2]["at"]}),
            5,
            "has a reservation already",
        ),
        (lambda entries: entries.pop(7), 1, "the header states a cap of 2.5"),
    ]
    for change, line, reason in cases:
        failure = _forge(export, rechained, change)
        assert (failure.line, reason in failure.reason) == (line, True), failure


@pytest.mark.parametrize(
    ("index", "changes", "reason"),
    [
        (0, {"scope": {"shard": [0]}}, "carries a scope"),
        (0, {"event": laplace("0")}, "carries a scope, an event"),
        (0, {"job_id": "jb_1"}, "carries a scope, an event or a job"),
        (7, {"scope": {"shard": [0]}}, "carries a scope"),
        (7, {"event": {"reason": "more"}}, "carries a scope, an event"),
        (7, {"job_id": "jb_1"}, "carries a scope, an event or a job"),
        (7, {"kind": "refund"}, "kind is unknown"),
        (1, {"job_id": None}, "names no job"),
        (1, {"amount": "0", "event": laplace("0")}, "has no positive amount"),
        (1, {"amount": "1.0"}, "amount is not the shortest exact decimal"),
        (1, {"amount": "0.0000000001"}, "amount is not a multiple"),
        (1, {"scope": {"shard": {"0": 0}}}, "does not map a partition to a list"),
        (1, {"scope": {"shard": []}}, "not a sorted list of distinct cells"),
        (1, {"scope": {"shard": [1, 0]}}, "not a sorted list of distinct cells"),
        (1, {"scope": {"shard": [1, 1]}}, "not a sorted list of distinct cells"),
        (1, {"scope": {"shard": [0, True]}}, "a cell that its partition does not have"),
        (1, {"scope": {"shard": ["0"]}}, "a cell that its partition does not have"),
        (1, {"scope": {"shard": [-1, 0]}}, "a cell that its partition does not have"),
        (1, {"scope": {"shard": [3, 4]}}, "a cell that its partition does not have"),
        (1, {"scope": {"region": [0]}}, "names a partition that the header does not"),
        (1, {"scope": []}, "scope is not an object"),
        (1, {"actor": ""}, "actor is not a text"),
        (1, {"at": "2026-11-20T25:00:00.000000Z"}, "at is not an RFC 3339 time"),
        (1, {"at": "2026-11-20T09:00:01.00000Z"}, "at is not an RFC 3339 time"),
        (1, {"surplus": None}, "has not exactly the fields"),
    ],
)
def test_an_entry_out_of_form_is_refused_even_with_its_own_hash(
    export: Export,
    rechained: Callable[..., Any],
    index: int,
    changes: dict[str, Any],
    reason: str,
) -> None:
    failure = _forge(export, rechained, lambda entries: entries[index].update(changes))
    assert (failure.line, reason in failure.reason) == (index + 2, True), failure


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sequence": 5}, "sequence is 5, expected 4"),
        ({"sequence": 3}, "sequence is 3, expected 4"),
        (
            {"previous_hash": "0" * 64},
            "previous_hash is not the hash of the entry before",
        ),
    ],
)
def test_an_entry_out_of_place_is_refused_even_with_its_own_hash(
    export: Export, changes: dict[str, Any], reason: str
) -> None:
    writer = _history(export)
    entry = writer.entries[3]
    entry.update(changes)
    content = {name: value for name, value in entry.items() if name != "hash"}
    entry["hash"] = hashlib.sha256(rfc8785.dumps(content)).hexdigest()
    failure = failure_of(writer.lines())
    assert (failure.line, failure.reason) == (5, reason)


@pytest.mark.parametrize("field", ["previous_hash", "hash"])
def test_a_hash_in_capitals_is_no_hash(export: Export, field: str) -> None:
    writer = _history(export)
    writer.entries[3][field] = writer.entries[3][field].upper()
    failure = failure_of(writer.lines())
    assert (failure.line, failure.reason) == (
        5,
        f"{field} is not 64 lower-case hexadecimal digits",
    )


def test_the_cap_holds_in_every_joint_cell_and_not_on_their_sum(export: Export) -> None:
    verify(
        export(cap="1", shards=2)
        .job("a", "1", scope={"shard": [0]})
        .job("b", "1", scope={"shard": [1]})
        .lines()
    )
    overdrawn = (
        export(cap="1", shards=2).job("a", "1", scope={"shard": [0]}).job("b", "0.25")
    )
    failure = failure_of(overdrawn.lines())
    assert (failure.line, failure.reason) == (
        5,
        "charged and reserved in cell shard=0 are 1.25, over the cap of 1",
    )


def test_a_reservation_counts_before_it_is_charged(export: Export) -> None:
    assert (
        failure_of(
            export(cap="1").job("a", "0.75", None).job("b", "0.5", None).lines()
        ).line
        == 4
    )


def test_a_lowered_cap_changes_only_what_is_admitted(export: Export) -> None:
    writer = (
        export(cap="3").job("a", "2").add("cap", "1", details={"reason": "asked for"})
    )
    writer.header["cap"] = "1"
    summary = verify(writer.lines())
    assert summary.cap - summary.tightest.load == -1_000_000_000
    writer.job("b", "0.5", event=laplace("1/2"))
    assert failure_of(writer.lines()).line == 6


def test_a_raised_cap_counts_from_its_entry_on(export: Export) -> None:
    writer = (
        export(cap="1").add("cap", "2", details={"reason": "asked for"}).job("a", "2")
    )
    writer.header["cap"] = "2"
    verify(writer.lines())
    early = (
        export(cap="1").job("a", "2").add("cap", "2", details={"reason": "asked for"})
    )
    early.header["cap"] = "2"
    assert failure_of(early.lines()).line == 3


def test_the_same_key_twice_on_a_line_is_found(export: Export) -> None:
    lines = export().job("a", "1").lines()
    lines[2] = lines[2].replace(b'"amount": "1"', b'"amount": "1", "amount": "1"')
    failure = failure_of(lines)
    assert (failure.line, "duplicate key" in failure.reason) == (3, True)


def test_the_hash_is_over_the_content_and_not_over_the_bytes(export: Export) -> None:
    """Spaces and the order of keys may differ between two exports; the content may not."""
    writer = export().job("a", "1")
    shuffled = [dict(reversed(entry.items())) for entry in writer.entries]
    assert verify(_lines(writer, shuffled)) == verify(writer.lines())
    entry = writer.entries[-1]
    content = {name: value for name, value in entry.items() if name != "hash"}
    assert hashlib.sha256(rfc8785.dumps(content)).hexdigest() == entry["hash"]
