"""Tampering with a population's export: values changed, removed or added; lines
dropped, doubled or moved.

The history has every kind of entry. The members' exports detect a forger who recomputes
the chain, and a checkpoint detects a forger who changes the members' exports as well.
"""

import copy
import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest

from app.ledger import checkpoints
from grovekeeper_verifier.checkpoints import ORIGIN, Checkpoint
from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import verify
from tests.support.subtrees import subtrees
from tests.support.tampering import changed, every_change, places

People = Callable[..., Any]
Lines = list[dict[str, Any]]
Rechained = Callable[[Lines], Lines]
SHARDS = [
    {"name": "shard", "kind": "hash", "cells": 3},
    {"name": "half", "kind": "hash", "cells": 2},
]
AT = "2026-11-20T10:00:00.000000Z"


@pytest.fixture
def history(people: People) -> Any:
    """Two initial members and a late member, every kind of entry, a cap that falls and
    rises.
    """
    population = people(cap="3", accountant="zcdp", delta="0.00001")
    population.join("ds_a", max_rows=2, partitions=SHARDS).declare(
        "ds_late", max_rows=2
    )
    population.job("ds_a", "jb_1", "1.5", scope={"shard": [0]}).job(
        "ds_late", "jb_2", "0.75"
    )
    population.join("ds_b", max_rows=3).job("ds_b", "jb_3", "0.5", "void").cap("2.5")
    population.job("ds_b", "jb_4", "0.75", None).join("ds_late").cap("4")
    population.job("ds_a", "jb_5", "0.5", "expire", scope={"shard": [0], "half": [1]})
    population.job("ds_late", "jb_6", "0.5", None).job(
        "ds_a", "jb_7", "0.5", scope={"shard": [1, 2]}
    )
    return population.step("ds_b", "charge", "jb_4", "0.75")


def failure(
    history: Any,
    entries: Lines,
    *members: str,
    checkpoints: Sequence[Checkpoint] = (),
    header: Any = None,
) -> NotVerified | None:
    """The failure of changed entries beside the true exports of some members."""
    lines = [
        json.dumps(line).encode() + b"\n"
        for line in (header or history.header, *entries)
    ]
    try:
        verify(
            lines,
            [
                MemberLedger(history.members[name].lines(), (), file=name)
                for name in members
            ],
            checkpoints,
        )
    except NotVerified as failed:
        return failed
    return None


def checkpoint(history: Any) -> Checkpoint:
    return Checkpoint(
        f"{ORIGIN}pop_test",
        len(history.entries),
        checkpoints.root_of(len(history.entries), subtrees(history.entries)),
        AT,
    )


def test_the_history_is_verified_and_rich(history: Any) -> None:
    assert (
        failure(
            history,
            history.entries,
            "ds_a",
            "ds_b",
            "ds_late",
            checkpoints=[checkpoint(history)],
        )
        is None
    )
    assert [entry["kind"] for entry in history.entries] == (
        [
            "open",
            "join",
            "load",
            "join",
            "load",
            "load",
            "cap",
            "load",
            "join",
            "cap",
            "load",
            "load",
            "load",
            "load",
        ]
    )


def test_every_change_of_an_entry_is_detected_on_its_line(
    history: Any, step: int
) -> None:
    for index, entry in enumerate(history.entries):
        for path, forged in every_change(entry, step=step):
            failed = failure(
                history,
                [*history.entries[:index], forged, *history.entries[index + 1 :]],
            )
            assert failed is not None, (index, path, forged)
            assert (failed.line, failed.file) == (index + 2, None), (path, failed)


def test_every_change_of_the_header_is_detected_before_the_second_entry(
    history: Any,
) -> None:
    for path in places(history.header):
        for forged in changed(history.header, path):
            failed = failure(history, history.entries, header=forged)
            assert failed is not None, (path, forged)
            assert failed.line in (1, 2), (path, failed)


def test_with_a_recomputed_chain_only_changes_without_effect_on_sums_pass(
    history: Any, rechained: Rechained, step: int
) -> None:
    """Actors, times and reasons pass this check. A checkpoint detects changes of them."""
    passed, signed = set(), checkpoint(history)
    for index, entry in enumerate(history.entries):
        for path, forged in every_change(entry, step=step):
            if path[0] in ("hash", "previous_hash", "sequence"):
                continue  # recomputed with the chain
            entries = rechained(
                [*history.entries[:index], forged, *history.entries[index + 1 :]]
            )
            failed = failure(history, entries, "ds_a", "ds_b", "ds_late")
            if failed is None:
                passed.add((entry["kind"], *path))
            else:
                is_at = (
                    failed.file is not None
                    or failed.line >= index + 2
                    or entry["kind"] == "cap"
                )
                assert is_at, (path, failed)
            assert failure(history, entries, checkpoints=[signed]) is not None, (
                index,
                path,
                forged,
            )
    assert passed <= {
        *(
            (kind, name)
            for kind in ("open", "join", "load", "cap")
            for name in ("actor", "at")
        ),
        ("cap", "details", "reason"),
        ("cap", "amount"),
        ("open", "amount"),
    }
    assert {("load", "actor"), ("cap", "details", "reason")} <= passed, (
        "otherwise the members alone would do"
    )


def test_a_dropped_line_is_detected_despite_a_recomputed_chain(
    history: Any, rechained: Rechained
) -> None:
    """A cap that was lowered and raised again is a possible history; the last load may
    be still to come.
    """
    unseen = set()
    for index in range(len(history.entries)):
        rest = rechained([*history.entries[:index], *history.entries[index + 1 :]])
        if failure(history, rest, "ds_a", "ds_b", "ds_late") is None:
            unseen.add(index)
    kinds = [entry["kind"] for entry in history.entries]
    assert unseen == {kinds.index("cap"), len(kinds) - 1}


def test_lines_doubled_or_moved_are_found_with_a_new_chain(
    history: Any, rechained: Rechained
) -> None:
    entries = history.entries
    for index in range(len(entries)):
        doubled = [*entries[: index + 1], *entries[index:]]
        moved = [
            *entries[:index],
            *entries[index + 1 : index + 2],
            entries[index],
            *entries[index + 2 :],
        ]
        for forged in (doubled, moved) if index + 1 < len(entries) else (doubled,):
            is_cap = forged is doubled and entries[index]["kind"] == "cap"
            assert is_cap or failure(history, rechained(forged)) is not None, index


def test_a_truncated_export_contradicts_a_checkpoint(history: Any) -> None:
    signed = checkpoint(history)
    for kept in range(1, len(history.entries)):
        entries = history.entries[:kept]
        cap = [
            entry["amount"] for entry in entries if entry["kind"] in ("open", "cap")
        ][-1]
        header = {**history.header, "cap": cap}
        failed = failure(history, entries, checkpoints=[signed], header=header)
        covers = (
            f"it ends with entry {kept}, a checkpoint covers {len(history.entries)}"
        )
        assert failed == NotVerified(kept + 2, f"the export was truncated: {covers}")


@pytest.mark.parametrize("index", [2, 4, 5, 7, 10, 11, 12, 13])
@pytest.mark.parametrize("change", ["-1/4", "1/4"])
def test_a_load_that_is_not_the_largest_cell_is_found_on_its_line(
    history: Any, rechained: Rechained, index: int, change: str
) -> None:
    entries = copy.deepcopy(history.entries)
    assert entries[index]["kind"] == "load"
    true = Fraction(entries[index]["amount"])
    entries[index]["amount"] = f"{float(abs(true + Fraction(change))):g}"
    failed = failure(history, rechained(entries), "ds_a", "ds_b", "ds_late")
    if (index, change) == (10, "1/4"):
        assert failed is None, "jobs restrict two partitions: there a bound is legal"
        return
    assert failed is not None
    assert (failed.line, failed.file) == (index + 2, None)


def test_an_understated_load_is_named_with_the_true_one(
    people: People, rechained: Rechained
) -> None:
    population = (
        people()
        .join("ds_a")
        .job("ds_a", "jb_1", "2")
        .join("ds_b")
        .job("ds_b", "jb_2", "1", None)
    )
    entries = copy.deepcopy(population.entries)
    entries[2]["amount"] = "1.5"
    failed = failure(population, rechained(entries), "ds_a")
    assert failed == NotVerified(
        4, "the load is 1.5, less than the 2 in the ledger of ds_a"
    )
    assert failure(population, rechained(entries), "ds_b") is None, (
        "the other one's ledger cannot tell"
    )


def test_a_load_that_is_missing_in_the_middle_is_found_where_the_next_one_stands(
    people: People, rechained: Rechained
) -> None:
    population = (
        people()
        .join("ds_a")
        .job("ds_a", "jb_1", "1")
        .job("ds_a", "jb_2", "0.5")
        .join("ds_b")
    )
    entries = [entry for entry in population.entries if entry["job_id"] != "jb_1"]
    failed = failure(population, rechained(entries), "ds_a")
    assert failed == NotVerified(
        4, "entry 2 of ds_a, of kind reserve, has no load in the population"
    )


def test_a_load_that_is_missing_at_the_end_is_found_once_anything_follows(
    people: People, rechained: Rechained
) -> None:
    population = people().join("ds_a").job("ds_a", "jb_1", "1").join("ds_b")
    entries = [entry for entry in population.entries if entry["kind"] != "load"]
    failed = failure(population, rechained(entries), "ds_a")
    assert failed == NotVerified(
        4, "entry 2 of ds_a, of kind reserve, has no load in the population"
    )


def test_a_load_for_a_charge_or_for_another_job_is_found(
    people: People, rechained: Rechained
) -> None:
    population = people().join("ds_a").job("ds_a", "jb_1", "1")
    charge = population.members["ds_a"].entries[-1]
    more = copy.deepcopy(population.entries[-1])
    more["details"]["member"].update(sequence=charge["sequence"], hash=charge["hash"])
    failed = failure(population, rechained([*population.entries, more]), "ds_a")
    assert failed == NotVerified(
        5, "it names an entry of kind charge of ds_a, and such entries change no load"
    )
    other = {**population.entries[-1], "job_id": "jb_9"}
    failed = failure(population, rechained([*population.entries[:-1], other]), "ds_a")
    assert failed == NotVerified(4, "job_id is not that of entry 2 of ds_a")


def test_the_export_of_another_history_of_the_same_dataset_is_found(
    people: People,
) -> None:
    population, other = (
        people().join("ds_a").job("ds_a", "jb_1", amount) for amount in ("1", "2")
    )
    population.members["ds_a"] = other.members["ds_a"]
    failed = failure(population, population.entries, "ds_a")
    assert failed == NotVerified(
        4, "the hash that it names is not that of entry 2 of ds_a"
    )


def test_a_grown_load_where_something_was_given_back_is_found(
    people: People, rechained: Rechained
) -> None:
    """Otherwise a bound could hide an admission. This member may state bounds, but they
    still may not grow.
    """
    population = people(cap="9").join("ds_a", partitions=SHARDS)
    population.job("ds_a", "jb_1", "1", "void", scope={"shard": [0], "half": [0]})
    population.job("ds_a", "jb_2", "0.5", scope={"shard": [0], "half": [0]}).step(
        "ds_a", "reserve", "jb_3", "0.25"
    )
    population.step("ds_a", "void", "jb_3", "0.25")
    entries = copy.deepcopy(population.entries)
    entries[-1]["amount"] = "3"
    failed = failure(population, rechained(entries), "ds_a")
    assert failed == NotVerified(
        len(entries) + 1, "the load of ds_a grew at a void or expire"
    )


def test_a_bound_is_legal_where_several_partitions_are_restricted_and_never_over_the_highest_cap(
    people: People, rechained: Rechained
) -> None:
    entangled = people(cap="9").join("ds_a", partitions=SHARDS)
    entangled.job("ds_a", "jb_1", "1", scope={"shard": [0], "half": [0]})
    simple = (
        people(cap="9")
        .join("ds_a", partitions=SHARDS)
        .job("ds_a", "jb_1", "1", scope={"shard": [0]})
    )
    for population, stated, holds in (
        (entangled, "3", True),
        (entangled, "3.25", False),
        (simple, "1.25", False),
    ):
        entries = copy.deepcopy(population.entries)
        entries[-1]["amount"] = stated
        failed = failure(population, rechained(entries), "ds_a")
        assert (failed is None) is holds
        assert holds or failed == NotVerified(
            4, f"the load is {stated}, more than the 1 in the ledger of ds_a"
        )


@pytest.mark.parametrize(
    ("name", "other"),
    [("highest_cap", "2.75"), ("adjacency", "label"), ("unit_column", "patient")],
)
def test_the_facts_of_a_join_are_compared_with_the_members_ledger(
    people: People, rechained: Rechained, name: str, other: str
) -> None:
    population = people().join("ds_a")
    entries = copy.deepcopy(population.entries)
    entries[-1]["details"]["member"][name] = other
    assert failure(population, rechained(entries)) is None, (
        "the chain alone cannot tell"
    )
    failed = failure(population, rechained(entries), "ds_a")
    assert failed == NotVerified(3, f"{name} is not that of the ledger of ds_a")


@pytest.mark.parametrize(
    ("facts", "named"),
    [({"delta": "0.001"}, "delta"), ({"accountant": "gdp"}, "accountant")],
)
def test_a_member_of_another_accountant_or_delta_is_found(
    people: People, facts: dict[str, str], named: str
) -> None:
    population = people(accountant="zcdp", delta="0.0001").join("ds_a", **facts)
    assert failure(population, population.entries) is None, (
        "a join does not repeat them"
    )
    failed = failure(population, population.entries, "ds_a")
    assert failed == NotVerified(3, f"{named} is not that of the ledger of ds_a")


def test_a_load_of_a_dataset_that_is_no_member_is_found(
    people: People, rechained: Rechained
) -> None:
    population = people().join("ds_a").join("ds_b").job("ds_b", "jb_1", "1")
    entries = [
        entry
        for entry in population.entries
        if entry["details"].get("member", {}).get("highest_cap") is None
    ]
    assert failure(population, rechained(entries)) == NotVerified(
        3, "ds_b is not a member"
    )


def test_a_join_with_more_than_the_highest_cap_is_found(
    people: People, rechained: Rechained
) -> None:
    population = (
        people(cap="9").declare("ds_a", cap="1").job("ds_a", "jb_1", "1").join("ds_a")
    )
    assert failure(population, population.entries, "ds_a") is None, "all of it is legal"
    entries = copy.deepcopy(population.entries)
    entries[-1]["amount"] = "1.000000001"
    assert failure(population, rechained(entries)) == NotVerified(
        3, "the load of ds_a is above its highest cap"
    )
