"""Replay of populations' exports: the sums, the refusals, and the checks that the
members' exports add.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import PopulationSummary, verify
from tests.support.export_writers import chained
from tests.support.set_limits import SetLimit

People = Callable[..., Any]
HASHES = [
    {"name": "shard", "kind": "hash", "cells": 3},
    {"name": "half", "kind": "hash", "cells": 2},
]


def checked(
    population: Any, *members: str, lines: list[bytes] | None = None
) -> PopulationSummary:
    ledgers = [
        MemberLedger(population.members[name].lines(), (), file=f"{name}.jsonl")
        for name in members
    ]
    return verify(population.lines() if lines is None else lines, ledgers)


def failure(population: Any, *members: str) -> NotVerified:
    with pytest.raises(NotVerified) as failed:
        checked(population, *members)
    return failed.value


def test_the_largest_cells_of_members_are_added_up(people: People) -> None:
    population = people().join("ds_a", shards=2).join("ds_b")
    population.job("ds_a", "jb_1", "1", scope={"shard": [0]}).job(
        "ds_a", "jb_2", "0.75", scope={"shard": [1]}
    )
    population.job("ds_b", "jb_3", "2", "void").job(
        "ds_b", "jb_4", "0.5", "expire"
    ).job("ds_b", "jb_5", "1.5", None)
    summary = checked(population)
    assert summary.kinds == {"open": 1, "join": 2, "load": 7}
    assert {name: member.load for name, member in summary.members.items()} == {
        "ds_a": 10**9,
        "ds_b": 15 * 10**8,
    }
    assert (summary.together, summary.cap, summary.printable) == (
        25 * 10**8,
        3 * 10**9,
        3 * 10**9,
    )
    assert (summary.unit, summary.compared) == (("add_remove", None), {})


def test_members_are_compared_entry_by_entry(people: People) -> None:
    population = people().join("ds_a", partitions=HASHES).join("ds_b")
    population.job("ds_a", "jb_1", "1", scope={"shard": [0], "half": [0]})
    population.job("ds_a", "jb_2", "0.5", "void", scope={"half": [0, 1]}).job(
        "ds_b", "jb_3", "1"
    )
    population.job("ds_a", "jb_4", "0.75", None, scope={"shard": [0, 1]})
    summary = checked(population, "ds_b", "ds_a")
    assert set(summary.compared) == {"ds_a", "ds_b"}
    assert summary.compared["ds_a"].ledger.tightest.load == 175 * 10**7
    assert [
        (compared.n_bounds, compared.n_later) for compared in summary.compared.values()
    ] == [(0, 0)] * 2


def test_spend_before_a_late_join_counts_and_restricts_later_admissions(
    people: People,
) -> None:
    population = (
        people()
        .join("ds_a")
        .declare("ds_b")
        .job("ds_b", "jb_0", "2.5")
        .job("ds_b", "jb_1", "0.25", None)
    )
    population.job("ds_a", "jb_2", "2").join("ds_b")
    summary = checked(population, "ds_a", "ds_b")
    assert (summary.together, summary.printable) == (475 * 10**7, 475 * 10**7), (
        "the sum as it stands"
    )
    population.step("ds_b", "void", "jb_1", "0.25")
    assert checked(population, "ds_b").together == 45 * 10**8, (
        "giving back is legal while the sum is over the cap"
    )
    population.job("ds_a", "jb_3", "0.25", None)
    found_bad = failure(population)
    assert found_bad.line == 7
    assert (
        found_bad.reason == "the loads of the members add up to 4.75, over the cap of 3"
    )


def test_a_closed_pure_population_prints_the_larger_of_its_highest_cap_and_its_loads(
    people: People,
) -> None:
    population = people().join("ds_a").declare("ds_b").job("ds_b", "jb_0", "2.5")
    population.job("ds_a", "jb_1", "1").cap("0")
    assert checked(population).printable == 3 * 10**9, (
        "what was lost may have reached it"
    )
    population.join("ds_b")
    assert checked(population).printable == 35 * 10**8
    assert checked(population, "ds_a", "ds_b").printable == 35 * 10**8


def test_nothing_is_admitted_over_the_cap_even_where_no_largest_cell_grows(
    people: People,
) -> None:
    """Only the member's ledger distinguishes held amounts from amounts that were given
    back.
    """
    population = (
        people(cap="2")
        .join("ds_a", shards=2)
        .declare("ds_b")
        .job("ds_b", "jb_0", "1.5")
        .join("ds_b")
    )
    population.job("ds_a", "jb_1", "0.5", scope={"shard": [0]})
    population.cap("1").job("ds_a", "jb_2", "0.25", scope={"shard": [1]})
    assert checked(population).together == 2 * 10**9
    assert (
        failure(population, "ds_a").reason
        == "the loads of the members add up to 2, over the cap of 1"
    )


def test_the_cap_in_force_counts_at_each_step(people: People) -> None:
    population = (
        people(cap="1")
        .join("ds_a")
        .job("ds_a", "jb_1", "1")
        .cap("2")
        .job("ds_a", "jb_2", "1")
        .cap("0.5")
    )
    assert checked(population, "ds_a").cap == 5 * 10**8
    population.job("ds_a", "jb_3", "0.25", "void")
    assert (
        failure(population).reason
        == "the loads of the members add up to 2.25, over the cap of 0.5"
    )


@pytest.mark.parametrize(
    ("accountant", "delta"), [("zcdp", "0.00001"), ("gdp", "0.00001")]
)
def test_the_highest_cap_follows_what_is_held(
    people: People, accountant: str, delta: str
) -> None:
    population = (
        people(cap="3", accountant=accountant, delta=delta).join("ds_a").cap("2")
    )
    assert checked(population).printable == 2 * 10**12, "nothing was held under the 3"
    population.job("ds_a", "jb_1", "1", "void").cap("1.5")
    assert checked(population).printable == 15 * 10**11, "what was held was given back"
    population.job("ds_a", "jb_2", "1", None).cap("1")
    assert checked(population, "ds_a").printable == 15 * 10**11
    population.declare("ds_b", cap="2.5").job("ds_b", "jb_3", "0.5").join("ds_b").join(
        "ds_c", cap="8"
    )
    summary = checked(population, "ds_a", "ds_b", "ds_c")
    assert (summary.printable, summary.together) == (4 * 10**12, 15 * 10**11), (
        "the late one brings its own cap, ds_c none"
    )


def test_a_population_has_the_unit_column_of_its_members(people: People) -> None:
    population = people().join("ds_a", max_rows=2).join("ds_b", max_rows=5)
    population.job("ds_a", "jb_1", "0.5").job("ds_b", "jb_2", "1.25")
    assert checked(population, "ds_a", "ds_b").unit == ("add_remove", "person")


def test_charges_for_external_mechanisms_are_loads(people: People) -> None:
    word = {
        "attested_by": "key_ann",
        "declared": {"adjacency": "add_remove", "epsilon": "1"},
    }
    population = (
        people().join("ds_a").job("ds_a", "rs_1", "1", event=None, details=word)
    )
    assert checked(population, "ds_a").compared["ds_a"].ledger.attested == {
        "key_ann": 1
    }


def test_a_member_that_counts_another_unit_is_refused(people: People) -> None:
    for options in ({"max_rows": 2}, {"adjacency": "label"}):
        result = failure(people().join("ds_a").join("ds_b", **options))
        assert (result.line, result.reason) == (
            4,
            "ds_b has another adjacency or unit than the members before it",
        )


def test_members_that_spell_units_otherwise_are_refused(people: People) -> None:
    """Patient 007 of one member would not be patient 7 of the other."""

    def unit(**form: str) -> dict[str, Any]:
        return {"privacy_unit": {"column": "patient", "max_rows": 2, **form}}

    text, integer, none = {"form": "text"}, {"form": "integer"}, dict[str, str]()
    for forms in ((text, integer), (text, none), (none, text)):
        one, other = (unit(**form) for form in forms)
        population = people().join("ds_a", **one).join("ds_b", **one)
        assert len(checked(population, "ds_a", "ds_b").compared) == 2
        population = people().join("ds_a", **one).join("ds_b", **other)
        refused = failure(population, "ds_a", "ds_b")
        assert "in another form than other members" in refused.reason


def test_a_second_join_of_a_member_fails_verification(people: People) -> None:
    result = failure(people().join("ds_a").join("ds_a"))
    assert (result.line, result.reason) == (4, "ds_a is a member already")


def test_an_export_may_be_older_than_those_of_its_members(people: People) -> None:
    population = people().join("ds_a").job("ds_a", "jb_1", "1", None)
    early = population.lines()
    population.step("ds_a", "charge", "jb_1", "1").job("ds_a", "jb_2", "0.5", "void")
    assert checked(population, "ds_a", lines=early).compared["ds_a"].n_later == 2
    assert checked(population, "ds_a").compared["ds_a"].n_later == 0


def test_an_entry_of_the_same_time_as_the_last_line_may_be_later(
    people: People,
) -> None:
    """The writer of an entry holds the population's lock, so the entry is no older than
    the last line.
    """
    population = people().join("ds_a").join("ds_b")
    population.clock = population.members["ds_a"].clock = itertools.repeat(9)
    population.job("ds_a", "jb_1", "1", None)
    early = population.lines()
    population.job("ds_a", "jb_2", "1", None)
    assert checked(population, "ds_a", lines=early).compared["ds_a"].n_later == 1


def test_a_members_export_that_is_older_was_cut(people: People) -> None:
    population = (
        people().join("ds_a").job("ds_a", "jb_1", "1").job("ds_a", "jb_2", "1", None)
    )
    early = population.members["ds_a"].lines()[:-1]
    with pytest.raises(NotVerified) as failed:
        verify(population.lines(), [MemberLedger(early, (), file="a.jsonl")])
    assert failed.value == NotVerified(
        5,
        "the export was truncated: it ends with entry 3, the population names entry 4",
        "a.jsonl",
    )


def test_a_members_own_ledger_must_hold(people: People) -> None:
    population = (
        people(cap="9")
        .join("ds_a", cap="1")
        .job("ds_a", "jb_1", "0.75")
        .job("ds_a", "jb_2", "0.75")
    )
    result = failure(population, "ds_a")
    assert (result.line, result.file) == (5, "ds_a.jsonl")
    assert "over the cap of 1" in result.reason


def test_an_export_of_a_dataset_that_never_joined_is_no_members(people: People) -> None:
    population = people().join("ds_a").declare("ds_b")
    assert failure(population, "ds_b") == NotVerified(
        1, "this dataset is not a member of the population", "ds_b.jsonl"
    )


def test_a_member_that_sets_delta_aside_is_refused(people: People) -> None:
    population = people(accountant="zcdp", delta="0.0001").join(
        "ds_a", delta_set_aside="0.00001"
    )
    assert (
        failure(population, "ds_a").reason
        == "ds_a sets a part of its delta aside, which the sum over members does not cover"
    )


def test_a_load_past_the_limit_of_work_is_compared_with_a_bound(
    people: People, set_limit: SetLimit
) -> None:
    """A load is right if it is at least a bound: then it is at least the largest load,
    too.
    """
    population = people(cap="90").join("ds_a", cap="90", partitions=HASHES)
    boxes = [
        {"shard": [shard], "half": [half]} for shard in range(3) for half in range(2)
    ]
    for number, scope in enumerate(boxes):
        population.step("ds_a", "reserve", f"jb_1{number}", "0.25", scope=scope)
    population.step("ds_a", "reserve", "jb_2", "1")
    set_limit("MAX_WORK", 0)
    assert checked(population, "ds_a").compared["ds_a"].n_bounds == 0, (
        "an elimination is within its limit"
    )
    set_limit("MAX_ELIMINATION_WORK", 8)
    assert population.entries[-1]["amount"] == "1.25"
    assert failure(population, "ds_a").reason.startswith(
        "the scopes overlap in too many ways"
    )
    # as the service states a bound: two boxes lie in one shard
    population.entries[-1]["amount"] = "1.5"
    population.entries = chained(population.entries)
    compared = checked(population, "ds_a").compared["ds_a"]
    assert (compared.n_bounds, compared.ledger.tightest.is_exact) == (1, False)


def test_a_load_is_no_older_than_the_entry_that_it_names(people: People) -> None:
    """The two entries are written together, at the later of the two clocks."""
    population = people().join("ds_a").join("ds_b")
    population.members["ds_a"].clock, population.clock = iter([50]), iter([50])
    population.job("ds_a", "jb_1", "1", None)
    assert checked(population, "ds_a").together == 10**9
    population.members["ds_b"].clock, population.clock = iter([52]), iter([51])
    population.job("ds_b", "jb_2", "1", None)
    assert checked(population, "ds_a").together == 2 * 10**9, (
        "the population's own export cannot show it"
    )
    result = failure(population, "ds_b")
    assert (result.line, result.reason) == (6, "entry 2 of ds_b is newer than its load")


def test_an_entry_is_no_older_than_the_line_before_its_load(people: People) -> None:
    population = people().join("ds_a").job("ds_a", "jb_1", "1", None)
    population.members["ds_a"].clock, population.clock = (
        iter([60, 61]),
        iter([60, 61, 62, 63]),
    )
    population.cap("2").job("ds_a", "jb_2", "0.5", None)
    assert checked(population, "ds_a").together == 15 * 10**8, "of the same moment"
    population.cap("2.5").job("ds_a", "jb_3", "0.5", None)
    result = failure(population, "ds_a")
    assert (result.line, result.reason) == (
        8,
        "entry 4 of ds_a is older than the entry before its load",
    )
