"""Exports of all kinds of accounts: several partitions, units, changed caps, and
declared losses.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from grovekeeper_verifier.dataset_replay import verify
from grovekeeper_verifier.export_lines import NotVerified

Export = Callable[..., Any]
PARTITIONS = [
    {"name": "shard", "kind": "hash", "cells": 4},
    {
        "name": "region",
        "kind": "column",
        "column": "land",
        "feature": False,
        "cells": ["US", "EU", "OTHER", "MISSING"],
        "sizes": [20, 10, 0, 0],
    },
    {"name": "upload", "kind": "epoch", "how": "one file per month"},
]
EVENT = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1/4",
    "coordinates": 4,
}
WORD = {
    "attested_by": "key_ann",
    "description": "a survey of another team",
    "per": "row",
}


def _failure(writer: Any) -> str:
    with pytest.raises(NotVerified) as caught:
        verify(writer.lines())
    return str(caught.value)


def test_boxes_over_several_partitions_count_in_their_joint_cells(
    export: Export,
) -> None:
    writer = export(cap="2", partitions=PARTITIONS)
    writer.job("a", "1", scope={"shard": [1]}).job(
        "b", "1", scope={"region": ["EU", "US"]}
    )
    writer.job("c", "1", scope={"region": ["MISSING"], "upload": ["ep_2"]})
    summary = verify(writer.lines())
    assert (summary.tightest.charged, summary.tightest.cell) == (
        2_000_000_000,
        {"region": "EU", "shard": 1, "upload": "ep_2"},
    )
    writer.job("d", "0.25", scope={"region": ["OTHER"], "shard": [2]}).job(
        "e", "0.25", scope={"upload": ["ep_3"]}
    )
    assert _failure(writer) == (
        "line 11: charged and reserved in cell region=EU in cell shard=1 in cell upload=ep_3 are 2.25,"
        " over the cap of 2"
    )


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ({"region": ["US", "EU"]}, "not a sorted list of distinct cells"),
        ({"region": ["FR"]}, "a cell that its partition does not have"),
        ({"region": [0]}, "a cell that its partition does not have"),
        ({"upload": [""]}, "a cell that its partition does not have"),
        ({"upload": [3]}, "a cell that its partition does not have"),
        ({"shard": ["1"]}, "a cell that its partition does not have"),
        ({"upload": ["b", "a"]}, "not a sorted list of distinct cells"),
    ],
)
def test_a_scope_names_cells_of_its_partitions(
    export: Export, scope: dict[str, Any], reason: str
) -> None:
    assert reason in _failure(export(partitions=PARTITIONS).job("a", "1", scope=scope))


@pytest.mark.parametrize(
    "changes",
    [
        {"cells": []}, {"cells": ["EU", "EU"]}, {"cells": ["EU", 1]}, {"cells": 4}, {"feature": 1}, {"column": ""},
        {"sizes": [1]}, {"sizes": [1, 2, 3, -4]}, {"sizes": [1, 2, 3, True]}, {"sizes": 4},
        {"kind": "epoch"}, {"kind": ["hash"]}, {"more": 1}, {"name": "shard"},
    ],
)  # fmt: skip
def test_a_partition_out_of_form_is_found_on_line_1(
    export: Export, changes: dict[str, Any]
) -> None:
    partitions = copy.deepcopy(PARTITIONS)
    partitions[1] |= changes
    assert _failure(export(partitions=partitions)).startswith("line 1: ")


def test_no_account_has_more_than_six_partitions(export: Export) -> None:
    """A forged header with dozens of partitions would make the search over joint cells
    endless.
    """
    seven = [{"name": f"p{number}", "kind": "hash", "cells": 2} for number in range(7)]

    assert (
        _failure(export(partitions=seven)) == "line 1: there are more than 6 partitions"
    )
    assert verify(export(partitions=seven[:6]).lines()).kinds == {"open": 1}


def test_a_cap_entry_has_a_reason_and_the_guarantee_keeps_the_highest_cap(
    export: Export,
) -> None:
    reason = {"reason": "asked for by the board"}
    writer = (
        export(cap="3").add("cap", "5", details=reason).add("cap", "4", details=reason)
    )
    writer.header["cap"] = "4"
    assert verify(writer.lines()).highest_cap == 4_000_000_000, (
        "nothing was released under 5"
    )
    writer.job("a", "1", "void").add("cap", "3", details=reason)
    writer.header["cap"] = "3"
    assert verify(writer.lines()).highest_cap == 3_000_000_000, (
        "what was given back released nothing"
    )
    writer.job("b", "1").add("cap", "2", details=reason)
    writer.header["cap"] = "2"
    summary = verify(writer.lines())
    assert (summary.cap, summary.highest_cap) == (2_000_000_000, 3_000_000_000)


def test_a_closed_account_keeps_its_guarantee_and_stays_closed(export: Export) -> None:
    """A cap of 0 closes an account whose lost entries may have spent anything, also
    where no entry spent.
    """
    reason = {"reason": "entries were lost in a restore"}
    writer = export(cap="3").add("cap", "0", details=reason)
    writer.header["cap"] = "0"
    summary = verify(writer.lines())
    assert (summary.cap, summary.highest_cap) == (0, 3_000_000_000)
    writer.add("cap", "2", details=reason)
    writer.header["cap"] = "2"
    with pytest.raises(NotVerified, match="was closed"):
        verify(writer.lines())


@pytest.mark.parametrize(
    "details",
    [None, {"reason": ""}, {"reason": 1}, {"why": "x"}, {"reason": "x", "by": "me"}],
)
def test_a_cap_without_a_reason_fails_verification(
    export: Export, details: dict[str, Any] | None
) -> None:
    writer = export(cap="3").add("cap", "2", details=details)
    writer.header["cap"] = "2"
    assert "reason" in _failure(writer)


def test_a_loss_per_row_is_multiplied_by_the_rows_of_a_unit_and_a_loss_per_unit_is_not(
    export: Export,
) -> None:
    assert "costs more" in _failure(export(max_rows=4).job("a", "0.25", event=EVENT))
    verify(export(max_rows=4).job("a", "1", event=EVENT).lines())
    verify(
        export(max_rows=4)
        .job("a", "0.25", event=EVENT, details={**WORD, "per": "unit"})
        .lines()
    )


def test_a_loss_of_a_whole_unit_is_charged_to_hash_cells_only(export: Export) -> None:
    word = {**WORD, "per": "unit"}
    writer = export(max_rows=4, partitions=PARTITIONS)
    verify(
        writer.job("a", "0.25", event=EVENT, details=word, scope={"shard": [1]}).lines()
    )
    both = {"region": ["EU"], "shard": [2]}
    for number, scope in enumerate(({"region": ["EU"]}, both)):
        other = copy.deepcopy(writer)
        other.job(f"b{number}", "0.25", event=EVENT, details=word, scope=scope)
        assert "cells of which one unit can have several" in _failure(other)
    assert "whose unit is a row" in _failure(
        export().job("a", "0.25", event=EVENT, details=word)
    )


def test_an_entry_names_no_upload_that_was_named_before(export: Export) -> None:
    writer = export(cap="2", partitions=PARTITIONS)
    for number, named in enumerate((["ep_1", "ep_2"], ["ep_3"]), start=1):
        writer.add(
            "reserve",
            "0.25",
            job_id=f"jb_{number}",
            scope={"upload": number + 1},
            event=EVENT,
            details={"uploads": named},
        )
        verify(writer.lines())
    for named in (["ep_2"], ["ep_4", "ep_4"]):
        forged = copy.deepcopy(writer)
        forged.add(
            "reserve",
            "0.25",
            job_id="jb_3",
            scope={"upload": 4},
            event=EVENT,
            details={"uploads": named},
        )
        assert "an upload was named before" in _failure(forged)


DECLARED = [
    ("pure", {"epsilon": "0.5"}, "0.5", "0.499999999"),
    ("zcdp", {"epsilon": "0.5"}, "0.122459332", "0.12"),
    ("zcdp", {"rho": "0.01"}, "0.01", "0.009999999999"),
    ("zcdp", {"mu": "0.1"}, "0.005", "0.004999999999"),
    ("gdp", {"mu": "0.1"}, "0.01", "0.009999999999"),
    ("gdp", {"epsilon": "0.5"}, "0.4", "0.3"),
]


def _declared(
    export: Export, accountant: str, measure: dict[str, str], amount: str, **facts: Any
) -> Any:
    delta = None if accountant == "pure" else "0.000001"
    writer = export(cap="2", accountant=accountant, delta=delta, **facts)
    declared = {"adjacency": "add_remove", **measure}
    return writer.job(
        "rs_1", amount, event=None, details={**WORD, "declared": declared}
    )


@pytest.mark.parametrize(("accountant", "measure", "enough", "too_little"), DECLARED)
def test_a_declared_loss_costs_what_it_converts_to(
    export: Export,
    accountant: str,
    measure: dict[str, str],
    enough: str,
    too_little: str,
) -> None:
    summary = verify(_declared(export, accountant, measure, enough).lines())
    assert summary.attested == {"key_ann": 1}
    assert "declared loss, recomputed, costs more" in _failure(
        _declared(export, accountant, measure, too_little)
    )


def test_a_declared_loss_of_a_row_is_paid_for_every_row_of_a_unit(
    export: Export,
) -> None:
    verify(_declared(export, "gdp", {"mu": "0.1"}, "0.04", max_rows=2).lines())
    assert "costs more" in _failure(
        _declared(export, "gdp", {"mu": "0.1"}, "0.03", max_rows=2)
    )


@pytest.mark.parametrize(
    ("accountant", "measure"),
    [("pure", {"rho": "0.1"}), ("pure", {"mu": "1"}), ("gdp", {"rho": "1"})],
)
def test_a_declared_loss_without_a_bound_is_refused(
    export: Export, accountant: str, measure: dict[str, str]
) -> None:
    assert "has no bound on this account" in _failure(
        _declared(export, accountant, measure, "1")
    )


def test_a_loss_on_a_label_account_is_a_labels_or_twice_a_rows(export: Export) -> None:
    def writer(adjacency: str, amount: str) -> Any:
        declared = {"adjacency": adjacency, "epsilon": "0.5"}
        details = {**WORD, "declared": declared}
        return export(adjacency="label").job(
            "rs_1", amount, event=None, details=details
        )

    verify(writer("label", "0.5").lines())
    verify(writer("add_remove", "1").lines())
    assert "costs more" in _failure(writer("add_remove", "0.5"))
    assert "adjacency has no bound" in _failure(writer("replace_one", "3"))


@pytest.mark.parametrize(
    ("accountant", "measure", "single", "fourfold"),
    [("zcdp", {"rho": "0.1"}, "0.1", "0.4"), ("gdp", {"mu": "0.3"}, "0.09", "0.36")],
)
def test_a_rows_loss_on_a_label_account_costs_four_times_its_rho_or_mu_squared(
    export: Export, accountant: str, measure: dict[str, str], single: str, fourfold: str
) -> None:
    def writer(adjacency: str, amount: str) -> Any:
        details = {**WORD, "declared": {"adjacency": adjacency, **measure}}
        facts = {"accountant": accountant, "delta": "0.001", "adjacency": "label"}
        return export(**facts).job("rs_1", amount, event=None, details=details)

    verify(writer("label", single).lines())
    verify(writer("add_remove", fourfold).lines())
    assert "costs more" in _failure(
        writer("add_remove", fourfold[:-1] + chr(ord(fourfold[-1]) - 1))
    )


@pytest.mark.parametrize(
    ("details", "event"),
    [
        ({}, None),
        (None, None),
        ({"attested_by": ""}, EVENT),
        ({"attested_by": 1}, EVENT),
        ({"description": "x"}, EVENT),
        ({**WORD, "per": "person"}, EVENT),
        ({**WORD, "description": 1}, EVENT),
        ({**WORD, "gift": "1"}, EVENT),
        (WORD, None),
        ({**WORD, "declared": {"adjacency": "add_remove", "epsilon": "0.1"}}, EVENT),
        ({**WORD, "declared": None}, None),
        ({**WORD, "declared": {"epsilon": "0.1"}}, None),
        ({**WORD, "declared": {"adjacency": "add_remove"}}, None),
        (
            {
                **WORD,
                "declared": {"adjacency": "add_remove", "epsilon": "0.1", "rho": "0.1"},
            },
            None,
        ),
        (
            {
                **WORD,
                "declared": {
                    "adjacency": "add_remove",
                    "epsilon": "0.1",
                    "delta": "0.1",
                },
            },
            None,
        ),
        (
            {
                **WORD,
                "declared": {"adjacency": "add_remove", "rho": "0.1", "delta": "0.1"},
            },
            None,
        ),
        (
            {
                **WORD,
                "declared": {"adjacency": "add_remove", "epsilon": "0.1"},
                "delta": "0.1",
            },
            None,
        ),
        ({**WORD, "delta": "0.1"}, EVENT),
        ({**WORD, "declared": {"adjacency": "add_remove", "epsilon": "1e-1"}}, None),
        ({**WORD, "declared": {"adjacency": "add_remove", "epsilon": 1}}, None),
        ({**WORD, "declared": {"adjacency": "add_remove", "epsilon": "-1"}}, None),
        ({**WORD, "declared": {"adjacency": 1, "epsilon": "1"}}, None),
    ],
)
def test_details_out_of_form_are_refused_even_with_their_own_hash(
    export: Export, details: dict[str, Any] | None, event: object
) -> None:
    assert _failure(export().job("rs_1", "3", event=event, details=details)).startswith(
        "line 3: "
    )


@pytest.mark.parametrize(
    ("more", "event"),
    [({}, EVENT), ({"declared": {"adjacency": "add_remove", "epsilon": "0.01"}}, None)],
)
def test_a_delta_that_nobody_declared_is_not_charged(
    export: Export, more: dict[str, Any], event: object
) -> None:
    """Also if a large enough part of δ is set aside."""
    writer = export(accountant="zcdp", delta="0.1", delta_set_aside="0.05")
    failure = _failure(
        writer.job("rs_1", "3", event=event, details={**WORD, **more, "delta": "0.01"})
    )
    assert (
        failure
        == "line 3: the price cannot be recomputed: a delta is charged and none is declared"
    )


@pytest.mark.parametrize("accountant", ["gdp", "zcdp"])
def test_only_accounts_of_rho_set_a_delta_aside(
    export: Export, accountant: str
) -> None:
    lines = export(accountant=accountant, delta="0.1", delta_set_aside="0.05").lines()
    if accountant == "zcdp":
        assert verify(lines).header.delta_set_aside == 5 * 10**16
        return
    with pytest.raises(
        NotVerified, match="not a part of the delta of a zcdp account"
    ) as result:
        verify(lines)
    assert result.value.line == 1


def test_delta_may_be_declared_with_epsilon_only(export: Export) -> None:
    """Also if a large enough part of δ is set aside and charged."""
    declared = {"adjacency": "add_remove", "rho": "0.1", "delta": "0.01"}
    writer = export(accountant="zcdp", delta="0.1", delta_set_aside="0.05")
    failure = _failure(
        writer.job(
            "rs_1",
            "3",
            event=None,
            details={**WORD, "declared": declared, "delta": "0.01"},
        )
    )
    assert "a delta is declared with a measure other than epsilon" in failure


@pytest.mark.parametrize("end", ["void", "expire"])
def test_an_external_charge_is_never_given_back(export: Export, end: str) -> None:
    assert "cannot be given back" in _failure(
        export().job("rs_1", "1", end, event=EVENT, details=WORD)
    )


ZCDP: dict[str, Any] = {
    "accountant": "zcdp",
    "cap": "2",
    "delta": "0.000001",
    "delta_set_aside": "0.0000002",
}


def _approximate(
    delta: str, *, charged: str | None = None, **changes: str
) -> dict[str, Any]:
    declared = {"adjacency": "add_remove", "epsilon": "0.5", "delta": delta}
    return {**WORD, "declared": declared, "delta": charged or delta} | changes


def _with_delta(
    export: Export, *details: dict[str, Any], scope: Any = None, **facts: Any
) -> Any:
    writer = export(**ZCDP | facts)
    for number, each in enumerate(details):
        writer.job(
            f"rs_{number}",
            "0.13",
            event=None,
            details=each,
            scope=scope[number] if scope else None,
        )
    return writer


def test_delta_is_charged_out_of_what_is_set_aside_in_every_cell(
    export: Export,
) -> None:
    half = _approximate("0.0000001")
    assert verify(_with_delta(export, half, half).lines()).attested == {"key_ann": 2}
    assert _failure(
        _with_delta(export, half, half, _approximate("0.000000000000000001"))
    ) == ("line 7: the charged delta is more than the delta set aside")
    apart = [{"shard": [0]}, {"shard": [1]}, {"shard": [0]}]
    verify(
        _with_delta(
            export, half, _approximate("0.0000002"), half, scope=apart, shards=2
        ).lines()
    )
    apart[2] = {"shard": [1]}
    assert "more than the delta set aside" in _failure(
        _with_delta(
            export, half, _approximate("0.0000002"), half, scope=apart, shards=2
        )
    )


@pytest.mark.parametrize(
    ("details", "facts", "reason"),
    [
        (
            _approximate("0.0000001", charged="0.00000009"),
            {},
            "more than the charged one",
        ),
        (
            _approximate("0.0000000000000000001", charged="0"),
            {},
            "more than the charged one",
        ),
        (_approximate("0.0000001"), {"max_rows": 2}, "costs more than the amount"),
        (
            _approximate("0.0000001"),
            {"adjacency": "label"},
            "costs more than the amount",
        ),
    ],
)
def test_a_delta_that_is_not_covered_is_refused(
    export: Export, details: dict[str, Any], facts: dict[str, Any], reason: str
) -> None:
    assert reason in _failure(_with_delta(export, details, **facts))


@pytest.mark.parametrize("facts", [{"max_rows": 2}, {"adjacency": "label"}])
def test_a_delta_of_less_than_a_unit_is_refused_whatever_was_paid(
    export: Export, facts: dict[str, Any]
) -> None:
    writer = export(**ZCDP | facts).job(
        "rs_0", "1.9", event=None, details=_approximate("0.0000001")
    )
    assert "declared for less than one unit" in _failure(writer)
    per_unit = _approximate("0.0000001", per="unit")
    if "max_rows" in facts:
        verify(
            export(**ZCDP | facts)
            .job("rs_0", "0.13", event=None, details=per_unit)
            .lines()
        )


def test_a_declared_delta_is_refused_where_no_delta_is_set_aside(
    export: Export,
) -> None:
    details = _approximate("0.0000001")
    gdp = export(cap="2", accountant="gdp", delta="0.000001").job(
        "rs_0", "1", event=None, details=details
    )
    assert "on an account that sets no delta aside" in _failure(gdp)
    zcdp = export(cap="2", accountant="zcdp", delta="0.000001").job(
        "rs_0", "1", event=None, details=details
    )
    assert "more than the delta set aside" in _failure(zcdp)


@pytest.mark.parametrize("wrong", ["0.000001", "0", "1e-7", None, "0.2"])
def test_the_delta_set_aside_is_less_than_delta(export: Export, wrong: object) -> None:
    assert "delta_set_aside" in _failure(export(**ZCDP | {"delta_set_aside": wrong}))


def test_the_chain_covers_the_delta_set_aside(export: Export) -> None:
    writer = export(**ZCDP)
    writer.header["delta_set_aside"] = "0.0000009"
    assert (
        _failure(writer)
        == "line 2: the header's delta_set_aside is not what the first entry says"
    )
    del writer.header["delta_set_aside"]
    assert "delta_set_aside" in _failure(writer)
    added = export(cap="2", accountant="zcdp", delta="0.000001")
    added.header["delta_set_aside"] = "0.0000002"
    assert (
        _failure(added)
        == "line 2: the first entry's details do not say delta_set_aside"
    )


def _two_parts(export: Export, *ends: tuple[str, int, str]) -> Any:
    """A job with a part on each of two shards, with the kind of end, shard and amount
    of each part.
    """
    writer = export(shards=2)
    for shard, amount in ((0, "1"), (1, "2")):
        writer.add(
            "reserve", amount, job_id="jb_1", scope={"shard": [shard]}, event=EVENT
        )
    for kind, shard, amount in ends:
        writer.add(kind, amount, job_id="jb_1", scope={"shard": [shard]}, event=EVENT)
    return writer


def test_each_part_of_a_job_comes_to_the_same_end_once(export: Export) -> None:
    whole = verify(_two_parts(export, ("charge", 1, "2"), ("charge", 0, "1")).lines())
    assert (whole.tightest.charged, whole.tightest.reserved) == (2 * 10**9, 0)
    half = verify(_two_parts(export, ("charge", 0, "1")).lines())
    assert (half.tightest.charged, half.tightest.reserved, half.tightest.cell) == (
        0,
        2 * 10**9,
        {"shard": 1},
    )
    given_back = verify(_two_parts(export, ("void", 1, "2"), ("void", 0, "1")).lines())
    assert given_back.tightest.load == 0
    for ends, reason in (
        (
            [("charge", 0, "1"), ("charge", 0, "2")],
            "scope is not that of the reservation",
        ),
        ([("charge", 0, "1"), ("void", 1, "2")], "has ended already, by charge"),
        ([("charge", 0, "2")], "amount is not that of the reservation"),
        (
            [("charge", 0, "1"), ("charge", 1, "2"), ("charge", 1, "2")],
            "has ended already, by charge",
        ),
    ):
        assert reason in _failure(_two_parts(export, *ends)), ends


def test_every_two_parts_of_a_job_are_on_other_rows(export: Export) -> None:
    """Whichever of its parts were reserved before."""
    for overlapping in ([0], [1], [0, 1, 2]):
        writer = export(shards=3)
        for cells in ([0], [1], [2]):
            writer.add(
                "reserve", "1", job_id="jb_1", scope={"shard": cells}, event=EVENT
            )
        verify(writer.lines())
        writer.add(
            "reserve", "1", job_id="jb_1", scope={"shard": overlapping}, event=EVENT
        )
        assert "this job has a reservation already" in _failure(writer), overlapping
