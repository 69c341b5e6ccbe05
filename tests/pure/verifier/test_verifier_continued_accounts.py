"""An account that continues the account of an erased dataset: its opening load, alone
and beside the erased account.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grovekeeper_verifier import canonical_json
from grovekeeper_verifier.chain import Broken, check_stated_state
from grovekeeper_verifier.dataset_export import BOUND_FIELDS, SET_ASIDE
from grovekeeper_verifier.dataset_replay import (
    STATE_FORM,
    Reading,
    Summary,
    read,
    verify,
)
from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.main import main
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import verify as verify_population
from tests.support.export_writers import NANO_EVENT, chained
from tests.support.tampering import changed, places

Export = Callable[..., Any]
Rechained = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
ZCDP = {"accountant": "zcdp", "delta": "0.0001", "delta_set_aside": "0.00002"}
WORD = {
    "attested_by": "key_ann",
    "description": "another team's training",
    "per": "row",
}
DP_SGD = {
    **WORD,
    "declared": {"adjacency": "add_remove", "epsilon": "0.1", "delta": "0.00001"},
    "delta": "0.00001",
}


def _continued(erased: Any, *, highest_cap: str, **facts: str) -> dict[str, Any]:
    last = erased.entries[-1]
    named = {
        "dataset": erased.header["dataset"],
        "sequence": last["sequence"],
        "hash": last["hash"],
    }
    return {"continues": {**named, "highest_cap": highest_cap, **facts}}


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json.dumps(value)).hexdigest()


@pytest.fixture
def erased(export: Export) -> Any:
    """An account that spent 1.25 in its tightest cell, under caps of 3 and 2."""
    writer = (
        export(dataset="ds_erased", shards=3)
        .job("jb_1", "0.75")
        .job("jb_2", "0.5", scope={"shard": [1]})
    )
    writer.job("jb_3", "1", "void").job("jb_4", "0.25", scope={"shard": [2]})
    writer.add("cap", "2", details={"reason": "less"})
    writer.header["cap"] = "2"
    return writer


@pytest.fixture
def history(export: Export, erased: Any) -> Any:
    """The account that continues it under a cap of 2, spent to the cap."""
    writer = export(cap="2", shards=2)
    writer.add("load", "1.25", details=_continued(erased, highest_cap="3"))
    return writer.job("jb_5", "0.75", scope={"shard": [0]}).job(
        "jb_6", "0.5", scope={"shard": [1]}
    )


def _opened(writer: Any) -> Reading[Any]:
    return read(writer.lines(), (), file="erased.jsonl")


def _verified(writer: Any, *erased: Any) -> Summary:
    return verify(writer.lines(), (), [_opened(each) for each in erased])


def _failure(
    entries: list[dict[str, Any]], header: dict[str, Any], *erased: Any
) -> NotVerified | None:
    lines = [json.dumps(line).encode() + b"\n" for line in (header, *entries)]
    try:
        verify(lines, (), [_opened(each) for each in erased])
    except NotVerified as failure:
        return failure
    return None


def test_an_opening_load_counts_in_every_cell_and_is_compared_with_the_erased_account(
    history: Any, erased: Any
) -> None:
    summary = _verified(history, erased)
    assert (summary.tightest.charged, summary.highest_cap) == (2 * 10**9, 3 * 10**9)
    assert summary.compared is not None
    assert summary.compared.header.dataset == "ds_erased"
    over = history.job("jb_7", "0.25", None, scope={"shard": [0]})
    failure = _failure(over.entries, over.header)
    assert failure is not None
    assert "over the cap" in failure.reason


def test_every_change_of_an_opening_load_is_detected_beside_the_erased_account(
    history: Any, erased: Any, rechained: Rechained
) -> None:
    """The forger recomputes the chain. The actor and the time of the entry have no
    other witness than a checkpoint.
    """
    opened, load, *_ = history.entries
    n_forged = 0
    for path in places(load):
        if path[0] in ("hash", "previous_hash", "sequence", "actor", "at"):
            continue
        for forged in changed(load, path):
            failure = _failure(rechained([opened, forged]), history.header, erased)
            assert failure is not None, (path, forged)
            # Another name is found where the export of the erased dataset begins, which
            # nobody continues.
            of_file = (
                (1, "erased.jsonl")
                if path[-1] == "dataset" and failure.file
                else (3, None)
            )
            assert (failure.line, failure.file) == of_file, path
            n_forged += 1
    assert n_forged > 60


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({"adjacency": "label"}, "adjacency"),
        ({"max_rows": 2}, "unit column"),
        ({"accountant": "zcdp", "delta": "0.0001"}, "accountant"),
    ],
)
def test_an_account_of_other_terms_continues_none(
    export: Export, erased: Any, facts: dict[str, Any], names: str
) -> None:
    other = export(cap="1", **facts).add(
        "load", "1.25", details=_continued(erased, highest_cap="3")
    )
    failure = _failure(other.entries, other.header, erased)
    assert failure is not None
    assert f"another {names}" in failure.reason


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({"delta": "0.0002"}, "delta"),
        ({"delta_set_aside": "0.00003"}, "delta_set_aside"),
    ],
)
def test_an_account_of_another_delta_continues_none(
    export: Export, facts: dict[str, Any], names: str
) -> None:
    """What was charged would count against another part of δ."""
    erased = export(dataset="ds_erased", cap="0.1", **ZCDP)
    erased.job("rs_1", "0.01", event=None, details=DP_SGD)
    details = _continued(erased, highest_cap="0.1", delta="0.00001")
    other = export(cap="0.1", **{**ZCDP, **facts})
    other.add("load", "0.01", details=details)
    failure = _failure(other.entries, other.header, erased)
    assert failure is not None
    assert f"states another {names} than" in failure.reason


@pytest.mark.parametrize("form", ["integer", None])
def test_an_account_that_spells_units_otherwise_continues_none(
    export: Export, form: str | None
) -> None:
    """007 and 7 are two people in one form and one in the other."""
    terms: dict[str, Any] = {
        "privacy_unit": {"column": "person", "max_rows": 2, "form": "text"}
    }
    erased = export(dataset="ds_erased", cap="3", **terms).job("jb_1", "1")
    details = _continued(erased, highest_cap="3")
    same = export(cap="3", **terms).add("load", "1", details=details)
    assert _failure(same.entries, same.header, erased) is None
    unit: dict[str, Any] = {"column": "person", "max_rows": 2}
    if form is not None:
        unit["form"] = form
    other = export(cap="3", privacy_unit=unit).add("load", "1", details=details)
    failure = _failure(other.entries, other.header, erased)
    assert failure is not None
    assert "another form of the unit column" in failure.reason


def test_an_opening_load_stands_after_the_opening_and_nowhere_else(
    export: Export, erased: Any, rechained: Rechained
) -> None:
    details = _continued(erased, highest_cap="3")
    late = export(cap="2").job("jb_1", "0.5").add("load", "1.25", details=details)
    twice = (
        export(cap="2")
        .add("load", "1.25", details=details)
        .add("load", "1.25", details=details)
    )
    for writer, line in ((late, 5), (twice, 4)):
        failure = _failure(writer.entries, writer.header)
        assert failure is not None
        assert (failure.line, "follows the opening" in failure.reason) == (line, True)


def test_a_cap_above_the_erased_accounts_is_no_continuation(
    export: Export, erased: Any
) -> None:
    raised = export(cap="3.5").add(
        "load", "1.25", details=_continued(erased, highest_cap="3")
    )
    failure = _failure(raised.entries, raised.header)
    assert failure is not None
    assert "without a reason" in failure.reason


def test_an_erased_account_that_has_more_entries_or_open_reservations_is_not_the_one_that_was_continued(
    history: Any, erased: Any
) -> None:
    for end in ("charge", "void", None):
        longer = erased.job(f"jb_{end}", "0.25", end)
        failure = _failure(history.entries, history.header, longer)
        assert failure is not None
        assert failure.line == 3


def test_no_reservation_of_an_erased_account_is_open_in_any_cell(
    export: Export,
) -> None:
    """One that is charged later would be a loss that nobody continues."""
    for end, verifies in (("void", True), (None, False)):
        erased = export(dataset="ds_erased", shards=2)
        erased.job("jb_1", "1", scope={"shard": [0]})
        erased.job("jb_2", "0.25", end, scope={"shard": [1]})
        details = _continued(erased, highest_cap="3")
        writer = export(shards=2).add("load", "1", details=details)
        failure = _failure(writer.entries, writer.header, erased)
        assert (failure is None) is verifies
        assert verifies or "were not given back" in str(failure)


def test_an_opening_load_is_at_least_the_load_of_an_account_with_several_partitions(
    export: Export,
) -> None:
    """The service may state a bound above the load there, and never less."""
    partitions = [{"name": name, "kind": "hash", "cells": 2} for name in ("a", "b")]
    for stated, verifies in (("0.99", False), ("1", True), ("1.25", True)):
        erased = export(dataset="ds_erased", partitions=partitions)
        erased.job("jb_1", "0.5", scope={"a": [0]})
        erased.job("jb_2", "0.5", scope={"b": [1]})
        erased.job("jb_3", "0.25", scope={"a": [1], "b": [0]})
        details = _continued(erased, highest_cap="3")
        writer = export(partitions=partitions).add("load", stated, details=details)
        failure = _failure(writer.entries, writer.header, erased)
        assert (failure is None) is verifies, stated
        assert verifies or "ends with 1" in str(failure)


def test_a_charged_delta_goes_on_too(export: Export, rechained: Rechained) -> None:
    erased = export(dataset="ds_erased", cap="0.1", **ZCDP).job(
        "rs_1", "0.01", event=None, details=DP_SGD
    )
    erased.job("jb_2", "0.02", event=None, details=DP_SGD)
    facts = {"highest_cap": "0.1", "delta": "0.00002"}
    writer = export(cap="0.1", **ZCDP).add(
        "load", "0.03", details=_continued(erased, **facts)
    )
    assert _verified(writer, erased).opening_load == 3 * 10**10
    full = writer.job("rs_3", "0.01", event=None, details=DP_SGD)
    failure = _failure(full.entries, full.header)
    assert failure is not None
    assert "delta set aside" in failure.reason
    for delta in ("0.00001", "0.000021", "0"):
        forged = export(cap="0.1", **ZCDP).add(
            "load", "0.03", details=_continued(erased, highest_cap="0.1", delta=delta)
        )
        assert _failure(forged.entries, forged.header, erased) is not None, delta


def test_a_stated_state_has_the_charged_delta_that_goes_on(export: Export) -> None:
    """A process that starts at the state would charge a δ that it leaves out a second
    time.
    """
    erased = export(dataset="ds_erased", cap="0.1", **ZCDP).job(
        "rs_1", "0.01", event=None, details=DP_SGD
    )
    for delta, verifies in (("0.00001", True), ("0", False)):
        writer = export(cap="0.1", **ZCDP)
        writer.add(
            "load",
            "0.01",
            details=_continued(erased, highest_cap="0.1", delta="0.00001"),
        )
        facts = {name: writer.header[name] for name in (*BOUND_FIELDS, SET_ASIDE)}
        total = {
            "scope": _sha256({}),
            "entry": 2,
            "charged": "0.01",
            "reserved": "0",
            "delta": delta,
        }
        state = {
            "form": STATE_FORM,
            "facts": _sha256(facts),
            "cap": "0.1",
            "highest_cap": "0.1",
        }
        state |= {"uploads": [], "totals": [total], "reservations": []}
        writer.add("state", "0", details={"state": state})
        failure = _failure(writer.entries, writer.header, erased)
        assert (
            failure is None
            if verifies
            else failure is not None and "the stated totals differs" in failure.reason
        )


def test_the_uploads_of_a_stated_state_stand_in_their_order() -> None:
    """A scope of the first two is another one where two change places."""
    actual = {"uploads": ["ep_b", "ep_a"], "totals": [{"scope": "x"}, {"scope": "y"}]}
    stated = {**actual, "totals": [{"scope": "y"}, {"scope": "x"}]}
    entry: Any = SimpleNamespace(amount=0, details={"state": stated})
    check_stated_state(entry, actual)
    entry.details = {"state": {**stated, "uploads": ["ep_a", "ep_b"]}}
    with pytest.raises(Broken, match="the stated uploads differs"):
        check_stated_state(entry, actual)


def test_accounts_that_follow_one_another_are_verified_together(
    export: Export, history: Any, erased: Any
) -> None:
    last = export(dataset="ds_last", cap="2").add(
        "load", "2", details=_continued(history, highest_cap="3")
    )
    summary = _verified(last, erased, history)
    assert summary.compared is not None
    assert summary.compared.compared is not None
    failure = _failure(last.entries, last.header, erased)
    assert failure is not None
    assert "continues" in failure.reason


def test_the_command_compares_and_says_what_it_could_not(
    history: Any, erased: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"
    new.write_bytes(b"".join(history.lines()))
    old.write_bytes(b"".join(erased.lines()))
    assert main([str(new)]) == 0
    assert "NOT CHECKED: that the opening load" in capsys.readouterr().out
    assert main([str(new), "--erased", str(old)]) == 0
    shown = capsys.readouterr().out
    assert "1.25 of ds_erased, compared with its 10 entries" in shown
    assert "NOT CHECKED: the" not in shown
    assert main([str(new), "--erased", str(old), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compared"]["dataset"] == "ds_erased"
    assert main([str(new), "--erased", str(old), "--erased", str(old)]) == 2
    assert main([str(old), "--erased", str(new)]) == 1


def test_a_member_that_continues_an_erased_member_carries_its_load(
    people: Callable[..., Any],
) -> None:
    population = (
        people(cap="3")
        .join("ds_old")
        .job("ds_old", "jb_1", "1.25")
        .declare("ds_new", cap="3")
    )
    erased, new = population.members["ds_old"], population.members["ds_new"]
    new.add("load", "1.25", details=_continued(erased, highest_cap="3"))
    newest = new.entries[-1]
    member = {
        "dataset": "ds_new", "sequence": newest["sequence"], "hash": newest["hash"], "adjacency": "add_remove",
        "unit_column": None, "highest_cap": "3", "continues": "ds_old",
    }  # fmt: skip
    population._add("join", "1.25", {"member": member})

    def verified() -> Any:
        ledgers = [
            MemberLedger(population.members[name].lines(), (), file=name)
            for name in ("ds_old", "ds_new")
        ]
        return verify_population(population.lines(), ledgers)

    summary = verified()
    assert (
        summary.together,
        summary.members["ds_old"].load,
        summary.members["ds_new"].load,
    ) == (
        1_250_000_000,
        0,
        1_250_000_000,
    )
    joined = list(population.entries)
    # 1.25 + 1.5 fits under 3: what the erased member lost counts once
    new.add("reserve", "1.5", job_id="jb_2", event=NANO_EVENT)
    newest = new.entries[-1]
    named = {
        "dataset": "ds_new",
        "sequence": newest["sequence"],
        "hash": newest["hash"],
    }
    population._add("load", "2.75", {"member": named}, job_id="jb_2")
    assert verified().together == 2_750_000_000
    population.entries = joined
    new.entries.pop()
    for name, value in (("continues", "ds_nobody"), ("continues", None)):
        population.entries[-1]["details"]["member"] = {**member, name: value}
        population.entries = chained(population.entries)
        with pytest.raises(NotVerified):
            verified()
